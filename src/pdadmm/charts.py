"""The charts of runs, defined once for the report, `plot.png` and notebooks (they need the `report` extra).

A chart names its data instead of holding it, so that the report can hold the data of many charts once: `runs` (what
`columns` makes of histories), `marks` and `cells`.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
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
    "legend": {"labelColor": "currentColor"},
}
"""Text and lines have the colour of the text around, so that a page may be dark."""
CELLS = 160  # columns of a heat map


def columns(
    rows: Sequence[Row],
    keys: Iterable[str],
    run: str = "this run",
    label: str = "",
    colour: int = 0,
    most: int = POINTS,
) -> dict[str, Any]:
    """One run as the charts take it: a list for each key, over not more than about `most` of its epochs.

    Runs with one label share a colour and are switched off and on together.
    """
    kept = thinned(rows, most, ("grown", "handed_over_from", "stationarity"))
    elapsed, total = {}, 0.0
    for row in rows:
        total += _number(row.get("seconds")) or 0.0
        elapsed[row["epoch"]] = total
    found: dict[str, Any] = {"run": run, "label": label, "colour": COLOURS[colour % len(COLOURS)]}
    found |= {"epoch": [row["epoch"] for row in kept], "seconds": [_number(elapsed[row["epoch"]]) for row in kept]}
    for key in keys:
        values = [_number(row.get(key)) for row in kept]
        found[key] = values if any(value is not None for value in values) else []
    return found


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
    """Curves by epoch or by seconds, one for each run and key.

    The parameter `hidden` of a switchable chart lists the labels that are not drawn.
    """
    keys = [key for key in keys if any(run[key] for run in runs)]
    parts, one = [key.replace("_", " ") for key in keys], len({run["label"] for run in runs}) == 1
    values = [value for run in runs for key in keys for value in run[key]]
    colour = _coloured("part", parts) if one else alt.Color("colour:N").scale(None)
    base = _flat(keys, alt.Y("value:Q").title(None), [] if title in LINEAR else values).encode(
        alt.X(f"{by}:Q").scale(nice=False, zero=by == "seconds"), colour, alt.Detail(["run:N", "part:N"])
    )
    told = {name: name for name in ("run", "part", "epoch", "seconds", "value")}
    if not one and len(parts) > 1:
        base = base.encode(alt.StrokeDash("part:N").scale(domain=parts).legend(None))
    if switchable:
        base = base.transform_filter("indexof(hidden, datum.label) < 0")
    layers = [base.mark_line(), _cursor(base, told if one else {"title": "label"} | told, keys[0])]
    if switchable:
        layers[0] = layers[0].add_params(alt.param("hidden", value=[]))
    if by == "epoch":
        ruled = alt.Chart(alt.NamedData("marks")).encode(alt.X("epoch:Q"), tooltip=["epoch:Q", "text:N"])
        layers.append(ruled.mark_rule(strokeDash=[2, 3], opacity=0.6, color="gray"))
        if one:
            text = ruled.mark_text(align="left", dx=4, fontSize=10, color="gray")
            layers.append(text.encode(y=alt.value(8), text="text:N"))
    return alt.LayerChart(layer=layers, title=title, height=210)


def figure(
    title: str, x: str, y: str, series: Mapping[str, tuple[Sequence[float], Sequence[float]]]
) -> tuple[alt.LayerChart, list[dict[str, Any]]]:
    """A figure of an experiment, whose series have names; and the data `runs` of the chart."""
    runs = [{"label": n, "epoch": xs, "seconds": [], "value": ys} for n, (xs, ys) in series.items()]
    values = [value for _, ys in series.values() for value in ys]
    is_wide = bool(values) and 0 < _WIDE * min(values) < max(values)
    base = _flat(["value"], alt.Y("value:Q").title(y), values if is_wide else []).encode(
        alt.X("epoch:Q").title(x).scale(nice=False, zero=False), _coloured("label", [*series])
    )
    told = {"title": "label", x: "epoch", y: "value"}
    layers = [base.mark_line(point={"size": 14}), _cursor(base, told, "value")]
    return alt.LayerChart(layer=layers, title=title, height=210), runs


_WIDE = 100.0  # the ratio of values from which a figure's scale is logarithmic
_LEGEND: dict[str, Any] = {"orient": "bottom", "title": None, "columns": 2, "labelLimit": 320, "symbolType": "stroke"}


def _flat(keys: Sequence[str], y: alt.Y, values: Sequence[float | None]) -> Any:
    """A chart of single points; its scale is linear, or for the values that are given a logarithmic one.

    Where some of them are not positive it is nearly logarithmic, with powers of ten as ticks.
    """
    found = [value for value in values if value is not None]
    sizes = [abs(value) for value in found if value]
    if not sizes:
        y = y.scale(zero=False)
    elif min(found) > 0:
        y = y.scale(type="log", nice=False)
    else:
        last = math.floor(math.log10(max(sizes)))
        first = max(last - 6, math.floor(math.log10(min(sizes))))
        powers = [10.0**exponent for exponent in range(first, last + 1)]
        ticks = [tick for power in powers for tick in (-power, power) if min(found) <= tick <= max(found)]
        y = y.scale(type="symlog", nice=False, constant=powers[0]).axis(values=[*ticks, 0.0], format="~g")
    return (
        alt.Chart(alt.NamedData("runs"))
        .transform_flatten(["epoch", "seconds", *keys])
        .transform_fold([*keys], as_=["key", "value"])
        .transform_filter("isValid(datum.value)")
        .transform_calculate(part="replace(datum.key, '_', ' ')")
        .encode(y)
    )


def _coloured(field: str, names: Sequence[str]) -> alt.Color:
    """Curves told apart by their colours, with a legend where there are several."""
    colours = [COLOURS[number % len(COLOURS)] for number in range(len(names))]
    found = alt.Color(f"{field}:N").scale(domain=[*names], range=colours)
    return found.legend(**_LEGEND) if len(names) > 1 else found.legend(None)


def _cursor(base: Any, told: Mapping[str, str], name: str) -> Any:
    """The values of the point that is nearest to the cursor; `told` has their fields by their names."""
    near = alt.selection_point(f"near_{name}", nearest=True, on="pointerover", clear="pointerout", empty=False)
    # Vega-Lite's own box does not find texts, which the area around a point has one `datum` deeper than the point.
    values = {title: f"(datum.datum || datum)[{json.dumps(field)}]" for title, field in told.items()}
    entries = [f"{json.dumps(title)}: isNumber({v}) ? format({v}, '.6~g') : {v}" for title, v in values.items()]
    dots = base.mark_point(filled=True, size=55).encode(opacity=alt.condition(near, alt.value(1), alt.value(0)))
    dots = dots.encode(tooltip=alt.value(alt.expr(f"{{{', '.join(entries)}}}")))
    return dots.add_params(near).properties(name=f"dots_{name}")


def cells(rows: Sequence[Row], key: str, names: Sequence[str], most: int = CELLS) -> list[dict[str, Any]]:
    """The data of a heat map: the numbers of these names that lists of the history have of each layer or worker."""
    rows = [row for row in rows if isinstance(row.get(key), list) and all(_parts(v, len(names)) for v in row[key])]
    kept = thinned(rows, most)
    ends = [row["epoch"] for row in kept[1:]] + [row["epoch"] + 1 for row in rows[-1:]]
    found = []
    for place in range(max((len(row[key]) for row in kept), default=0)):
        there = [(row, end) for row, end in zip(kept, ends, strict=True) if place < len(row[key])]
        parts = zip(*(_parts(row[key][place], len(names)) for row, _ in there), strict=True)
        spans = {"epoch": [row["epoch"] for row, _ in there], "end": [end for _, end in there]}
        found.append({"place": place + 1, **spans, **dict(zip(names, map(list, parts), strict=True))})
    return found


def _parts(value: Any, count: int) -> list[float]:
    """A number, or a list of them; nothing where it has not so many."""
    found = [_number(part) for part in (value if isinstance(value, list) else [value])]
    return [part for part in found if part is not None] if len(found) == count and None not in found else []


def _heat_map(place: str, names: Sequence[str], colour: alt.Color, unit: str = "") -> Any:
    return (
        alt.Chart(alt.NamedData("cells"), height=220)
        .transform_flatten(["epoch", "end", *names])
        .mark_rect(clip=True)
        .encode(
            alt.X("epoch:Q").scale(nice=False, zero=False).title("epoch"),
            alt.X2("end:Q"),
            alt.Y("place:O").title(place),
            colour,
            tooltip=[
                "epoch:Q",
                alt.Tooltip("place:O", title=place),
                *(alt.Tooltip(f"{name}:Q", format=".5g", title=f"{name}{unit}") for name in names),
            ],
        )
    )


RESIDUALS = _heat_map(
    "hidden layer",
    ["residual"],
    alt.Color("residual:Q").scale(type="log", scheme="viridis", nice=False).legend(title=None, format=".1e"),
).transform_filter("datum.residual > 0")
"""Residuals of every boundary by epoch."""
WAITING = _heat_map(
    "worker",
    SPENT,
    alt.Color("waiting:Q").scale(domain=[0, 1], scheme="viridis").legend(title=None, format=".0%"),
    ", s",
).transform_calculate(waiting="datum.wait / (datum.compute + datum.wait + datum.send)")
"""The share of every epoch that each process waited."""


def run_chart(rows: Sequence[Row]) -> Any:
    """Objective, residual and scores of a run by epoch: what `plot.png` shows, and what a notebook can display."""
    run = columns(rows, CURVES)
    panels = [
        curves([run], title, PANELS[title]).properties(width=330)
        for title in ("Objective", "Residual", "Score")
        if any(run[key] for key in PANELS[title])
    ]
    chart = alt.hconcat(*panels).resolve_scale(color="independent")
    return chart.properties(config=CONFIG, datasets={"runs": [run], "marks": marks(rows)})


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
