"""One run in detail: what a script draws into, and all that needs none."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from pdadmm.inspection import number_in
from pdadmm.machine import format_bytes
from pdadmm.math.lagrangian import Theory
from pdadmm.notation import format_hidden
from pdadmm.report.html import cell, facts, items, number, row, table, text
from pdadmm.report.options import Option, commands, options
from pdadmm.report.proof import certificate, theory_of, theory_words, words
from pdadmm.report.runs import FoundRun
from pdadmm.report.sections import command_line, status


def run_detail(run: FoundRun, index: int, label: str) -> str:
    """The run's article."""
    parts = [
        f'<article class="run" id="run-{index}" data-run="{index}" aria-labelledby="run-{index}-name">',
        f'<h3 id="run-{index}-name">{text(run.name)} {status(run)}</h3>',
        f'<p class="lead">{text(_sentence(run, label))}</p>',
        _events(run),
        _part("Residuals by layer and epoch", '<div class="slot" data-slot="heat"></div>', "residuals")
        if any("residuals" in r for r in run.rows)
        else "",
        _part("Certificate", _certificate(run), "certificate"),
        _part("The theory's condition", _theory(run), "theory"),
        _part("Workers", _workers(run), "workers"),
        _part("Configuration", _configuration(run), "configuration"),
        _part("Environment", _environment(run), "environment"),
        _part("Run it again", "".join(command_line(what, command) for what, command in commands(run)), "again"),
    ]
    return "".join(parts) + "</article>"


def _part(heading: str, content: str, name: str) -> str:
    return f'<section class="part {name}"><h4>{heading}</h4>{content}</section>' if content else ""


def _sentence(run: FoundRun, label: str) -> str:
    config, data = run.config, run.summary.get("data")
    if config is None:
        return "Its configuration cannot be read."
    hidden = f"{format_hidden(config.hidden)}, {config.activation}"
    size = ""
    if isinstance(data, dict) and (samples := number_in(data, "train_samples")) is not None:
        size = f" ({samples:,.0f} training samples of {number_in(data, 'features') or 0:g} features)"
    return f"{label} on {run.data}{size}; hidden layers {hidden}; {config.dtype}, seed {config.seed}."


def _events(run: FoundRun) -> str:
    """What happened on the way: hand-overs, resumes, restarts, problems."""
    lines = []
    for entry in run.rows:
        if before := entry.get("handed_over_from"):
            lines.append(f"Epoch {entry['epoch']}: {before} handed the run over to {entry.get('method', 'pdadmm')}.")
    if (resumed := number_in(run.summary, "resumed_from")) is not None:
        lines.append(f"Resumed from the checkpoint of epoch {resumed:g}; times of workers below are since then.")
    if restarts := number_in(run.summary, "restarts"):
        lines.append(f"Started again {restarts:g} times because a worker was lost.")
    if run.rows and run.summary and run.summary["epochs"] != run.rows[-1]["epoch"]:
        lines.append(f"Its summary is of epoch {run.summary['epochs']}; the run has gone on since.")
    if isinstance(advice := run.summary.get("advice"), str) and run.status not in ("running",):
        lines.append(f"{advice[:1].upper()}{advice[1:]}.")
    return items(lines, "notes") + items(run.problems, "notes bad")


def _certificate(run: FoundRun) -> str:
    found = certificate(run)
    if found is None:
        return "<p>This method has no certificate.</p>" if run.config and run.method != "pdadmm" else ""
    return '<div class="slot" data-slot="certificate"></div>' + items(words(found), "notes")


def _theory(run: FoundRun) -> str:
    theory = theory_of(run)
    if theory is None or run.config is None:
        return ""
    weights = theory.weights
    relation = (
        f"rho = {number(weights.rho)} is {'' if theory.holds else 'not '}above the bound, {number(theory.rho_bound)}."
    )
    return f"<p><strong>{text(relation)}</strong> {text(theory_words(theory, run.config.batches))}</p>" + facts(
        _constants(run, theory)
    )


def _constants(run: FoundRun, theory: Theory) -> list[tuple[str, object]]:
    weights, c_k = theory.weights, run.last("c_k")
    return [
        ("rho", number(weights.rho)),
        ("must be above", number(theory.rho_bound)),
        ("nu", number(weights.nu)),
        ("S of the activation", number(theory.lipschitz)),
        ("weight c on |z − z_old|²", number(weights.z_prox)),
        ("C₁", number(theory.C_1)),
        ("C₂", number(theory.C_2)),
        ("c_k at the end", number(c_k) if c_k is not None else "not defined"),
    ]


def _workers(run: FoundRun) -> str:
    found: Any = run.summary.get("workers")
    found = [entry for entry in found if isinstance(entry, dict)] if isinstance(found, list) else []
    many = any("workers" in entry for entry in run.rows)
    if len(found) < 2 and not many:
        return "<p>One process did all the work: nobody waited, nothing was sent.</p>" if found else ""
    head = ["worker", "stage", "shard", "layers", "compute", "wait", "send", "sent", "idle"]
    rows = []
    for place, worker in enumerate(found, start=1):
        layers = worker.get("layers")
        span = f"{layers[0]}–{layers[-1]}" if isinstance(layers, list) and layers else "–"
        times = [number_in(worker, f"{name}_seconds") for name in ("compute", "wait", "send")]
        idle = number_in(worker, "idle_share")
        cells = [f'<th scope="row">{place}</th>', cell(number(number_in(worker, "stage")), css="n")]
        cells += [cell(number(number_in(worker, "shard")), css="n"), cell(text(span))]
        cells += [cell(f"{number(time, '.3f')} s", css="n") for time in times]
        cells += [cell(format_bytes(number_in(worker, "bytes_sent") or 0), css="n")]
        cells += [cell("–" if idle is None else f"{idle:.1%}", css="n")]
        rows.append(row(cells))
    drawn = '<div class="slot" data-slot="workers"></div>' if many else ""
    return drawn + (table(head, rows, "Totals of the workers", right=[*head[1:3], *head[4:]]) if rows else "")


def _configuration(run: FoundRun) -> str:
    if run.config is None:
        return ""
    found = options(run.config)
    given = [option for option in found if option.is_given]
    parts = [
        f"<p>{len(given)} of {len(found)} options differ from the defaults.</p>",
        _option_table(given, "Given options"),
    ]
    groups = [
        f"<h5>{text(group)}</h5>{_option_table(list(entries), f'Options: {group}')}"
        for group, entries in groupby(found, key=lambda option: option.group)
    ]
    return "".join(parts) + f"<details><summary>All {len(found)} options</summary>{''.join(groups)}</details>"


def _option_table(found: list[Option], caption: str) -> str:
    rows = [
        row(
            [
                f'<th scope="row" title="{text(option.help)}"><code>{text(option.name)}</code></th>',
                cell(text(option.value or "not set")),
                cell(text(option.default or "not set")),
            ],
            ' class="given"' if option.is_given else "",
        )
        for option in found
    ]
    return table(["option", "value", "default"], rows, caption, "options") if rows else ""


def _environment(run: FoundRun) -> str:
    found = run.summary.get("environment")
    if not isinstance(found, dict):
        return "<p>It is written down when a run ends.</p>"
    pairs = [(name.replace("_", " "), _shown(name, value)) for name, value in found.items()]
    return facts(pairs)


def _shown(name: str, value: Any) -> str:
    is_size = name.endswith("_bytes") and type(value) in (int, float)
    return format_bytes(value) if is_size else str(value)
