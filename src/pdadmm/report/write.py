"""From a folder to `report.html`."""

from __future__ import annotations

import base64
import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any

from pdadmm.errors import UserError
from pdadmm.report import sections
from pdadmm.report.detail import run_detail
from pdadmm.report.experiments import Experiment, read_experiment
from pdadmm.report.html import embedded, text
from pdadmm.report.labels import labels
from pdadmm.report.runs import FoundRun, find_folders, read_run
from pdadmm.report.series import curves, heat_map, timeline
from pdadmm.rundir import REPORT_FILE, make_directory, write_whole
from pdadmm.shell import as_argument, quoted
from pdadmm.version import __version__

_SCRIPTS = ("base.js", "chart.js", "cells.js", "curves.js", "page.js")


@dataclass(frozen=True)
class Report:
    """What was found and where it was written."""

    path: Path
    runs: list[FoundRun]
    experiments: list[Experiment]

    @property
    def problems(self) -> list[str]:
        """What could not be read."""
        of_runs = [problem for run in self.runs for problem in run.problems]
        return of_runs + [problem for experiment in self.experiments for problem in experiment.problems]


def write_report(folder: Path, out: Path | None = None) -> Report:
    """Write `report.html` of all runs and experiments at or below `folder`, into `out` or the folder itself."""
    if not folder.is_dir():
        raise UserError(f"RUN_OR_FOLDER must be a directory; got {str(folder)!r}")
    runs, experiments = find_folders(folder)
    if not runs and not experiments:
        raise UserError(f"no run is at or below {folder}: none of its directories has a history.jsonl")
    target = out or folder
    make_directory(target)
    report = Report(target / REPORT_FILE, [read_run(path, folder) for path in runs], [])
    report.experiments.extend(read_experiment(path) for path in experiments)
    write_whole(report.path, _page(report, folder).encode("utf-8", "replace"))
    return report


def _page(report: Report, folder: Path) -> str:
    names = labels(report.runs)
    css, js = _asset("report.css"), "".join(_asset(name) for name in _SCRIPTS)
    body = _body(report, names, folder)
    made = time.strftime("%Y-%m-%d %H:%M %z")
    command = " ".join(["pdadmm", "report", quoted(as_argument(folder))])
    return Template(_asset("page.html")).substitute(
        # Nothing is fetched, and nothing runs but these two: not even what a file's name would smuggle in.
        policy=f"default-src 'none'; script-src {_hash(js)}; style-src {_hash(css)}; img-src data:; base-uri 'none'; "
        f"form-action 'none'",
        version=text(__version__),
        title=text(_title(report, folder)),
        css=css,
        js=js,
        contents="".join(f'<li><a href="#{anchor}">{text(name)}</a></li>' for anchor, name, _ in body),
        body="".join(content for _, _, content in body),
        made=text(made),
        command=text(command),
        data=embedded(_data(report.runs, names)),
    )


def _asset(name: str) -> str:
    return resources.files("pdadmm.report").joinpath("assets", name).read_text(encoding="utf-8")


def _hash(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


def _title(report: Report, folder: Path) -> str:
    return report.runs[0].name if len(report.runs) == 1 else folder.resolve().name or "runs"


def _data(runs: Sequence[FoundRun], names: Sequence[str]) -> dict[str, Any]:
    """What the scripts draw."""
    count = max(1, len(runs))
    return {
        "runs": [
            {
                "name": run.name,
                "data": run.data,
                "method": run.method,
                "label": label,
                "status": run.status,
                "metric": sections.score(run, "train")[0] or sections.score(run, "test")[0] or "accuracy",
                "heat": heat_map(run, count),
                "workers": timeline(run, count),
                **curves(run, count),
            }
            for run, label in zip(runs, names, strict=True)
        ]
    }


def _body(report: Report, names: Sequence[str], folder: Path) -> list[tuple[str, str, str]]:
    """Anchor, name and content of every section."""
    runs = report.runs
    found = [("overview", "Overview", _overview(report, folder))]
    if report.problems:
        found.append(("problems", "Problems", sections.problems_section(report.problems)))
    if report.experiments:
        parts = [
            sections.experiment_section(entry, f"experiment-{index}") for index, entry in enumerate(report.experiments)
        ]
        links = [
            f'<li><a href="#experiment-{i}">{text(entry.title)}</a></li>' for i, entry in enumerate(report.experiments)
        ]
        jump = f'<ul class="jump">{"".join(links)}</ul>' if len(links) > 1 else ""
        found.append(("experiments", "Experiments", _section("experiments", "Experiments", jump + "".join(parts))))
    if not runs:
        return found
    places = '<div class="slot" data-slot="filters"></div><div class="slot" data-slot="curves"></div>'
    found.append(("curves", "Curves", _section("curves", "Curves", places)))
    if len(runs) > 1:
        found.append(("runs", "Runs", _section("runs", "Runs", sections.runs_table(runs, names))))
    if len(runs) > 1 and (proofs := sections.proof_table(runs)):
        found.append(("proofs", "Certificates", _section("proofs", "Certificates and theory", proofs)))
    detail = "".join(run_detail(run, index, names[index]) for index, run in enumerate(runs))
    heading = "A run in detail" if len(runs) > 1 else "In detail"
    chooser = '<div class="slot" data-slot="chooser"></div>' if len(runs) > 1 else ""
    return [*found, ("detail", "In detail", _section("detail", heading, chooser + detail))]


def _section(anchor: str, heading: str, content: str) -> str:
    name = f"{anchor}-name"
    return f'<section id="{anchor}" aria-labelledby="{name}"><h2 id="{name}">{heading}</h2>{content}</section>'


def _overview(report: Report, folder: Path) -> str:
    runs = report.runs
    script = (
        "<noscript><p class='noscript'>Without JavaScript the tables are all here; the charts are not.</p></noscript>"
    )
    badge = f" {sections.status(runs[0])}" if len(runs) == 1 else ""
    tiles = sections.overview(runs) if runs else ""
    kind = "" if len(runs) == 1 else f"<p class='lead'>What is at and below <code>{text(folder)}</code></p>"
    return f'<section id="overview"><h1>{text(_title(report, folder))}{badge}</h1>{kind}{tiles}{script}</section>'
