"""The figure of a speedup experiment: published, measured and simulated, each told apart (needs the `plot` extra)."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from pdadmm.experiments.figures import finish
from pdadmm.experiments.published import DATA, published
from pdadmm.experiments.speedup_tables import LINKS, Found

_COLOURS = dict(zip(LINKS, ("tab:gray", "tab:green", "tab:blue", "tab:red"), strict=True))
_STYLES = {"exact": "-", "linearized": "-."}


def speedup_figure(figure: str, found: Sequence[Found]) -> Figure:
    """A panel a data set: simulated lines by link and solver, measured points, the published curve dashed."""
    drawing = Figure(figsize=(14, 8), layout="constrained")
    panels = drawing.subplots(2, 3).ravel()
    for axes, data in zip(panels, (name for name in DATA if name != "svhn"), strict=False):
        for solver, style in _STYLES.items():
            own = [one for one in found if (one.network.data, one.network.solver) == (data, solver)]
            for link, colour in _COLOURS.items():
                points = [(one.network.x, one.simulated[link][0]) for one in own]
                if points:
                    label = f"simulated, a worker a layer, {link}, {solver}"
                    axes.plot(*zip(*points, strict=True), color=colour, linestyle=style, label=label)
            timed = [(one.network.x, one.measured_speedup) for one in own if one.measured_speedup is not None]
            if timed:
                marker = "o" if solver == "exact" else "x"
                label = f"measured, 2 workers, {solver}"
                axes.plot(*zip(*timed, strict=True), color="black", marker=marker, linestyle="", label=label)
        values = published(figure, data, "speedup")
        axes.plot(list(values), list(values.values()), "k--", marker=".", label="published, about 20 machines")
        axes.set_ylim(bottom=0)
        finish(axes, DATA[data], figure.removeprefix("speedup_"), "speedup")
    panels[-1].axis("off")
    handles = {name: h for axes in panels for h, name in zip(*axes.get_legend_handles_labels(), strict=True)}
    panels[-1].legend(handles.values(), handles.keys(), loc="center", fontsize=8)
    return drawing
