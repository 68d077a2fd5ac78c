"""What the page draws of a run: curves, residuals of layers by epoch, times of workers; thinned to what can be seen."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from pdadmm import growth
from pdadmm.config import Config
from pdadmm.errors import UserError
from pdadmm.events import SPENT
from pdadmm.history import Row
from pdadmm.inspection import number_in
from pdadmm.notation import parse_names
from pdadmm.report.runs import FoundRun

POINTS = 400  # of a curve, more than its pixels
ALL_POINTS = 40_000  # of all curves of a kind, so that the page of many long runs stays small
COLUMNS = 160  # of a heat map or timeline
ALL_CELLS = 250_000
CURVES = {
    "objective": ("objective",),
    "residual": ("residual",),
    "train": ("train_accuracy", "train_r2"),
    "test": ("test_accuracy", "test_r2"),
    "stationarity": ("stationarity",),
    "ridge": ("ridge",),
    "layers": ("layers",),
    "drop": ("drop",),
    "certain_drop": ("certain_drop",),
    "paper_drop": ("paper_drop",),
    "c_k": ("c_k",),
}
"""The page's name of a curve, and the keys of the history that it comes from."""


def curves(run: FoundRun, num_runs: int) -> dict[str, Any]:
    """Every curve of a run over the same epochs; None where a row has no value."""
    kept = _thinned(run.rows, max(50, min(POINTS, ALL_POINTS // num_runs)))
    seconds, elapsed = 0.0, {}
    for row in run.rows:
        seconds += number_in(row, "seconds") or 0.0
        elapsed[row["epoch"]] = seconds
    found = {name: [_rounded(_first(row, keys)) for row in kept] for name, keys in CURVES.items()}
    return {
        "epoch": [row["epoch"] for row in kept],
        "seconds": [_rounded(elapsed[row["epoch"]]) for row in kept],
        "curves": {name: values for name, values in found.items() if any(value is not None for value in values)},
        "uncertified": uncertified(run.rows),
        "marks": _marks(run.rows),
        "thinned": len(run.rows) if len(kept) < len(run.rows) else 0,
    }


def uncertified(rows: Sequence[Row]) -> list[int]:
    """The epochs whose certificate failed."""
    return [row["epoch"] for row in rows if row.get("certified") is False]


def _first(row: Row, keys: Sequence[str]) -> float | None:
    return next((value for key in keys if (value := number_in(row, key)) is not None), None)


def _rounded(value: float | None) -> float | None:
    """As many digits as anyone reads."""
    return None if value is None else float(f"{value:.6g}")


def _thinned(rows: Sequence[Row], most: int) -> list[Row]:
    """Evenly, with the first and last row, and those that say more than their neighbours."""
    if len(rows) <= most:
        return list(rows)
    chosen = {round(i * (len(rows) - 1) / (most - 1)) for i in range(most)}
    special = ("grown", "handed_over_from", "stationarity")
    extra = [i for i, row in enumerate(rows) if any(key in row for key in special)]
    return [rows[i] for i in sorted(chosen.union(extra if len(extra) <= most else ()))]


def _marks(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Growth and hand-overs, where they happened."""
    marks = []
    for row in rows:
        layers, grown = number_in(row, "layers"), number_in(row, "grown")
        if grown and layers:
            marks.append({"epoch": row["epoch"], "text": f"{layers - grown:g} → {layers:g} layers"})
        if before := row.get("handed_over_from"):
            marks.append({"epoch": row["epoch"], "text": f"{before} → {row.get('method', 'pdadmm')}"})
    return marks


def heat_map(run: FoundRun, num_runs: int) -> dict[str, Any] | None:
    """Residuals by boundary and epoch: one row a hidden layer, None before the layer exists."""
    rows = [row for row in run.rows if _is_numbers(row.get("residuals"))]
    depth = max((len(row["residuals"]) for row in rows), default=0)
    if not depth:
        return None
    kept = _thinned(rows, max(20, min(COLUMNS, ALL_CELLS // (num_runs * depth))))
    places, width = _places(run.config, kept) or ({}, depth)
    table: list[list[float | None]] = [[None] * len(kept) for _ in range(width)]
    for column, row in enumerate(kept):
        layers = places.get(len(row["residuals"]), range(width))
        for layer, value in zip(layers, row["residuals"], strict=False):
            table[layer][column] = _rounded(float(value))
    return {"epoch": [row["epoch"] for row in kept], "values": table, "placed": bool(places)}


def _places(config: Config | None, rows: Sequence[Row]) -> tuple[dict[int, Sequence[int]], int] | None:
    """Which layers exist when there are so many of them; None where that cannot be told."""
    if config is None or config.grow is None:
        return None
    try:
        schedule = growth.parse_schedule(config.grow, len(config.hidden), config.epochs)
    except UserError:
        return None  # the run was resumed with other epochs
    kinds = list(zip(config.hidden, parse_names(config.activation, len(config.hidden)), strict=True))
    found: dict[int, Sequence[int]] = {len(s.layers): s.layers for s in growth.stages(kinds, schedule)}
    found[len(config.hidden)] = range(len(config.hidden))
    if any(len(row["residuals"]) not in found for row in rows):
        return None
    return found, len(config.hidden)


def timeline(run: FoundRun, num_runs: int) -> dict[str, Any] | None:
    """Seconds of compute, wait and send by process and by run of epochs; None of a single process."""
    rows = [row for row in run.rows if _is_times(row.get("workers"))]
    processes = max((len(row["workers"]) for row in rows), default=0)
    rows = [row for row in rows if len(row["workers"]) == processes]
    if processes < 2:
        return None
    columns = max(20, min(COLUMNS, ALL_CELLS // (num_runs * processes * 3)))
    size = math.ceil(len(rows) / columns)
    parts = [rows[start : start + size] for start in range(0, len(rows), size)]
    times = [
        [[_rounded(sum(row["workers"][p][k] for row in part)) for k in range(len(SPENT))] for part in parts]
        for p in range(processes)
    ]
    return {"epoch": [[part[0]["epoch"], part[-1]["epoch"]] for part in parts], "times": times}


def _is_times(value: Any) -> bool:
    return isinstance(value, list) and all(_is_numbers(entry) and len(entry) == len(SPENT) for entry in value)


def _is_numbers(value: Any) -> bool:
    return isinstance(value, list) and all(
        type(entry) in (int, float) and math.isfinite(entry) and abs(entry) < 1e300 for entry in value
    )
