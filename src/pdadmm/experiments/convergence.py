"""Does the objective fall, and the residual go to 0, at nu = rho = 0.1 and where the paper's theorems apply?

Two runs for each data set, 9 hidden layers of 500, 100 epochs, all layers from the start. `paper` is as close to the
published figure as this program comes: the authors' step search, N(0, 0.1²) weights, features as they are, FISTA at
the output, rho = nu = 0.1, float32. `theory` is the same at rho = 4.1 nu, where Lemma 1 holds and c_k is defined, in
float64, so that a rise of the objective could not be blamed on rounding.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from pdadmm.config import Config
from pdadmm.experiments.cases import Case
from pdadmm.experiments.published import DATA, defects, published
from pdadmm.experiments.results import Cell, Results, Table, at
from pdadmm.experiments.runner import run_folder, samples_used
from pdadmm.experiments.settings import Settings
from pdadmm.experiments.subset import OnData, part_shape, source_of
from pdadmm.history import Row

NAME, TITLE = "convergence", "Convergence: objective and residual by epoch"
EPOCHS = (1, 5, 10, 20, 50, 95, 100)
NU = 0.1
RUNS: dict[str, dict[str, Any]] = {
    "paper": {"rho": NU, "dtype": "float32"},
    "theory": {"rho": 4.1 * NU, "dtype": "float64"},
}
_SCHEME = {
    "nu": NU,
    "solver": "backtracking",
    "init": "paper",
    "scaling": "none",
    "output_solver": "fista",
    "z_prox": 1.0,
    "grow": "off",
}


class Convergence(OnData):
    """The experiment."""

    name, title = NAME, TITLE

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._data = settings.chosen_data(tuple(DATA), NAME)
        self._runs = settings.chosen_methods(tuple(RUNS), tuple(RUNS), NAME)
        self._by_run = {(data, run): _case(settings, data, run) for data in self._data for run in self._runs}
        self.cases = list(self._by_run.values())
        """The runs that are needed."""

    def results(self) -> Results:
        """What the finished runs came to."""
        from pdadmm.experiments.figures import convergence_figure

        histories = {key: case.history() for key, case in self._by_run.items() if case.is_finished()}
        names = list(dict.fromkeys(data for data, _ in histories))
        tables = {"How the runs behaved": behaviour_table(histories)} if histories else {}
        tables |= {DATA[data]: data_table(data, histories) for data in names}
        numbers = {f"{data}-{run}": behaviour(history) for (data, run), history in histories.items()}
        return Results(
            NAME,
            TITLE,
            self._settings.scale.name,
            self._settings.command,
            defects("logarithm", "residual", "condition", "cifar100", "svhn", "cifar10", "one_run"),
            self._notes(names),
            long_table(histories),
            tables,
            {"runs": numbers, "nu": NU, "rho": {run: options["rho"] for run, options in RUNS.items()}},
            {"figure": convergence_figure(histories)} if histories else {},
        )

    def _notes(self, finished: Sequence[str]) -> list[str]:
        scale = self._settings.scale
        notes = [
            f"Network {scale.depth} × {scale.width}, nu = {NU:g}, {scale.convergence_epochs} epochs, all layers from "
            f"the start. `paper`: rho = nu, float32; `theory`: rho = 4.1 nu, float64, where c_k is defined. Both with "
            f"the authors' step search (--solver backtracking), --init paper, --scaling none, --output-solver fista, "
            f"--z-prox 1; --preset paper differs by nu = rho = 1e-4 and by growing.",
            "ln L_rho is the natural logarithm of the objective, to be seen beside the published objective; the "
            "published epoch 0 stands beside our epoch 1. The sum is over all samples, so a smaller part of a data "
            "set has a lower curve. k·c_k must go to 0 by Theorem 3 (c_k is o(1/k)).",
            "A rise is an epoch whose L_rho is above that of the epoch before, without any allowance for rounding.",
        ]
        if scale.samples is not None:
            notes.append(
                f"Scaled down: at most {scale.samples:,} training samples of each set, classes in proportion, and "
                f"narrower layers; the published values are for the full size."
            )
        notes += samples_used({DATA[data]: case for (data, _), case in self._by_run.items() if case.is_finished()})
        missing = [data for data in self._data if data not in finished]
        return [*notes, f"No finished run yet: {', '.join(missing)}."] if missing else notes


def _case(settings: Settings, data: str, run: str) -> Case:
    scale = settings.scale
    options = {
        "data": source_of(data, scale, settings.out),
        "hidden": scale.hidden,
        "epochs": scale.convergence_epochs,
        "evaluate_every": 10,
        "checkpoint_minutes": 3.0,
    }
    config = Config.from_mapping({**options, **_SCHEME, **RUNS[run]})
    path = run_folder(settings.out, NAME) / f"{data}-{run}"
    return Case(path, config, part_shape(data, scale))


Histories = Mapping[tuple[str, str], Sequence[Row]]


def logarithm(objective: float) -> float | None:
    """ln L_rho; below the theory's rho nothing keeps L_rho above 0."""
    return math.log(objective) if objective > 0 else None


def behaviour(history: Sequence[Row]) -> dict[str, Any]:
    """Whether the objective fell, by what it must, and where the run ended."""
    rises = {row["epoch"]: -row["drop"] / (1 + abs(row["objective"])) for row in history if row["drop"] < 0}
    last = history[-1]
    found = {
        "epochs": last["epoch"],
        "objective_first": history[0]["objective"],
        "objective_last": last["objective"],
        "rises": len(rises),
        "largest_relative_rise": max(rises.values(), default=0.0),
        "uncertified": sum(not row["certified"] for row in history),
        "residual_first": history[0]["residual"],
        "residual_last": last["residual"],
    }
    if "c_k" in last:
        found |= {"c_k_last": last["c_k"], "k_c_k_first": history[0]["c_k"], "k_c_k_last": last["epoch"] * last["c_k"]}
    return found


def behaviour_table(histories: Histories) -> Table:
    """One row a run."""
    rows: list[list[Cell]] = []
    for (data, run), history in histories.items():
        found, dtype = behaviour(history), RUNS[run]["dtype"]
        residuals = f"{found['residual_first']:.3g} → {found['residual_last']:.3g}"
        objectives = f"{found['objective_first']:.4g} → {found['objective_last']:.4g}"
        falls = f"{found['rises']} of {found['epochs']}"
        k_c_k = f"{found['k_c_k_first']:.3g} → {found['k_c_k_last']:.3g}" if "c_k_last" in found else None
        rows.append([DATA[data], run, dtype, objectives, falls, found["uncertified"], residuals, k_c_k])
    columns = ["data", "run", "arithmetic", "L_rho", "rises", "certificate failed", "residual", "k·c_k"]
    return Table(columns, rows)


def data_table(data: str, histories: Histories) -> Table:
    """Objective, residual and c_k at some epochs, the published objective beside them."""
    values = published("objective", data, "pdADMM")
    mine = {run: {row["epoch"]: row for row in history} for (name, run), history in histories.items() if name == data}
    epochs = sorted(set.intersection(*(set(rows) for rows in mine.values())).intersection(EPOCHS))
    columns = ["epoch", "published ln objective"]
    columns += [f"{what}, {run}" for run in mine for what in ("ln L_rho", "residual")]
    columns += ["c_k, theory", "k·c_k, theory"] if "theory" in mine else []
    rows: list[list[Cell]] = []
    for epoch in epochs:
        cells: list[Cell] = [epoch, at(values, 0 if epoch == 1 else epoch, ".3f")]
        for rows_of_run in mine.values():
            row = rows_of_run[epoch]
            ln = logarithm(row["objective"])
            cells += [None if ln is None else f"{ln:.3f}", f"{row['residual']:.4g}"]
        if "theory" in mine:
            c_k = mine["theory"][epoch]["c_k"]
            cells += [f"{c_k:.4g}", f"{epoch * c_k:.4g}"]
        rows.append(cells)
    return Table(columns, rows)


def long_table(histories: Histories) -> Table:
    """Every epoch of every run."""
    rows: list[list[Cell]] = []
    for (data, run), history in histories.items():
        values = published("objective", data, "pdADMM")
        for row in history:
            epoch = row["epoch"]
            other = values.get(0 if epoch == 1 else epoch)
            numbers = [row[key] for key in ("objective", "residual", "drop", "certain_drop")]
            rows.append([data, run, epoch, *numbers, int(row["certified"]), row.get("c_k"), other])
    columns = ("data", "run", "epoch", "objective", "residual", "drop", "certain_drop", "certified", "c_k")
    return Table((*columns, "published_ln_objective"), rows)
