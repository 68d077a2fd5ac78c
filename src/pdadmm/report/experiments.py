"""The results of `pdadmm reproduce`, as its result.json has them."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pdadmm.errors import DamageError
from pdadmm.report.runs import EXPERIMENT_FILE, Table, named, printable, read_bytes

_MOST_ROWS = 500


@dataclass
class Experiment:
    """One folder's results; what cannot be read is a problem of it."""

    name: str
    title: str
    notes: list[str] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    figures: list[dict[str, Any]] = field(default_factory=list)
    """Title, names of the axes and series, as they were found."""
    problems: list[str] = field(default_factory=list)


def read_experiment(folder: Path) -> Experiment:
    """What there is of it."""
    path, found = folder / EXPERIMENT_FILE, Experiment(folder.name, folder.name)
    try:
        values = json.loads(read_bytes(path))
        found.name, found.title = printable(values["experiment"]), printable(values["title"])
        found.notes = [printable(note) for note in values["notes"]]
        for entry in values["tables"]:
            rows = [[_cell(value) for value in row] for row in entry["rows"][:_MOST_ROWS]]
            found.tables.append(Table(printable(entry["title"]), [printable(name) for name in entry["columns"]], rows))
            if len(entry["rows"]) > _MOST_ROWS:
                found.problems.append(f"a table of {path} is cut off after {_MOST_ROWS} of its rows")
        found.figures = [_figure(entry) for entry in values["figures"]]
    except (OSError, ValueError, KeyError, TypeError, RecursionError, DamageError) as error:
        found.problems.append(named(path, error))
    return found


def _figure(entry: dict[str, Any]) -> dict[str, Any]:
    """Its series must be numbers; the rest is text."""
    series = [
        {"name": printable(one["name"]), "x": list(map(_coordinate, one["x"])), "y": list(map(_coordinate, one["y"]))}
        for one in entry["series"]
    ]
    return {name: printable(entry[name]) for name in ("title", "x", "y")} | {"series": series}


def _coordinate(value: Any) -> float | None:
    return float(value) if value is not None and math.isfinite(value) else None


def _cell(value: Any) -> str | float | None:
    return value if value is None or type(value) in (int, float) else printable(value)
