"""How accurate are the networks, epoch by epoch, against the paper's curves and five rivals on its six data sets?

9 hidden layers of 500, full batch, 95 epochs; training and test accuracy. Every method has the same scaling and, but
for the authors' scheme, the same first weights.
"""

from __future__ import annotations

import csv
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from pdadmm.errors import UserError
from pdadmm.experiments import published as paper
from pdadmm.experiments.experiment import Experiment, Settings
from pdadmm.experiments.published import DATA, PAPER, published
from pdadmm.experiments.result import Cell, Figure, Result, Table, at, series
from pdadmm.experiments.runs import Case
from pdadmm.history import Row
from pdadmm.rundir import make_directory, read_history, write_whole

NAME = "accuracy"
KINDS = ("test_accuracy", "train_accuracy")
METHODS = PAPER[NAME]["methods"]
COLUMNS = ("epoch", "train_accuracy", "test_accuracy", "seconds")
Curve = dict[int, dict[str, float]]
"""By epoch: the columns of a file `DATA-METHOD-SEED.csv`."""


class Accuracy(Experiment):
    """The experiment."""

    def __init__(self, settings: Settings, name: str) -> None:
        super().__init__(settings, name, PAPER[name])
        if settings.methods is None:
            self.methods.remove("adam-128")
        kept = settings.curves
        cases = [
            self.case(data, method, f"-{seed}", seed=seed)
            for data in self.data
            for method in self.methods
            for seed in settings.seeds
        ]
        self._cases = [case for case in cases if kept is None or not (kept / f"{case.path.name}.csv").exists()]

    @property
    def cases(self) -> list[Case]:
        """The runs that are needed; those kept as curves are not."""
        return self._cases

    def result(self) -> Result:
        """What the finished runs came to."""
        curves = {data: found for data in self.data if (found := self._curves(data))}
        notes = self.notes_on_runs(curves)
        if self.settings.curves is not None:
            notes.append(f"Curves kept before are those of {self.settings.curves}; how they were made is said there.")
        of_kinds = [(data, kind, found) for data, found in curves.items() for kind in KINDS]
        return self.made(notes, [accuracy_table(*one) for one in of_kinds], [accuracy_figure(*one) for one in of_kinds])

    def _curves(self, data: str) -> dict[str, list[Curve]]:
        """Those kept before, and those of the runs that have ended, which are kept now; by method, one a seed."""
        paths = []
        for case in self.cases:
            if case.data == data and case.is_finished:
                paths.append(self.settings.out / self.name / "curves" / f"{case.path.name}.csv")
                write_curve(read_history(case.path), paths[-1])
        if self.settings.curves is not None:
            paths += self.settings.curves.glob(f"{data}-*.csv")
        return curves_by_method(paths, data, self.methods)


def write_curve(history: Iterable[Row], path: Path) -> None:
    """Keep the epochs of a run that were evaluated; seconds are of training, added up."""
    seconds, lines = 0.0, [",".join(COLUMNS)]
    for row in history:
        seconds += row["seconds"]
        if "test_accuracy" in row:
            lines.append(f"{row['epoch']},{row['train_accuracy']},{row['test_accuracy']},{round(seconds, 2)}")
    make_directory(path.parent)
    write_whole(path, ("\n".join(lines) + "\n").encode())


def read_curve(path: Path) -> Curve:
    """A curve that was kept."""
    try:
        with path.open(encoding="utf-8") as file:
            rows = [{name: float(row[name]) for name in COLUMNS} for row in csv.DictReader(file)]
        return {int(row["epoch"]): row for row in rows}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} must be a table of {', '.join(COLUMNS)}: {error}") from None


def curves_by_method(paths: Iterable[Path], data: str, methods: Sequence[str]) -> dict[str, list[Curve]]:
    """The curves of a data set by method in this order, one a seed."""
    found: dict[str, list[Curve]] = {method: [] for method in methods}
    for path in sorted(paths):
        method, _, seed = path.stem.removeprefix(f"{data}-").rpartition("-")
        if method in found and seed.isdigit():
            found[method].append(read_curve(path))
    return {method: curves for method, curves in found.items() if curves}


def accuracy_table(data: str, kind: str, curves: Mapping[str, Sequence[Curve]]) -> Table:
    """One accuracy of all methods at some epochs that all curves have, and the last; the published ones below."""
    common = set.intersection(*(set(curve) for found in curves.values() for curve in found))
    if not common:
        raise UserError(f"the curves of {', '.join(curves)} have no epoch in common")
    epochs = sorted({*common.intersection(PAPER[NAME]["shown_epochs"]), max(common)})
    rows: list[list[Cell]] = []
    for method, found in curves.items():
        cells = [mean_and_spread([curve[epoch][kind] for curve in found]) for epoch in epochs]
        rows.append([METHODS[method]["name"], len(found), *cells])
    for method in paper.METHODS:
        values = published(kind, data, method)
        is_other_task = data == "cifar100" and method != "pdADMM"
        name = f"{method}, ten classes" if is_other_task else method
        rows.append([f"*published: {name}*", None, *(at(values, epoch) for epoch in epochs)])
    return Table(f"{DATA[data]}, {kind.replace('_', ' ')}", [DATA[data], "seeds", *map(str, epochs)], rows)


def mean_and_spread(values: Sequence[float]) -> str:
    """The mean and, of several, half their range."""
    mean = f"{sum(values) / len(values):.4f}"
    return mean if len(values) == 1 else f"{mean} ± {(max(values) - min(values)) / 2:.4f}"


def accuracy_figure(data: str, kind: str, curves: Mapping[str, Sequence[Curve]]) -> Figure:
    """The mean over the seeds of each method, and the published curves."""
    drawn = []
    for method, found in curves.items():
        epochs = set.intersection(*(set(curve) for curve in found))
        means = {epoch: statistics.fmean(curve[epoch][kind] for curve in found) for epoch in epochs}
        drawn.append(series(METHODS[method]["name"], means))
    drawn += [series(f"published: {method}", published(kind, data, method)) for method in paper.METHODS]
    return Figure(f"{DATA[data]}, {kind.replace('_', ' ')}", "epoch", kind.replace("_", " "), drawn)
