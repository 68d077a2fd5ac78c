"""The charts of runs, defined once for the report, `plot.png` and notebooks (they need the `report` extra).

A chart names its data instead of holding it: `runs` (what `columns` makes of histories) and, where there are any,
`marks`. So the report can hold the data of many charts once; `with_data` puts chart and data together.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import altair as alt
import vl_convert  # noqa: F401 - Altair needs it for pictures, and would notice too late

from pdadmm.events import SPENT
from pdadmm.history import Row
from pdadmm.rundir import write_whole

SCORES = ("test_accuracy", "train_accuracy", "test_r2", "train_r2")
CERTIFICATE = ("drop", "certain_drop", "paper_drop", "c_k")
PANELS: dict[str, tuple[str, ...]] = {
    "Objective": ("objective",),
    "Residual": ("residual",),
    "Score": SCORES,
    "Stationarity": ("stationarity",),
    "Ridge": ("ridge",),
    "Hidden layers": ("layers",),
}
"""The title of each panel and the keys of the history that it shows."""
LINEAR = {"Score", "Hidden layers"}
COLOURS = ("#2f7fc4", "#d1651a", "#1f9068", "#b85a9b", "#a37a1c", "#7a68bd", "#c2514f", "#5a8296", "#6f8a2b", "#8f6f5e")
"""Each can be told from white paper and from black."""
POINTS = 400  # of a curve, more than its pixels
CELLS = 160  # columns of a heat map or timeline
COMPARED = 12  # series whose values are shown together under the cursor


def columns(rows: Sequence[Row], label: str = "this run", colour: int = 0, most: int = POINTS) -> dict[str, Any]:
    """One run as the charts take it: a list for each key, over not more than about `most` of its epochs."""
    kept = thinned(rows, most, ("grown", "handed_over_from", "stationarity"))
    elapsed, total = {}, 0.0
    for row in rows:
        total += _number(row.get("seconds")) or 0.0
        elapsed[row["epoch"]] = total
    run: dict[str, Any] = {"label": label, "colour": COLOURS[colour % len(COLOURS)]}
    run |= {"epoch": [row["epoch"] for row in kept], "seconds": [_number(elapsed[row["epoch"]]) for row in kept]}
    for key in {key for keys in PANELS.values() for key in keys}.union(CERTIFICATE):
        values = [_number(row.get(key)) for row in kept]
        run[key] = values if any(value is not None for value in values) else []
    return run


def marks(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Where a run grew and where a method took over."""
    found = []
    for row in rows:
        layers, grown = _number(row.get("layers")), _number(row.get("grown"))
        if layers and grown:
            found.append({"epoch": row["epoch"], "text": f"{layers - grown:g} → {layers:g} layers"})
        if before := row.get("handed_over_from"):
            found.append({"epoch": row["epoch"], "text": f"{before} → {row.get('method', 'pdadmm')}"})
    return found


def curves(
    runs: Sequence[dict[str, Any]], title: str, keys: Sequence[str], by: str = "epoch", switchable: bool = False
) -> alt.LayerChart:
    """Curves by epoch or by seconds: of runs with one label their mean and range.

    The parameter `hidden` of a switchable chart lists the labels that are not drawn.
    """
    keys = [key for key in keys if any(run[key] for run in runs)]
    labels = list(dict.fromkeys(run["label"] for run in runs))
    together, one = by == "epoch", len(labels) == 1
    base = (
        alt.Chart(alt.NamedData("runs"))
        .transform_flatten(["epoch", "seconds", *keys])
        .transform_fold([*keys], as_=["key", "value"])
        .transform_calculate(part="join(split(datum.key, '_'), ' ')")
        .transform_calculate(series="datum.part" if one else "datum.label" if len(keys) == 1 else _BOTH)
        .transform_filter("isValid(datum.value)" + (" && indexof(hidden, datum.label) < 0" if switchable else ""))
    )
    x = alt.X(f"{by}:Q").title(by).scale(nice=False, zero=not together)
    y = alt.Y("mean(value):Q" if together else "value:Q").title(None).scale(_scale(runs, keys, title in LINEAR))
    parts = [key.replace("_", " ") for key in keys]
    colour = alt.Color("colour:N").scale(None)
    if one:
        scale = alt.Scale(domain=parts, range=list(COLOURS[: len(parts)]))
        legend = alt.Legend(orient="top", title=None) if len(parts) > 1 else None
        colour = alt.Color("part:N").scale(scale).legend(legend)
    faint = alt.Opacity("part:N").scale(domain=parts, range=[1.0, *[0.45] * (len(parts) - 1)]).legend(None)
    opacity: Any = alt.value(1) if one or len(parts) == 1 else faint
    detail = ["label:N", "part:N", *([] if together else ["run:N"])]
    lines = base.mark_line(strokeWidth=2).encode(x, y, colour, opacity=opacity, detail=detail)
    layers: list[Any] = [lines.add_params(alt.param(name="hidden", value=[])) if switchable else lines]
    if together and len(labels) < len(runs):
        band = base.mark_area(opacity=0.18).encode(x, alt.Y("min(value):Q"), alt.Y2("max(value):Q"), colour)
        layers.append(band.encode(detail=detail))
    names = parts if one else labels if len(parts) == 1 else [f"{label}, {part}" for label in labels for part in parts]
    name = "near" + "".join(letter for letter in title if letter.isascii() and letter.isalnum())
    layers += _cursor(base, x, y, colour, name, names if together and len(names) <= COMPARED else [])
    if together:
        ruled = alt.Chart(alt.NamedData("marks")).encode(alt.X("epoch:Q"), tooltip=["epoch:Q", "text:N"])
        layers.append(ruled.mark_rule(strokeDash=[2, 3], opacity=0.6, color="gray"))
        if one:
            layers.append(
                ruled.mark_text(align="left", dx=4, fontSize=10, color="gray").encode(y=alt.value(8), text="text:N")
            )
    return alt.LayerChart(layer=layers, title=title, height=210)


_BOTH = "datum.label + ', ' + datum.part"


def _cursor(
    base: alt.Chart, x: alt.X, y: alt.Y, colour: alt.Color, param: str, names: Sequence[str]
) -> list[alt.Chart]:
    """The values under the cursor: of all series of these names at the nearest epoch, else of the nearest point."""
    dots = base.mark_point(filled=True, size=55, opacity=1).encode(x, y, colour)
    near = alt.selection_point(
        param,
        nearest=True,
        on="pointerover",
        clear="pointerout",
        empty=False,
        encodings=["x"] if names else ["x", "y"],
    )
    if not names:
        told = ["series:N", "run:N", "epoch:Q", "seconds:Q", alt.Tooltip("value:Q", format=".5g")]
        dots = base.mark_point(filled=True, size=55).encode(x, alt.Y("value:Q"), colour, tooltip=told)
        return [dots.encode(opacity=alt.condition(near, alt.value(1), alt.value(0))).add_params(near)]
    # One object of names and values; a run that has no such epoch is left out of it.
    values = [f"datum[{n}] != null ? {{{n}: format(datum[{n}], '.5g')}} : {{}}" for n in map(json.dumps, names)]
    told_all = alt.expr(f"merge({{'title': 'epoch ' + datum.epoch}}, {', '.join(values)})")
    rule = (
        base.transform_pivot("series", value="value", groupby=["epoch"], op="mean")
        .mark_rule(color="gray")
        .encode(x, opacity=alt.condition(near, alt.value(0.6), alt.value(0)), tooltip=alt.value(told_all))
    )
    return [rule.add_params(near), dots.transform_filter(near)]


def _scale(runs: Sequence[dict[str, Any]], keys: Sequence[str], is_linear: bool) -> alt.Scale:
    """Logarithmic; where some values are not positive, nearly so."""
    values = [abs(value) for run in runs for key in keys for value in run[key] if value]
    if is_linear or not values:
        return alt.Scale(zero=False)
    if all(value is None or value > 0 for run in runs for key in keys for value in run[key]):
        return alt.Scale(type="log", nice=False)
    return alt.Scale(type="symlog", constant=max(min(values), 1e-6 * max(values)))


def heat_map(rows: Sequence[Row], most: int = CELLS) -> list[dict[str, Any]]:
    """The data of `HEAT_MAP`: residuals of every boundary by epoch."""
    rows = [row for row in rows if _are_numbers(row.get("residuals"))]
    kept = thinned(rows, most)
    ends = [row["epoch"] for row in kept[1:]] + [row["epoch"] + 1 for row in rows[-1:]]
    found = []
    for layer in range(max((len(row["residuals"]) for row in kept), default=0)):
        there = [(row, end) for row, end in zip(kept, ends, strict=True) if layer < len(row["residuals"])]
        values = {"residual": [_number(row["residuals"][layer]) for row, _ in there]}
        found.append(
            {"layer": layer + 1, "epoch": [r["epoch"] for r, _ in there], "end": [e for _, e in there], **values}
        )
    return found


HEAT_MAP = (
    alt.Chart(alt.NamedData("cells"))
    .transform_flatten(["epoch", "end", "residual"])
    .mark_rect(clip=True)
    .encode(
        alt.X("epoch:Q").scale(nice=False, zero=False).title("epoch"),
        alt.X2("end:Q"),
        alt.Y("layer:O").title("hidden layer"),
        alt.Color("residual:Q").scale(type="log", scheme="viridis", nice=False).legend(title=None, format=".1e"),
        tooltip=["epoch:Q", "layer:O", alt.Tooltip("residual:Q", format=".5g")],
    )
)


def timeline(rows: Sequence[Row], most: int = CELLS) -> list[dict[str, Any]]:
    """The data of `TIMELINE`: seconds of every process by epoch, those of neighbouring epochs added up."""
    rows = [row for row in rows if isinstance(row.get("workers"), list) and all(map(_are_times, row["workers"]))]
    num_workers = len(rows[-1]["workers"]) if rows else 0
    rows = [row for row in rows if len(row["workers"]) == num_workers]
    size = math.ceil(len(rows) / most) or 1
    parts = [[row for _, row in group] for _, group in groupby(enumerate(rows), lambda entry: entry[0] // size)]
    spans = {"epoch": [part[0]["epoch"] for part in parts], "end": [part[-1]["epoch"] + 1 for part in parts]}
    return [
        {"worker": w + 1, **spans}
        | {name: [_number(sum(row["workers"][w][k] for row in part)) for part in parts] for k, name in enumerate(SPENT)}
        for w in range(num_workers)
    ]


TIMELINE = (
    alt.Chart(alt.NamedData("cells"))
    .transform_flatten(["epoch", "end", *SPENT])
    .transform_calculate(all="datum.compute + datum.wait + datum.send")
    .transform_joinaggregate(longest="max(all)")
    .transform_fold([*SPENT], as_=["what", "time"])
    .transform_stack(stack="time", as_=["low", "high"], groupby=["worker", "epoch"])
    .transform_calculate(
        bottom="datum.worker + 0.4 - 0.8 * datum.low / datum.longest",
        top="datum.worker + 0.4 - 0.8 * datum.high / datum.longest",
    )
    .mark_rect()
    .encode(
        alt.X("epoch:Q").scale(nice=False, zero=False).title("epoch"),
        alt.X2("end:Q"),
        alt.Y("bottom:Q").scale(reverse=True, zero=False).axis(tickMinStep=1, format="d", grid=False).title("worker"),
        alt.Y2("top:Q"),
        alt.Color("what:N")
        .scale(domain=list(SPENT), range=[COLOURS[0], "#9aa3ad", COLOURS[1]])
        .legend(orient="top", title=None),
        tooltip=[
            "worker:O",
            "epoch:Q",
            *(alt.Tooltip(f"{name}:Q", format=".4g", title=f"{name}, s") for name in SPENT),
        ],
    )
)


def with_data(chart: Any, **datasets: Sequence[dict[str, Any]]) -> Any:
    """The chart together with the data it names, as notebooks and pictures need it."""
    return chart.properties(datasets={name: list(rows) for name, rows in datasets.items()})


def run_chart(rows: Sequence[Row]) -> Any:
    """Objective, residual and scores of a run by epoch: what `plot.png` shows, and what a notebook can display."""
    run = columns(rows)
    panels = [
        curves([run], title, PANELS[title]).properties(width=330)
        for title in ("Objective", "Residual", "Score")
        if any(run[key] for key in PANELS[title])
    ]
    chart = alt.hconcat(*panels).resolve_scale(color="independent")
    return with_data(chart, runs=[run], marks=marks(rows))


def plot_run(rows: Sequence[Row], path: Path) -> None:
    """Draw a run into a PNG file."""
    buffer = io.BytesIO()
    run_chart(rows).save(buffer, format="png", scale_factor=1.5)
    write_whole(path, buffer.getvalue())


def thinned(rows: Sequence[Row], most: int, special: Sequence[str] = ()) -> list[Row]:
    """Evenly, with the last row, and with those that say more than their neighbours if these are few."""
    step = math.ceil(len(rows) / most) or 1
    extra = {i for i, row in enumerate(rows) if any(key in row for key in special)}
    extra = extra if len(extra) <= most else set()
    return [row for i, row in enumerate(rows) if i % step == 0 or i == len(rows) - 1 or i in extra]


def _number(value: Any) -> float | None:
    """With as many digits as anyone reads; None of what is no number, or none that can be drawn."""
    usable = type(value) in (int, float) and math.isfinite(value) and abs(value) < 1e300
    return float(f"{value:.6g}") if usable else None


def _are_numbers(values: Any) -> bool:
    return isinstance(values, list) and all(_number(value) is not None for value in values)


def _are_times(values: Any) -> bool:
    return _are_numbers(values) and len(values) == len(SPENT)
