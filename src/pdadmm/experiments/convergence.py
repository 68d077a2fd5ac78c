"""Does the objective fall, and the residual go to 0, at nu = rho = 0.1 and where the paper's theorems apply?

Two runs for each data set, 9 hidden layers of 500, 100 epochs, all layers from the start. `paper` is as close to the
published figure as this program comes: the authors' step search, N(0, 0.1²) weights, features as they are, FISTA at
the output, rho = nu = 0.1, float32. `theory` is the same at rho = 4.1 nu, where Lemma 1 holds and c_k is defined, in
float64, so that a rise of the objective could not be blamed on rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from pdadmm.experiments.experiment import Experiment, Settings
from pdadmm.experiments.published import DATA, PAPER, published
from pdadmm.experiments.result import Cell, Figure, Result, Series, Table, at, series
from pdadmm.experiments.runs import Case
from pdadmm.history import Row
from pdadmm.rundir import read_history

NAME = "convergence"
RUNS = PAPER[NAME]["methods"]
Histories = Mapping[tuple[str, str], Sequence[Row]]
"""By data set and run."""


class Convergence(Experiment):
    """The experiment."""

    def __init__(self, settings: Settings, name: str) -> None:
        super().__init__(settings, name, PAPER[name])
        self._by_run = {(data, run): self.case(data, run) for data in self.data for run in self.methods}

    @property
    def cases(self) -> list[Case]:
        """The runs that are needed."""
        return list(self._by_run.values())

    def result(self) -> Result:
        """What the finished runs came to."""
        histories = {key: read_history(case.path) for key, case in self._by_run.items() if case.is_finished}
        names = list(dict.fromkeys(data for data, _ in histories))
        tables = [behaviour_table(histories), *(data_table(data, histories) for data in names)] if histories else []
        return self.made(self.notes_on_runs(names), tables, figures(histories))


def behaviour_table(histories: Histories) -> Table:
    """One row a run: whether the objective fell, by what it must, and where the run ended."""
    rows: list[list[Cell]] = []
    for (data, run), history in histories.items():
        first, last = history[0], history[-1]
        rises = sum(row["drop"] < 0 for row in history)
        uncertified = sum(not row["certified"] for row in history)
        objectives = f"{first['objective']:.4g} → {last['objective']:.4g}"
        residuals = f"{first['residual']:.3g} → {last['residual']:.3g}"
        k_c_k = f"{first['c_k']:.3g} → {last['epoch'] * last['c_k']:.3g}" if "c_k" in last else None
        dtype, falls = RUNS[run]["options"]["dtype"], f"{rises} of {last['epoch']}"
        rows.append([DATA[data], run, dtype, objectives, falls, uncertified, residuals, k_c_k])
    columns = ["data", "run", "arithmetic", "L_rho", "rises", "certificate failed", "residual", "k·c_k"]
    return Table("How the runs behaved", columns, rows)


def data_table(data: str, histories: Histories) -> Table:
    """Objective, residual and c_k at some epochs, the published objective beside them."""
    values = published("objective", data, "pdADMM")
    mine = {run: {row["epoch"]: row for row in history} for (name, run), history in histories.items() if name == data}
    epochs = set.intersection(*(set(rows) for rows in mine.values())).intersection(PAPER[NAME]["shown_epochs"])
    columns = ["epoch", "published ln objective"]
    columns += [f"{what}, {run}" for run in mine for what in ("ln L_rho", "residual")]
    columns += ["c_k, theory", "k·c_k, theory"] if "theory" in mine else []
    rows: list[list[Cell]] = []
    for epoch in sorted(epochs):
        cells: list[Cell] = [epoch, at(values, 0 if epoch == 1 else epoch, ".3f")]
        for rows_of_run in mine.values():
            row = rows_of_run[epoch]
            # Below the theory's rho nothing keeps L_rho above 0.
            ln = f"{math.log(row['objective']):.3f}" if row["objective"] > 0 else None
            cells += [ln, f"{row['residual']:.4g}"]
        if "theory" in mine:
            c_k = mine["theory"][epoch]["c_k"]
            cells += [f"{c_k:.4g}", f"{epoch * c_k:.4g}"]
        rows.append(cells)
    return Table(DATA[data], columns, rows)


def figures(histories: Histories) -> list[Figure]:
    """Of both runs L_rho and the residual; of `theory` also the certificate and k·c_k."""
    found = []
    for run, condition in (("paper", "rho = nu, float32"), ("theory", "rho = 4.1 nu, float64")):
        own = {data: history for (data, name), history in histories.items() if name == run}
        drawn = {"ln L_rho": logarithms(own, "", lambda row: row["objective"])}
        drawn["ln |p - q|"] = logarithms(own, "", lambda row: row["residual"])
        if run == "paper":
            drawn["ln L_rho"] += [
                series(f"published: {DATA[data]}", published("objective", data, "pdADMM")) for data in own
            ]
        else:
            least = logarithms(own, ", at least", lambda row: row["certain_drop"])
            drawn["ln of the fall of L_rho"] = logarithms(own, "", lambda row: row["drop"]) + least
            drawn["ln k·c_k"] = logarithms(own, "", lambda row: row["epoch"] * row["c_k"])
        found += [Figure(f"{what}, {condition}", "epoch", what, curves) for what, curves in drawn.items() if curves]
    return found


def logarithms(own: Mapping[str, Sequence[Row]], suffix: str, value: Callable[[Row], float]) -> list[Series]:
    """The natural logarithm of a positive value of each row, by data set."""
    return [
        series(f"{DATA[data]}{suffix}", {row["epoch"]: math.log(value(row)) for row in history if value(row) > 0})
        for data, history in own.items()
    ]
