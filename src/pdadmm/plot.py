"""The plot of a run (needs the `plot` extra)."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pdadmm.history import Row
from pdadmm.rundir import write_whole


def plot_run(history: Sequence[Row], path: Path) -> None:
    """Objective, residual and scores by epoch; growth and hand-over as vertical lines."""
    figure = Figure(figsize=(12, 3.6), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    _curve(left, history, "objective", "objective")
    _curve(middle, history, "residual", "residual")
    left.set_yscale("symlog" if any(row["objective"] <= 0 for row in history) else "log")
    if all(row.get("residual", 1) > 0 for row in history):
        middle.set_yscale("log")
    for name in ("train_accuracy", "test_accuracy", "train_r2", "test_r2"):
        if name in history[-1]:
            _curve(right, history, name, name.replace("_", " "))
    right.set_ylim(top=1.01)
    right.legend(loc="lower right")
    right.set_title("the network, evaluated forward")
    for axes in (left, middle, right):
        axes.set_xlabel("epoch")
        axes.grid(alpha=0.3)
        for row in history:
            if row.get("grown"):
                _mark(axes, row, f"{row['layers'] - row['grown']} → {row['layers']} layers" if axes is left else "")
            if before := row.get("handed_over_from"):
                _mark(axes, row, f"{before} → {row.get('method', 'pdadmm')}" if axes is left else "")
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=120)
    write_whole(path, buffer.getvalue())


def _mark(axes: Axes, row: Row, label: str) -> None:
    axes.axvline(row["epoch"] - 0.5, color="grey", linewidth=1, linestyle=":")
    axes.text(row["epoch"], 0.98, f" {label}", transform=axes.get_xaxis_transform(), va="top", fontsize=7)


def _curve(axes: Axes, history: Sequence[Row], key: str, label: str) -> None:
    points = [(row["epoch"], row[key]) for row in history if key in row]
    if points:
        axes.plot(*zip(*points, strict=True), label=label, marker="." if len(points) < 30 else None)
    axes.set_title(label)
