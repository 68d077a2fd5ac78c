"""Accuracies by epoch, as they are kept: one small file for each run, `DATA-METHOD-SEED.csv`."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from pdadmm.errors import UserError
from pdadmm.experiments.results import Table
from pdadmm.history import Row
from pdadmm.rundir import make_directory, write_whole

COLUMNS = ("epoch", "train_accuracy", "test_accuracy", "seconds")
Curve = dict[int, dict[str, float]]
"""By epoch: the columns of a file."""


def write_curve(history: Iterable[Row], path: Path) -> None:
    """Keep the epochs of a run that were evaluated; seconds are of training, added up."""
    seconds, rows = 0.0, []
    for row in history:
        seconds += row["seconds"]
        if "test_accuracy" in row:
            rows.append((row["epoch"], row["train_accuracy"], row["test_accuracy"], round(seconds, 2)))
    make_directory(path.parent)
    write_whole(path, Table(COLUMNS, rows).csv().encode())


def read_curve(path: Path) -> Curve:
    """A curve that was kept."""
    try:
        with path.open(encoding="utf-8") as file:
            rows = [{key: float(value) for key, value in row.items()} for row in csv.DictReader(file)]
        return {int(row["epoch"]): {name: row[name] for name in COLUMNS} for row in rows}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} must be a table of {', '.join(COLUMNS)}: {error}") from None


def read_curves(folder: Path, data: str, methods: Sequence[str]) -> dict[str, list[Curve]]:
    """All curves of a data set, by method in this order, one a seed."""
    found: dict[str, list[Curve]] = defaultdict(list)
    for method in methods:
        for path in sorted(folder.glob(f"{data}-{method}-*.csv")):
            if path.stem.removeprefix(f"{data}-{method}-").isdigit():  # adam-128 is not a seed of adam
                found[method].append(read_curve(path))
    return dict(found)
