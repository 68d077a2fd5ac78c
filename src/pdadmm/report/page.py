"""The page of a report: what its template shows, from what was found (needs the `report` extra)."""

from __future__ import annotations

import base64
import hashlib
import math
import time
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import vl_convert
from jinja2 import Environment, PackageLoader

from pdadmm import charts
from pdadmm.events import SPENT
from pdadmm.experiments.result import Cell, Figure, Table
from pdadmm.inspection import number_in
from pdadmm.machine import format_bytes
from pdadmm.notation import format_hidden
from pdadmm.report.experiments import Experiment
from pdadmm.report.labels import given, labels
from pdadmm.report.proof import certificate_words, certified, theory_of
from pdadmm.report.runs import FoundRun
from pdadmm.rundir import CONFIG_FILE
from pdadmm.shell import as_argument, beside, printable, quoted
from pdadmm.version import __version__

_ALL_POINTS = 20_000  # of a curve, in all runs together, so that the page of many long runs stays small
_ALL_COLUMNS = 6_000  # of heat maps
_PAGE_WIDE = {"config": charts.CONFIG, "width": "container", "autosize": {"type": "fit-x", "contains": "padding"}}


class _Drawings:
    """The charts of a page: how they are drawn, and the data of each, both held once."""

    def __init__(self) -> None:
        self.specs: list[dict[str, Any]] = []
        self.data: list[dict[str, Any]] = []

    def add(self, chart: Any, **data: Any) -> dict[str, int]:
        """The numbers of a chart's drawing and data."""
        # To check the drawing against its schema takes longer than all the rest of the page.
        entries = (self.specs, chart.to_dict(validate=False) | _PAGE_WIDE), (self.data, data)
        for held, entry in entries:
            if entry not in held:
                held.append(entry)
        return {name: held.index(entry) for name, (held, entry) in zip(("spec", "data"), entries, strict=True)}


def make_page(
    folder: Path, runs: Sequence[FoundRun], experiments: Sequence[Experiment], problems: Sequence[str]
) -> str:
    """The HTML of the whole page."""
    environment = Environment(
        autoescape=True, finalize=_finalized, loader=PackageLoader(__package__), trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["number"] = _number
    names, drawings = labels(runs), _Drawings()
    colours = {label: number % len(charts.COLOURS) for number, label in enumerate(dict.fromkeys(names))}
    groups: dict[str, list[tuple[FoundRun, str]]] = {}
    for run, label in zip(runs, names, strict=True):
        groups.setdefault(run.data, []).append((run, label))
    css = _asset("report.css") + "".join(f".c{i}{{background:{colour}}}" for i, colour in enumerate(charts.COLOURS))
    js = vl_convert.javascript_bundle() + "\n" + _asset("report.js")  # type: ignore[call-arg]  # its types are wrong
    return environment.get_template("report.html").render(
        # Nothing is fetched, and nothing runs but this script: not even what a file's name would smuggle in.
        policy=f"default-src 'none'; script-src {_hash(js)}; style-src {_hash(css)}; base-uri 'none'",
        css=css,
        js=js,
        title=runs[0].name if len(runs) == 1 else folder.resolve().name or "runs",
        folder=folder,
        version=__version__,
        made=time.strftime("%Y-%m-%d %H:%M %z"),
        command=_command("report", folder),
        one=runs[0] if len(runs) == 1 else None,
        runs=runs,
        overview=_overview(runs),
        problems=problems,
        experiments=[(e.result, [_figure(figure, drawings) for figure in e.result.figures]) for e in experiments],
        labels=colours,
        panels={data: _panels(group, colours, len(runs), drawings) for data, group in groups.items()},
        tables=[table for table in (_runs_table(runs, names), _proofs_table(runs)) if table.rows],
        details=[_detail(run, len(runs), drawings) for run in runs],
        drawings={"specs": drawings.specs, "data": drawings.data},
    )


def _asset(name: str) -> str:
    return resources.files(__package__).joinpath("templates", name).read_text(encoding="utf-8")


def _hash(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


def _finalized(value: Any) -> Any:
    """Every value that the template shows; Jinja2 escapes it afterwards."""
    return value if hasattr(value, "__html__") else "" if value is None else printable(str(value))


def _number(value: Any) -> str:
    """For people: a dash where there is none."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "–"
    return format(value, ".5g").replace("inf", "∞") if isinstance(value, float) else str(value)


def _command(name: str, path: Path, *more: str) -> str:
    return " ".join(["pdadmm", name, *more, quoted(as_argument(path))])


def _overview(runs: Sequence[FoundRun]) -> dict[str, object]:
    """The few numbers to look at first."""
    seconds = sum(run.seconds for run in runs)
    unit, name = (3600, "h") if seconds > 7200 else (60, "min") if seconds > 120 else (1, "s")
    found: dict[str, object] = {"training": f"{seconds / unit:.3g} {name}"}
    if len(runs) != 1:
        return {"runs": len(runs), "data sets": len({run.data for run in runs}), **found} if runs else {}
    (run,) = runs
    found = {"epochs": run.epoch, **found, "epochs certified": " of ".join(map(str, certified(run) or ())) or None}
    found |= {key.replace("_", " "): run.last(key) for key in (*charts.SCORES, "objective", "residual")}
    return {name: value for name, value in found.items() if value is not None}


def _panels(
    group: Sequence[tuple[FoundRun, str]], colours: dict[str, int], num_runs: int, drawings: _Drawings
) -> dict[str, list[dict[str, int]]]:
    """The charts of the runs on one data set, by epoch and by seconds."""
    most = max(50, min(charts.POINTS, _ALL_POINTS // num_runs))
    drawn = [charts.columns(run.rows, charts.CURVES, run.name, label, colours[label], most) for run, label in group]
    marks = list({(m["epoch"], m["text"]): m for run, _ in group for m in charts.marks(run.rows)}.values())
    found = [entry for entry in charts.PANELS.items() if any(run[key] for run in drawn for key in entry[1])]
    return {
        by: [
            drawings.add(charts.curves(drawn, title, keys, by, switchable=True), runs=drawn, marks=marks)
            for title, keys in found
        ]
        for by in ("epoch", "seconds")
    }


def _figure(figure: Figure, drawings: _Drawings) -> dict[str, int]:
    """A figure of an experiment."""
    series = {one.name: (one.x, one.y) for one in figure.series}
    chart, runs = charts.figure(figure.title, figure.x, figure.y, series)
    return drawings.add(chart, runs=runs)


def _runs_table(runs: Sequence[FoundRun], names: Sequence[str]) -> Table:
    """One row a run."""
    columns = ["run", "data", "network", "method", "seed", "epochs", "seconds", "train", "test", "objective", "status"]
    rows: list[list[Cell]] = []
    for run, label in zip(runs, names, strict=True):
        network = f"{format_hidden(run.config.hidden)} {run.config.activation}" if run.config else None
        row: list[Cell] = [run.name, run.data, network, label, run.config.seed if run.config else None]
        scores = [run.last(f"{part}_accuracy", f"{part}_r2") for part in ("train", "test")]
        rows.append([*row, run.epoch, run.seconds, *scores, run.last("objective"), run.status])
    return Table("Runs", columns, rows)


def _proofs_table(runs: Sequence[FoundRun]) -> Table:
    """Certificate and condition of all runs that have them."""
    columns = ["run", "certified", "of", "arithmetic", "nu", "rho", "rho needed above", "condition", "C₁", "C₂", "c_k"]
    rows: list[list[Cell]] = []
    for run in runs:
        counted, theory = certified(run), theory_of(run)
        if counted and theory and run.config:
            weights, holds = theory.weights, "holds" if theory.holds else "does not hold"
            row: list[Cell] = [run.name, *counted, run.config.dtype, weights.nu, weights.rho, theory.rho_bound, holds]
            rows.append([*row, theory.C_1, theory.C_2, run.last("c_k")])
    return Table("Certificates, and the condition of the paper's theorems", columns, rows)


def _detail(run: FoundRun, num_runs: int, drawings: _Drawings) -> dict[str, Any]:
    """One run, as the template shows it."""
    found: list[tuple[str, dict[str, int], str]] = []
    most = max(20, min(charts.CELLS, _ALL_COLUMNS // num_runs))
    if cells := charts.cells(run.rows, "residuals", ["residual"], most):
        found.append(("Residuals by layer", drawings.add(charts.RESIDUALS, cells=cells), ""))
    drawn = charts.columns(run.rows, charts.CERTIFICATE, run.name, most=200)
    if any(drawn[key] for key in charts.CERTIFICATE):
        chart = charts.curves([drawn], "Drop of the objective", charts.CERTIFICATE)
        place = drawings.add(chart, runs=[drawn], marks=charts.marks(run.rows))
        found.append(("Certificate", place, certificate_words(run)))
    if len(times := charts.cells(run.rows, "workers", SPENT, most)) > 1:
        found.append(("How long the workers waited", drawings.add(charts.WAITING, cells=times), ""))
    environment = run.summary.get("environment")
    commands = {"What it holds, whether it is whole, how to go on": _command("inspect", run.path)}
    if run.config:
        again = _command("train", run.path / CONFIG_FILE, "--config")
        commands["The same again, beside it"] = f"{again} --out {quoted(as_argument(beside(run.path)))}"
    options = Table("Given options", ["option", "value", "default", "meaning"], [])
    options.rows.extend([o.name, o.value, o.default, o.help] for o in (given(run.config) if run.config else ()))
    tables = [_workers_table(run), options]
    return {
        "run": run,
        "advice": run.summary.get("advice") if run.status != "running" else None,
        "charts": found,
        "tables": [table for table in tables if table.rows],
        "environment": {key.replace("_", " "): value for key, value in environment.items()}
        if isinstance(environment, dict)
        else {},
        "commands": commands,
    }


def _workers_table(run: FoundRun) -> Table:
    """What every process did in all; no rows where there was one."""
    workers = run.summary.get("workers")
    rows: list[list[Cell]] = []
    for worker in workers if isinstance(workers, list) and len(workers) > 1 else []:
        if isinstance(worker, dict):
            layers, place = worker.get("layers"), [number_in(worker, name) for name in ("stage", "shard")]
            span = f"{layers[0]}–{layers[-1]}" if isinstance(layers, list) and layers else None
            times = [number_in(worker, f"{name}_seconds") for name in SPENT]
            sent = format_bytes(number_in(worker, "bytes_sent") or 0)
            rows.append([len(rows) + 1, *place, span, *times, sent, number_in(worker, "idle_share")])
    head = ["worker", "stage", "shard", "layers", *(f"{name}, s" for name in SPENT), "sent", "idle share"]
    return Table("Totals of the workers", head, rows)
