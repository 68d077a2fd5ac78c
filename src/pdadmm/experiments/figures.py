"""The figures, published curves dashed beside ours (needs the `plot` extra)."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pdadmm.experiments.published import DATA, METHODS, published
from pdadmm.history import Row

_PUBLISHED_AS = {"gd": "GD", "adadelta": "Adadelta", "adagrad": "Adagrad", "adam": "Adam", "dladmm": "dlADMM"}
_COLOURS = {
    "pdadmm": "tab:red",
    "authors": "tab:orange",
    "gd": "tab:gray",
    "adadelta": "tab:green",
    "adagrad": "tab:purple",
    "adam": "tab:blue",
    "dladmm": "tab:brown",
    "adam-128": "tab:cyan",
}
_DATA_COLOURS = dict(
    zip(DATA, ("tab:blue", "tab:orange", "tab:green", "tab:red", "tab:purple", "tab:brown"), strict=True)
)


def accuracy_figure(
    curves: Mapping[str, Mapping[str, Sequence[Mapping[int, Mapping[str, float]]]]], kind: str, names: Mapping[str, str]
) -> Figure:
    """A panel a data set: mean over seeds, and the paper's curves of the same methods."""
    figure = Figure(figsize=(14, 8), layout="constrained")
    panels = figure.subplots(2, 3, squeeze=False).ravel()
    colour_of = {_PUBLISHED_AS.get(method, "pdADMM"): colour for method, colour in _COLOURS.items()}
    colour_of |= {"pdADMM": _COLOURS["authors"], "Adam": _COLOURS["adam"]}
    for axes, data in zip(panels, DATA, strict=True):
        for method, found in curves.get(data, {}).items():
            epochs = sorted(set.intersection(*(set(curve) for curve in found)))
            means = [statistics.fmean(curve[epoch][kind] for curve in found) for epoch in epochs]
            axes.plot(epochs, means, color=_COLOURS[method], label=names[method])
        for method in METHODS:
            values = published(kind, data, method)
            style = {"color": colour_of[method], "linestyle": "--", "linewidth": 1, "alpha": 0.7}
            axes.plot(list(values), list(values.values()), label=f"published: {method}", **style)
        finish(axes, DATA[data], "epoch", kind.replace("_", " "))
    _legend_below(figure, ncols=5)
    return figure


def convergence_figure(histories: Mapping[tuple[str, str], Sequence[Row]]) -> Figure:
    """Both runs: objective with the published one dashed, residual; and of `theory` the certificate and k·c_k."""
    figure = Figure(figsize=(14, 8), layout="constrained")
    panels = figure.subplots(2, 3)
    for (data, run), history in histories.items():
        upper = panels[0 if run == "paper" else 1]
        style: dict[str, Any] = {"color": _DATA_COLOURS[data], "label": DATA[data]}
        _draw(upper[0], [(row["epoch"], math.log(row["objective"])) for row in history if row["objective"] > 0], style)
        _draw(upper[1], [(row["epoch"], row["residual"]) for row in history], style)
        upper[1].set_yscale("log")
        if run == "theory":
            _draw(panels[0][2], [(row["epoch"], row["drop"]) for row in history], style)
            bound = {"color": _DATA_COLOURS[data], "linestyle": ":"}
            _draw(panels[0][2], [(row["epoch"], row["certain_drop"]) for row in history], bound)
            _draw(panels[1][2], [(row["epoch"], row["epoch"] * row["c_k"]) for row in history if "c_k" in row], style)
    for data in dict.fromkeys(data for data, _ in histories):
        values = published("objective", data, "pdADMM")
        _draw(panels[0][0], list(values.items()), {"color": _DATA_COLOURS[data], "linestyle": "--"})
    finish(panels[0][0], "rho = nu, float32; dashed: published, as natural logarithms", "epoch", "ln L_rho")
    finish(panels[0][1], "rho = nu, float32: residual", "epoch", "|p - q|")
    finish(panels[0][2], "rho = 4.1 nu: the fall of L_rho; dotted: what it had to be", "epoch", "fall of L_rho")
    finish(panels[1][0], "rho = 4.1 nu, float64", "epoch", "ln L_rho")
    finish(panels[1][1], "rho = 4.1 nu, float64: residual", "epoch", "|p - q|")
    finish(panels[1][2], "rho = 4.1 nu: k·c_k, must go to 0", "epoch k", "k·c_k")
    panels[0][2].set_yscale("symlog", linthresh=1e-3)
    panels[1][2].set(xscale="log", yscale="log")
    _legend_below(figure, ncols=len(DATA))
    return figure


def _legend_below(figure: Figure, ncols: int) -> None:
    """One for all panels, where it hides no curve."""
    pairs = (zip(*axes.get_legend_handles_labels(), strict=True) for axes in figure.axes)
    handles = {label: handle for pair in pairs for handle, label in pair}
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=ncols, fontsize=8)


def _draw(axes: Axes, points: Sequence[tuple[int, float]], style: Mapping[str, Any]) -> None:
    if points:
        axes.plot(*zip(*points, strict=True), **style)


def finish(axes: Axes, title: str, x: str, y: str) -> None:
    """What all panels have."""
    axes.set_title(title, fontsize=10)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(alpha=0.3)
