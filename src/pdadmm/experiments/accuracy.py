"""How accurate are the networks, epoch by epoch, against the paper's curves and five rivals on its six data sets?

9 hidden layers of 500, full batch, 95 epochs; training and test accuracy. Every method has the same scaling and, but
for the authors' scheme, the same first weights.
"""

from __future__ import annotations

import csv
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from pdadmm.config import PRESETS, Config
from pdadmm.errors import UserError
from pdadmm.experiments import published as paper
from pdadmm.experiments.published import DATA, PAPER, published
from pdadmm.experiments.result import Cell, Figure, Result, Table, at, series
from pdadmm.experiments.runs import Case, samples_used
from pdadmm.experiments.settings import Settings, source_of
from pdadmm.history import Row
from pdadmm.rundir import make_directory, read_history, write_whole

NAME = "accuracy"
KINDS = ("test_accuracy", "train_accuracy")
METHODS = PAPER[NAME]["methods"]
COLUMNS = ("epoch", "train_accuracy", "test_accuracy", "seconds")
Curve = dict[int, dict[str, float]]
"""By epoch: the columns of a file `DATA-METHOD-SEED.csv`."""


class Accuracy:
    """The experiment."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._data = settings.chosen_data(tuple(DATA), NAME)
        self._methods = settings.chosen_methods(tuple(METHODS), NAME)
        if settings.methods is None:
            self._methods.remove("adam-128")
        kept = settings.curves
        cases = [
            self._case(data, method, seed) for data in self._data for method in self._methods for seed in settings.seeds
        ]
        self.cases = [case for case in cases if kept is None or not (kept / f"{case.path.name}.csv").exists()]
        """The runs that are needed; those kept as curves are not."""

    def _case(self, data: str, method: str, seed: int) -> Case:
        scale, chosen = self._settings.scale, METHODS[method]
        options = {**PAPER[NAME]["options"], **PRESETS.get(chosen.get("preset"), {}), **chosen.get("options", {})}
        options |= {"data": source_of(data, self._settings), "hidden": (scale.width,) * scale.depth, "seed": seed}
        config = Config.from_mapping({**options, "epochs": scale.accuracy_epochs})
        return Case(self._settings.out / NAME / "runs" / f"{data}-{method}-{seed}", config, data)

    def result(self) -> Result:
        """What the finished runs came to."""
        curves = {data: found for data in self._data if (found := self._curves(data))}
        notes = samples_used(DATA, self.cases)
        if self._settings.curves is not None:
            notes.append(f"Curves kept before are those of {self._settings.curves}; how they were made is said there.")
        if missing := [data for data in self._data if data not in curves]:
            notes.append(f"No finished run yet: {', '.join(missing)}.")
        of_kinds = [(data, kind) for data in curves for kind in KINDS]
        return Result(
            NAME,
            PAPER[NAME]["title"],
            self._settings.notes(PAPER[NAME], notes),
            [accuracy_table(data, kind, curves[data]) for data, kind in of_kinds],
            [accuracy_figure(data, kind, curves[data]) for data, kind in of_kinds],
        )

    def _curves(self, data: str) -> dict[str, list[Curve]]:
        """Those kept before, and those of the runs that have ended, which are kept now; by method, one a seed."""
        paths = []
        for case in self.cases:
            if case.data == data and case.is_finished:
                paths.append(self._settings.out / NAME / "curves" / f"{case.path.name}.csv")
                write_curve(read_history(case.path), paths[-1])
        if self._settings.curves is not None:
            paths += self._settings.curves.glob(f"{data}-*.csv")
        return curves_by_method(paths, data, self._methods)


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
