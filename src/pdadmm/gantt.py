"""The figures of a simulation (they need the `plot` extra): the timeline of an iteration, and speedup curves."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from pdadmm.rundir import write_whole
from pdadmm.simulate import Simulation

_COLOURS = {"p": "#4477aa", "W": "#ee9944", "z": "#66aa66", "wait": "#dddddd", "gather": "#aa77bb", "share": "#f4f4f4"}
_NAMES = {
    "p": "p-phase",
    "W": "W-phase",
    "z": "z-phase",
    "wait": "waits for a message",
    "gather": "sums over shards",
    "share": "waits for the others' end",
}


def plot_timeline(found: Simulation, out: Path) -> None:
    """timeline.png and .svg: what each worker does in a steady iteration, and its link below it."""
    count = len(found.workers)
    figure = Figure(figsize=(12, min(40.0, 1.6 + 0.42 * count)), layout="constrained")
    axes = figure.subplots()
    for entry in found.entries():
        name = entry.step.action if entry.kind == "compute" and entry.step else entry.kind
        box = [(entry.start, entry.end - entry.start)]
        axes.broken_barh(box, (entry.stage - 0.36, 0.52), facecolors=_COLOURS[name])
        if entry.kind == "compute" and entry.step and entry.end - entry.start > 0.04 * found.epoch_seconds:
            middle = (entry.start + entry.end) / 2
            axes.text(middle, entry.stage - 0.1, f"{name}{entry.step.layer + 1}", ha="center", va="center", fontsize=7)
    begins = found.timeline.begins
    for part in found.timeline.transfers:
        if part.end > begins and part.end > part.start:
            start = max(part.start, begins) - begins
            axes.broken_barh([(start, part.end - begins - start)], (part.stage + 0.2, 0.14), facecolors="#222222")
    axes.set_yticks(range(count), [_label(found, stage) for stage in range(count)], fontsize=8)
    axes.set_ylim(count - 0.4, -0.6)
    axes.set_xlim(0, found.epoch_seconds)
    axes.set_xlabel("seconds of a steady iteration")
    axes.set_title(f"speedup {found.speedup:.2f} on {found.processes} workers; idle {found.idle_share:.0%}")
    shown = [Patch(facecolor=colour, label=_NAMES[name]) for name, colour in _COLOURS.items()]
    shown.append(Patch(facecolor="#222222", label="its link sends"))
    figure.legend(handles=shown, loc="outside lower center", ncols=len(shown), fontsize=8)
    _save(figure, out, "timeline")


def plot_speedup(swept: Sequence[Simulation], out: Path) -> None:
    """speedup.png and .svg: speedup and efficiency by the number of workers."""
    figure = Figure(figsize=(10, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    processes = [one.processes for one in swept]
    left.plot(processes, [one.speedup for one in swept], marker="o", label="simulated")
    free = [one.serial_seconds / one.ceiling_seconds for one in swept]
    left.plot(processes, free, linestyle="--", label="with links that cost nothing")
    left.plot(processes, processes, color="grey", linewidth=1, label="ideal")
    left.set_ylabel("speedup")
    right.plot(processes, [one.efficiency for one in swept], marker="o")
    right.set_ylim(0, 1.05)
    right.set_ylabel("efficiency")
    left.legend()
    for axes in (left, right):
        _workers_axis(axes, processes)
    _save(figure, out, "speedup")


def _workers_axis(axes: Axes, processes: Sequence[int]) -> None:
    axes.set_xlabel("workers")
    axes.grid(alpha=0.3)
    if max(processes) > 100:
        axes.set_xscale("log", base=2)


def _label(found: Simulation, stage: int) -> str:
    layers = found.workers[stage].layers
    return f"{stage + 1}: layer {layers[0]}" if len(layers) == 1 else f"{stage + 1}: layers {layers[0]}-{layers[-1]}"


def _save(figure: Figure, out: Path, name: str) -> None:
    for kind in ("png", "svg"):
        buffer = io.BytesIO()
        figure.savefig(buffer, format=kind, dpi=120)
        write_whole(out / f"{name}.{kind}", buffer.getvalue())
