"""What an experiment came to, written the same way by all: table.csv, table.md, figures, experiment.json."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pdadmm.errors import UserError
from pdadmm.rundir import make_directory, write_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TABLE_CSV, TABLE_MD, EXPERIMENT = "table.csv", "table.md", "experiment.json"
FIGURE = "figure"
Cell = str | int | float | None


@dataclass(frozen=True)
class Table:
    """Columns and rows; None is an empty cell."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]

    def markdown(self) -> str:
        """For people."""
        lines = ["| " + " | ".join(self.columns) + " |", "|---" * len(self.columns) + "|"]
        lines += ["| " + " | ".join(_shown(cell) for cell in row) + " |" for row in self.rows]
        return "\n".join(lines) + "\n"

    def csv(self) -> str:
        """For programs."""
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows(self.rows)
        return buffer.getvalue()


@dataclass
class Results:
    """All that an experiment has to say."""

    name: str
    title: str
    scale: str
    command: str
    defects: list[str]
    """What is wrong with the published values beside ours."""
    notes: list[str]
    """What was run, what was scaled down, what is missing."""
    table: Table
    """One row a number, for programs."""
    tables: dict[str, Table]
    """For people, each under its heading."""
    numbers: dict[str, Any]
    figures: dict[str, Figure] = field(default_factory=dict)
    """By file name without ending; `figure` is the first."""

    def markdown(self) -> str:
        """table.md."""
        parts = [f"# {self.title}\n", f"Scale: {self.scale}. Made by `{self.command}`.\n"]
        parts += ["".join(f"- {note}\n" for note in self.notes)] if self.notes else []
        parts += [f"## {heading}\n\n{table.markdown()}" for heading, table in self.tables.items()]
        parts.append("## What is wrong with the published numbers\n\n" + "".join(f"- {d}\n" for d in self.defects))
        return "\n".join(parts)

    def mapping(self) -> dict[str, Any]:
        """experiment.json."""
        head = {"name": self.name, "title": self.title, "scale": self.scale, "command": self.command}
        return {**head, "defects": self.defects, "notes": self.notes, "figures": list(self.figures), **self.numbers}

    def write(self, folder: Path) -> None:
        """Put all files into the folder, each whole or not at all."""
        make_directory(folder)
        write_whole(folder / TABLE_CSV, self.table.csv().encode())
        write_whole(folder / TABLE_MD, self.markdown().encode())
        for name, figure in self.figures.items():
            figure.suptitle(f"{self.title}; scale: {self.scale}; dashed: published, at full size", fontsize=11)
            for ending in ("png", "svg"):
                buffer = io.BytesIO()
                figure.savefig(buffer, format=ending, dpi=120)
                write_whole(folder / f"{name}.{ending}", buffer.getvalue())
        text = json.dumps(self.mapping(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        write_whole(folder / EXPERIMENT, text.encode())


def require_plot() -> None:
    """Figures need an extra; say so before any work."""
    if find_spec("matplotlib") is None:
        raise UserError("reproduce draws figures, which need matplotlib: pip install 'pdadmm[plot]'")


def mean_and_spread(values: Sequence[float]) -> str:
    """The mean and, of several, half their range."""
    mean = f"{sum(values) / len(values):.4f}"
    return mean if len(values) == 1 else f"{mean} ± {(max(values) - min(values)) / 2:.4f}"


def at(curve: Mapping[int, float], x: int, form: str = ".4f") -> str | None:
    """A value of a curve as text, or an empty cell."""
    return format(curve[x], form) if x in curve else None


def _shown(cell: Cell) -> str:
    return "" if cell is None else format(cell, ".4g") if isinstance(cell, float) else str(cell)
