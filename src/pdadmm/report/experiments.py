"""The results of `pdadmm reproduce`, read back from their files."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pdadmm.errors import DamageError
from pdadmm.experiments.result import RESULT_FILE, Cell, Figure, Result, Series, Table
from pdadmm.report.runs import named, read_bytes
from pdadmm.shell import printable


@dataclass
class Experiment:
    """One folder's result; what cannot be read is a problem of it."""

    result: Result
    problems: list[str] = field(default_factory=list)


def read_experiment(folder: Path) -> Experiment:
    """What there is of it."""
    path = folder / RESULT_FILE
    try:
        values = json.loads(read_bytes(path))
        tables = [
            Table(_text(entry["title"]), [*map(_text, entry["columns"])], [[*map(_cell, r)] for r in entry["rows"]])
            for entry in values["tables"]
        ]
        head = [_text(values[name]) for name in ("experiment", "title")]
        figures = [_figure(entry) for entry in values["figures"]]
        return Experiment(Result(head[0], head[1], [*map(_text, values["notes"])], tables, figures))
    except (OSError, ValueError, KeyError, TypeError, RecursionError, DamageError) as error:
        name = printable(folder.name)
        return Experiment(Result(name, name, [], [], []), [named(path, error)])


def _figure(entry: dict[str, Any]) -> Figure:
    """The values of its series must be numbers; the rest is text."""
    curves = [(_text(one["name"]), [*map(float, one["x"])], [*map(float, one["y"])]) for one in entry["series"]]
    title, x, y = (_text(entry[name]) for name in ("title", "x", "y"))
    return Figure(title, x, y, [Series(*curve) for curve in curves])


def _cell(value: Any) -> Cell:
    return value if value is None or type(value) in (int, float) else _text(value)


def _text(value: object) -> str:
    return printable(str(value))
