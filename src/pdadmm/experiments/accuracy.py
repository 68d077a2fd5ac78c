"""How accurate are the networks, epoch by epoch, against the paper's curves and five rivals on its six data sets?

9 hidden layers of 500, full batch, 95 epochs; training and test accuracy. Every method has the same scaling and, but
for the authors' scheme, the same first weights.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pdadmm.config import PRESETS, Config
from pdadmm.errors import UserError
from pdadmm.experiments import published as paper
from pdadmm.experiments.cases import Case
from pdadmm.experiments.curves import Curve, read_curve, read_curves, write_curve
from pdadmm.experiments.published import DATA, defects, published
from pdadmm.experiments.results import Cell, Results, Table, at, mean_and_spread
from pdadmm.experiments.runner import finished, run_folder, samples_used
from pdadmm.experiments.settings import Settings
from pdadmm.experiments.subset import OnData, part_shape, source_of

NAME, TITLE = "accuracy", "Accuracy of all methods on the paper's six data sets"
EPOCHS = (5, 10, 20, 50, 95)
KINDS = ("test_accuracy", "train_accuracy")

METHODS: dict[str, dict[str, Any]] = {
    "pdadmm": {},
    "authors": PRESETS["paper"],
    "gd": {"method": "gd"},
    "adadelta": {"method": "adadelta"},
    "adagrad": {"method": "adagrad"},
    "adam": {"method": "adam"},
    "dladmm": {"method": "dladmm"},
    "adam-128": {"method": "adam", "batch_size": 128},
}
NAMES = {
    "pdadmm": "pdadmm, defaults",
    "authors": "the authors' scheme",
    "gd": "GD",
    "adadelta": "Adadelta",
    "adagrad": "Adagrad",
    "adam": "Adam",
    "dladmm": "dlADMM",
    "adam-128": "Adam, batches of 128",
}
DEFAULT_METHODS = tuple(name for name in METHODS if name != "adam-128")
PUBLISHED_AS = dict(zip(("authors", "gd", "adadelta", "adagrad", "adam", "dladmm"), paper.METHODS, strict=True))
"""Which published curve a method of ours is to be seen beside; the authors' scheme is their pdADMM."""


def make_case(path: Path, settings: Settings, data: str, method: str, seed: int) -> Case:
    """One run, evaluated every five epochs."""
    scale = settings.scale
    options = {
        "data": source_of(data, scale, settings.out),
        "scaling": "global",
        "hidden": scale.hidden,
        "epochs": scale.accuracy_epochs,
        "seed": seed,
        "evaluate_every": 5,
        "stationarity_every": 0,
        "checkpoint_minutes": 3.0,
    }
    config = Config.from_mapping({**options, **METHODS[method]})
    return Case(path, config, part_shape(data, scale))


class Accuracy(OnData):
    """The experiment."""

    name, title = NAME, TITLE

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._data = settings.chosen_data(tuple(DATA), NAME)
        self._methods = settings.chosen_methods(tuple(METHODS), DEFAULT_METHODS, NAME)
        self.cases = [
            make_case(run_folder(settings.out, NAME) / f"{data}-{method}-{seed}", settings, data, method, seed)
            for data in self._data
            for method in self._methods
            for seed in settings.seeds
            if not self._is_kept(f"{data}-{method}-{seed}")
        ]
        """The runs that are needed; those kept as curves are not."""

    def _is_kept(self, name: str) -> bool:
        kept = self._settings.curves
        return kept is not None and (kept / f"{name}.csv").exists()

    def results(self) -> Results:
        """What the finished runs came to."""
        from pdadmm.experiments.figures import accuracy_figure

        curves = {data: self._curves(data) for data in self._data}
        curves = {data: found for data, found in curves.items() if found}
        return Results(
            NAME,
            TITLE,
            self._settings.scale.name,
            self._settings.command,
            defects("cifar100", "svhn", "cifar10", "full_batch", "warm_up", "one_run"),
            self._notes(curves),
            long_table(curves),
            {
                f"{DATA[data]}, {kind.replace('_', ' ')}": data_table(data, kind, curves[data])
                for data in curves
                for kind in KINDS
            },
            {"data_sets": {data: summary(data, curves[data]) for data in curves}},
            {
                "figure": accuracy_figure(curves, "test_accuracy", NAMES),
                "figure-train": accuracy_figure(curves, "train_accuracy", NAMES),
            },
        )

    def _curves(self, data: str) -> dict[str, list[Curve]]:
        """Those kept before, and those of the runs that have ended, which are kept now."""
        kept = self._settings.curves
        found = read_curves(kept, data, self._methods) if kept is not None else {}
        for case in finished([case for case in self.cases if case.name.startswith(f"{data}-")]):
            path = self._settings.folder(NAME) / "curves" / f"{case.name}.csv"
            write_curve(case.history(), path)
            method, _, _ = case.name.removeprefix(f"{data}-").rpartition("-")
            found.setdefault(method, []).append(read_curve(path))
        return {method: found[method] for method in self._methods if method in found}

    def _notes(self, curves: Mapping[str, Mapping[str, Sequence[Curve]]]) -> list[str]:
        scale = self._settings.scale
        notes = [
            f"Network {scale.depth} × {scale.width}, ReLU, full batch, {scale.accuracy_epochs} epochs, growth counted; "
            f"several seeds as mean ± half their range. Published rows and dashed curves: 9 × 500 at full size."
        ]
        if scale.samples is not None:
            notes.append(
                f"Scaled down: at most {scale.samples:,} training and {scale.tests:,} test samples of each set, "
                f"classes in proportion, and narrower layers; the published values are for the full size."
            )
        notes += samples_used({DATA[case.name.split("-")[0]]: case for case in finished(self.cases)})
        if self._settings.curves is not None:
            notes.append(f"Curves kept before are those of {self._settings.curves}; how they were made is said there.")
        missing = [data for data in self._data if data not in curves]
        return [*notes, f"No finished run yet: {', '.join(missing)}."] if missing else notes


def shown_epochs(curves: Mapping[str, Sequence[Curve]]) -> list[int]:
    """The epochs of a table that all curves have, and the last of all."""
    common = set.intersection(*(set(curve) for found in curves.values() for curve in found))
    if not common:
        raise UserError(f"the curves of {', '.join(curves)} have no epoch in common")
    return sorted({*common.intersection(EPOCHS), max(common)})


def data_table(data: str, kind: str, curves: Mapping[str, Sequence[Curve]]) -> Table:
    """One accuracy of all methods at the shown epochs, the published ones below."""
    epochs = shown_epochs(curves)
    rows: list[list[Cell]] = []
    for method, found in curves.items():
        cells = [mean_and_spread([curve[epoch][kind] for curve in found]) for epoch in epochs]
        rows.append([NAMES[method], len(found), *cells])
    for method in paper.METHODS:
        values = published(kind, data, method)
        is_other_task = data == "cifar100" and method != "pdADMM"
        name = f"{method}, ten classes" if is_other_task else method
        rows.append([f"*published: {name}*", None, *(at(values, epoch) for epoch in epochs)])
    return Table([DATA[data], "seeds", *map(str, epochs)], rows)


def long_table(curves: Mapping[str, Mapping[str, Sequence[Curve]]]) -> Table:
    """Every epoch that was evaluated: mean and half range of ours, and the published value beside it."""
    rows: list[list[Cell]] = []
    for data, methods in curves.items():
        for method, found in methods.items():
            for epoch in sorted(set.intersection(*(set(curve) for curve in found))):
                for kind in KINDS:
                    values = [curve[epoch][kind] for curve in found]
                    other = published(kind, data, PUBLISHED_AS.get(method, "pdADMM")).get(epoch)
                    half = (max(values) - min(values)) / 2
                    mean = round(statistics.fmean(values), 6)
                    rows.append([data, method, epoch, kind, len(values), mean, round(half, 6), other])
    return Table(("data", "method", "epoch", "accuracy", "seeds", "mean", "half_range", "published"), rows)


def summary(data: str, curves: Mapping[str, Sequence[Curve]]) -> dict[str, Any]:
    """Accuracies at the shown epochs, when the published one of epoch 95 was passed, and full-batch Adam's distance."""
    epochs, target = shown_epochs(curves), published("test_accuracy", data, "pdADMM")[95]
    means = {
        method: {epoch: statistics.fmean(curve[epoch]["test_accuracy"] for curve in found) for epoch in epochs}
        for method, found in curves.items()
    }
    found: dict[str, Any] = {"test_accuracy": means, "published_95": target}
    if "pdadmm" in means:
        ours = means["pdadmm"]
        found["passed_by_epoch"] = next((epoch for epoch in epochs if ours[epoch] >= target), None)
        if "adam" in means:
            found["ahead_of_adam_by"] = {epoch: round(ours[epoch] - means["adam"][epoch], 4) for epoch in epochs}
    return found
