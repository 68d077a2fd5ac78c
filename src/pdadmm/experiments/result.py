"""What an experiment came to: one object, written as `result.json` for programs and as `table.md` for people."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pdadmm.rundir import make_directory, write_whole

RESULT_FILE, TABLE_FILE = "result.json", "table.md"
Cell = str | int | float | None
"""None is an empty cell."""


@dataclass(frozen=True)
class Table:
    """Columns and rows under a title."""

    title: str
    columns: list[str]
    rows: list[list[Cell]]


@dataclass(frozen=True)
class Series:
    """A curve of a figure."""

    name: str
    x: list[float]
    y: list[float]


@dataclass(frozen=True)
class Figure:
    """Curves over a common axis; `x` and `y` say what the axes are."""

    title: str
    x: str
    y: str
    series: list[Series]


@dataclass(frozen=True)
class Result:
    """All that an experiment has to say; `pdadmm report` draws its figures."""

    experiment: str
    title: str
    notes: list[str]
    """What was run, what is missing, and what is wrong with the published values."""
    tables: list[Table]
    figures: list[Figure]

    def write(self, folder: Path) -> None:
        """Put both files into the folder, each whole or not at all."""
        make_directory(folder)
        text = json.dumps(dataclasses.asdict(self), indent=1, ensure_ascii=False, allow_nan=False)
        write_whole(folder / RESULT_FILE, f"{text}\n".encode())
        write_whole(folder / TABLE_FILE, markdown(self).encode())


def markdown(result: Result) -> str:
    """The notes and tables as a Markdown text."""
    lines = [f"# {result.title}", "", *(f"- {note}" for note in result.notes)]
    for table in result.tables:
        lines += [
            "",
            f"## {table.title}",
            "",
            "| " + " | ".join(table.columns) + " |",
            "|---" * len(table.columns) + "|",
        ]
        lines += ["| " + " | ".join(_shown(cell) for cell in row) + " |" for row in table.rows]
    return "\n".join(lines) + "\n"


def _shown(cell: Cell) -> str:
    return "" if cell is None else format(cell, ".4g") if isinstance(cell, float) else str(cell)


def series(name: str, curve: Mapping[int, float] | Sequence[tuple[int, float]]) -> Series:
    """A series of a curve's points."""
    points = sorted(dict(curve).items())
    return Series(name, [x for x, _ in points], [y for _, y in points])


def at(curve: Mapping[int, float], x: int, form: str = ".4f") -> str | None:
    """A value of a curve as text, or an empty cell."""
    return format(curve[x], form) if x in curve else None
