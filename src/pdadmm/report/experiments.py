"""The outputs of `pdadmm reproduce`: tables, figures and what is wrong with the published numbers."""

from __future__ import annotations

import base64
import csv
import io
import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pdadmm.errors import DamageError
from pdadmm.report.runs import EXPERIMENT_FILE, read_bytes

_LARGEST_FIGURE = 4 * 2**20
_MOST_ROWS = 500
_KINDS = {"svg": "image/svg+xml", "png": "image/png"}


@dataclass
class TableFound:
    """A heading, which may be empty, and rows of texts; the first has the names of the columns."""

    heading: str
    rows: list[list[str]]


@dataclass
class Experiment:
    """One folder's outputs."""

    name: str
    title: str
    command: str
    defects: list[str]
    notes: list[str]
    tables: list[TableFound] = field(default_factory=list)
    figures: list[tuple[str, str]] = field(default_factory=list)
    """The name and the picture itself, as a data: address."""
    problems: list[str] = field(default_factory=list)


def read_experiment(folder: Path) -> Experiment:
    """What there is of it; what cannot be read is a problem of it."""
    path = folder / EXPERIMENT_FILE
    try:
        values = json.loads(read_bytes(path))
        if not isinstance(values, dict):
            raise ValueError("it is no object")
    except (OSError, ValueError, RecursionError, DamageError) as error:
        return Experiment(folder.name, folder.name, "", [], [], problems=[f"{path} cannot be read: {error}"])
    name = _text(values, "name") or folder.name
    found = Experiment(
        name, _text(values, "title") or name, _text(values, "command"), _list(values, "defects"), _list(values, "notes")
    )
    _read_tables(folder, found)
    for figure in _list(values, "figures") or ["figure"]:
        _read_figure(folder, figure, found)
    return found


def _text(values: dict[str, Any], name: str) -> str:
    return value if isinstance(value := values.get(name), str) else ""


def _list(values: dict[str, Any], name: str) -> list[str]:
    found = values.get(name)
    return [entry for entry in found if isinstance(entry, str)] if isinstance(found, list) else []


def _read_tables(folder: Path, found: Experiment) -> None:
    """Those for people, else the one for programs."""
    try:
        if (folder / "table.md").exists():
            found.tables = markdown_tables(read_bytes(folder / "table.md").decode(errors="replace"))
        if not found.tables and (folder / "table.csv").exists():
            text = read_bytes(folder / "table.csv").decode(errors="replace")
            found.tables = [TableFound("", list(csv.reader(io.StringIO(text))))]
    except (OSError, DamageError, csv.Error) as error:
        found.problems.append(f"a table of {folder} cannot be read: {error}")
    for table in found.tables:
        if len(table.rows) > _MOST_ROWS:
            found.problems.append(f"a table of {folder} is cut off after {_MOST_ROWS} rows of {len(table.rows)}")
            del table.rows[_MOST_ROWS:]


def markdown_tables(text: str) -> list[TableFound]:
    """The tables of a Markdown text with the headings before them."""
    found: list[TableFound] = []
    heading, inside = "", False
    for line in text.splitlines():
        if line.startswith("#"):
            heading = line.lstrip("# ").strip()
        if not line.startswith("|"):
            inside = False
            continue
        if not inside:
            found.append(TableFound(heading, []))
        inside = True
        cells = [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line.strip())[1:-1]]
        if not all(re.fullmatch(r":?-+:?", cell) for cell in cells):
            found[-1].rows.append(cells)
    return [table for table in found if table.rows]


def _read_figure(folder: Path, name: str, found: Experiment) -> None:
    """The drawing, else the picture; as an image, so that nothing in it can run or clash with the page."""
    if Path(name).name != name:
        found.problems.append(f"{folder / EXPERIMENT_FILE} names a figure outside of it: {name}")
        return
    for ending, kind in _KINDS.items():
        path = folder / f"{name}.{ending}"
        try:
            content = read_bytes(path)
        except (OSError, DamageError):
            continue
        if len(content) <= _LARGEST_FIGURE:
            found.figures.append((name, f"data:{kind};base64,{base64.b64encode(content).decode()}"))
            return
    found.problems.append(f"{folder} has no figure {name} of at most {_LARGEST_FIGURE} bytes")
