"""The charts of runs, defined once for the report, `plot.png` and notebooks (they need the `report` extra).

A chart names its data instead of holding it: `runs` (what `columns` makes of histories) and, where there are any,
`marks`. So the report can hold the data of many charts once; `with_data` puts chart and data together.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
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
CURVES = tuple(key for keys in PANELS.values() for key in keys)
LINEAR = {"Score", "Hidden layers"}
COLOURS = ("#2f7fc4", "#d1651a", "#1f9068", "#b85a9b", "#a37a1c", "#7a68bd", "#c2514f", "#5a8296", "#6f8a2b", "#8f6f5e")
"""Each can be told from white paper and from black."""
POINTS = 400  # of a curve, more than its pixels
CONFIG: dict[str, Any] = {
    "background": "transparent",
    "font": "system-ui, -apple-system, Segoe UI, Roboto, DejaVu Sans, sans-serif",
    "view": {"stroke": None},
    "axis": {
        "gridOpacity": 0.13,
        "domainOpacity": 0.4,
        "tickOpacity": 0.4,
        "titleFontWeight": "normal",
        "labelOverlap": True,
    }
    | dict.fromkeys(("labelColor", "titleColor", "gridColor", "domainColor", "tickColor"), "currentColor"),
    "title": {"color": "currentColor", "anchor": "start", "fontSize": 13, "fontWeight": 600},
    "legend": {"labelColor": "currentColor", "titleColor": "currentColor"},
}
"""Text and lines have the colour of the text around, so that a page may be dark."""
CELLS = 160  # columns of a heat map or timeline
COMPARED = 12  # series whose values are shown together under the cursor


def columns(
    rows: Sequence[Row], keys: Iterable[str], label: str = "this run", colour: int = 0, most: int = POINTS
) -> dict[str, Any]:
    """One run as the charts take it: a list for each key, over not more than about `most` of its epochs."""
    kept = thinned(rows, most, ("grown", "handed_over_from", "stationarity"))
    elapsed, total = {}, 0.0
    for row in rows:
        total += _number(row.get("seconds")) or 0.0
        elapsed[row["epoch"]] = total
    run: dict[str, Any] = {"label": label, "colour": COLOURS[colour % len(COLOURS)]}
    run |= {"epoch": [row["epoch"] for row in kept], "seconds": [_number(elapsed[row["epoch"]]) for row in kept]}
    for key in keys:
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
    keys = tuple(key for key in keys if any(run[key] for run in runs))
    labels = tuple(dict.fromkeys(run["label"] for run in runs))
    scale = _LINEAR if title in LINEAR else _scale([v for run in runs for key in keys for v in run[key]])
    return _curves(title, (by, None), keys, by, labels, len(labels) < len(runs), scale, switchable, False)


def figure(
    title: str, x: str, y: str, series: Mapping[str, tuple[Sequence[float], Sequence[float]]]
) -> tuple[alt.LayerChart, list[dict[str, Any]]]:
    """A figure of an experiment, whose series have names; and the data `runs` of the chart."""
    runs = [{"label": n, "run": n, "epoch": xs, "seconds": [], "value": ys} for n, (xs, ys) in series.items()]
    values = [value for _, ys in series.values() for value in ys]
    is_wide = bool(values) and 0 < _WIDE * min(values) < max(values)
    scale = _scale(values) if is_wide else _LINEAR
    return _curves(title, (x, y), ("value",), "epoch", tuple(series), False, scale, False, True), runs


_WIDE = 100.0  # the ratio of values from which a figure's scale is logarithmic


@lru_cache
def _curves(
    title: str,
    axes: tuple[str, str | None],
    keys: tuple[str, ...],
    by: str,
    labels: tuple[str, ...],
    several: bool,
    scale: _Scale,
    switchable: bool,
    has_legend: bool,
) -> alt.LayerChart:
    """Curves of any data: charts that differ in nothing else are the same object."""
    together, one = by == "epoch", len(labels) == 1 and not has_legend
    parts = [key.replace("_", " ") for key in keys]
    base = (
        alt.Chart(alt.NamedData("runs"))
        .transform_flatten(["epoch", "seconds", *keys])
        .transform_fold([*keys], as_=["key", "of"])
        .transform_calculate(part="join(split(datum.key, '_'), ' ')")
        .transform_calculate(series="datum.part" if one else "datum.label" if len(keys) == 1 else _BOTH)
        .transform_filter("isValid(datum.of)" + (" && indexof(hidden, datum.label) < 0" if switchable else ""))
    )
    x = alt.X(f"{by}:Q").title(axes[0]).scale(nice=False, zero=not together)
    kind, constant, ticks = scale
    y = alt.Y("mean(of):Q" if together else "of:Q").title(axes[1])
    if kind == "symlog":
        y = y.scale(type="symlog", nice=False, constant=constant).axis(values=list(ticks))
    else:
        y = y.scale(type="log", nice=False) if kind == "log" else y.scale(zero=False)
    colour: alt.Color = alt.Color("colour:N").scale(None)
    detail = ["label:N", "part:N", *([] if together else ["run:N"])]
    line = base.mark_line(strokeWidth=2, point={"size": 14} if has_legend else False).encode(x, y, detail=detail)
    if one or has_legend:
        field, names = ("label", list(labels)) if has_legend else ("part", parts)
        if has_legend and len(names) > 1:
            chosen = alt.selection_point(fields=[field], bind="legend")
            line = line.add_params(chosen).encode(opacity=alt.condition(chosen, alt.value(1), alt.value(0.12)))
        legend = alt.Legend(orient="bottom", title=None, columns=2, labelLimit=320, symbolType="stroke")
        colour = alt.Color(f"{field}:N").legend(legend if len(names) > 1 else None)
        colour = colour.scale(domain=names, range=[COLOURS[i % len(COLOURS)] for i in range(len(names))])
    elif len(parts) > 1:
        faint = [1.0, *[0.45] * (len(parts) - 1)]
        line = line.encode(opacity=alt.Opacity("part:O").scale(domain=parts, range=faint).legend(None))
    if switchable:
        line = line.add_params(alt.param(name="hidden", value=[]))
    layers: list[Any] = [line.encode(colour)]
    if several and together:
        band = base.mark_area(opacity=0.18).encode(x, alt.Y("min(of):Q"), alt.Y2("max(of):Q"), colour)
        layers.append(band.encode(detail=detail))
    told = labels if len(parts) == 1 else [f"{label}, {part}" for label in labels for part in parts]
    told = parts if one else told
    layers += _cursor(base, x, y, colour, title, axes[0], told if together and len(told) <= COMPARED else [])
    if together and not has_legend:
        ruled = alt.Chart(alt.NamedData("marks")).encode(alt.X("epoch:Q"), tooltip=["epoch:Q", "text:N"])
        layers.append(ruled.mark_rule(strokeDash=[2, 3], opacity=0.6, color="gray"))
        if one:
            text = ruled.mark_text(align="left", dx=4, fontSize=10, color="gray")
            layers.append(text.encode(y=alt.value(8), text="text:N"))
    return alt.LayerChart(layer=layers, title=title, height=210)


_BOTH = "datum.label + ', ' + datum.part"


def _cursor(
    base: alt.Chart, x: alt.X, y: alt.Y, colour: alt.Color, title: str, axis: str, names: Sequence[str]
) -> list[alt.Chart]:
    """The values under the cursor: of all series of these names at the nearest epoch, else of the nearest point."""
    near = alt.selection_point(
        "near" + "".join(letter for letter in title if letter.isascii() and letter.isalnum()),
        nearest=True,
        on="pointerover",
        clear="pointerout",
        empty=False,
        encodings=["x"] if names else ["x", "y"],
    )
    row = "(datum.datum || datum)"  # of the area around a mark, in which the cursor is nearest to it
    told = [f"'seconds': format({row}.seconds, '.4g')"] if axis == "seconds" else [f"{json.dumps(axis)}: {row}.epoch"]
    if not names:
        told += [f"'epoch': {row}.epoch"] if axis == "seconds" else []
        told = [f"'title': {row}.series, 'run': {row}.run", *told, f"'value': format({row}.of, '.5g')"]
        dots = base.mark_point(filled=True, size=55).encode(x, alt.Y("of:Q"), colour)
        dots = dots.encode(opacity=alt.condition(near, alt.value(1), alt.value(0)), tooltip=_box(told))
        return [dots.add_params(near)]
    # A series that has no such epoch is left out of the box.
    values = [f"isValid({row}[{n}]) ? {{{n}: format({row}[{n}], '.5g')}} : {{}}" for n in map(json.dumps, names)]
    rule = (
        base.transform_pivot("series", value="of", groupby=["epoch"], op="mean")
        .mark_rule(color="gray")
        .encode(x, opacity=alt.condition(near, alt.value(0.6), alt.value(0)), tooltip=_box(told, *values))
    )
    dots = base.mark_point(filled=True, size=55, opacity=1).encode(x, y, colour, detail=["label:N", "part:N"])
    return [rule.add_params(near), dots.transform_filter(near)]


def _box(pairs: Sequence[str], *more: str) -> Any:
    """The box beside the cursor, of names and expressions."""
    return alt.value(alt.expr(f"merge({{{', '.join(pairs)}}}, {', '.join(more) or '{}'})"))


_Scale = tuple[str, float, tuple[float, ...]]
"""The kind of a scale; of a symlog one, from where on it is logarithmic, and its ticks."""
_LINEAR: _Scale = ("linear", 1.0, ())


def _scale(values: Sequence[float | None]) -> _Scale:
    """Logarithmic; where some values are not positive, nearly so, with powers of ten as ticks."""
    found = [value for value in values if value is not None]
    sizes = [abs(value) for value in found if value]
    if not sizes:
        return _LINEAR
    if min(found) > 0:
        return "log", 1.0, ()
    first = math.floor(math.log10(max(min(sizes), 1e-6 * max(sizes))))
    last = math.floor(math.log10(max(sizes)))
    powers = [10.0**exponent for exponent in range(last, first - 1, -((last - first) // 4 + 1))]
    ticks = [tick for power in powers for tick in (-power, power) if min(found) <= tick <= max(found)]
    return "symlog", 10.0**first, (*ticks, 0.0)


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
    alt.Chart(alt.NamedData("cells"), height=220)
    .transform_flatten(["epoch", "end", "residual"])
    .transform_filter("datum.residual > 0")
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
    alt.Chart(alt.NamedData("cells"), height=220)
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
    return chart.properties(config=CONFIG, datasets={name: list(rows) for name, rows in datasets.items()})


def run_chart(rows: Sequence[Row]) -> Any:
    """Objective, residual and scores of a run by epoch: what `plot.png` shows, and what a notebook can display."""
    run = columns(rows, CURVES)
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
    run_chart(rows).properties(background="white").save(buffer, format="png", scale_factor=1.5)
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
