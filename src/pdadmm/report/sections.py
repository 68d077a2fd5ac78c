"""The parts of the page that need no script: overview, table of runs, proofs, and the experiments."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pdadmm.notation import format_hidden
from pdadmm.report.experiments import Experiment, TableFound
from pdadmm.report.html import cell, inline, items, number, row, table, text
from pdadmm.report.proof import certificate, theory_of
from pdadmm.report.runs import FoundRun
from pdadmm.report.series import CURVES

_SHOWN = 2  # tables of an experiment, before the others wait behind a click


def status(run: FoundRun) -> str:
    """As a badge."""
    return f'<span class="badge {text(run.status)}">{text(run.status)}</span>'


def score(run: FoundRun, part: str) -> tuple[str, float | None]:
    """The last accuracy or R² of a part of the data, and which of the two it is."""
    for key in CURVES[part]:
        if (value := run.last(key)) is not None:
            return key.partition("_")[2].replace("r2", "R²"), value
    return "", None


def overview(runs: Sequence[FoundRun]) -> str:
    """The few numbers to look at first."""
    if len(runs) == 1:
        return _tiles(_of_one(runs[0]))
    sets = sorted({run.data for run in runs})
    epochs = sum(len(run.rows) for run in runs)
    pairs = [("runs", str(len(runs))), ("data sets", str(len(sets))), ("methods", str(len({r.method for r in runs})))]
    pairs += [("epochs in all", f"{epochs:,}"), ("training", duration(sum(run.seconds for run in runs)))]
    unfinished = sum(run.status not in ("completed", "converged") for run in runs)
    pairs += [("not finished", str(unfinished))] if unfinished else []
    return _tiles(pairs)


def _of_one(run: FoundRun) -> list[tuple[str, str]]:
    epochs = run.rows[-1]["epoch"] if run.rows else 0
    of = f" of {run.config.epochs}" if run.config and run.config.epochs != epochs else ""
    pairs = [("epochs", f"{epochs}{of}"), ("training", duration(run.seconds))]
    for part in ("test", "train"):
        kind, value = score(run, part)
        pairs += [(f"{part} {kind}", number(value, ".4f"))] if value is not None else []
    pairs.append(("objective", number(run.last("objective"), ".4g")))
    if (residual := run.last("residual")) is not None:
        pairs.append(("residual", number(residual, ".3g")))
    if found := certificate(run):
        pairs.append(("epochs certified", f"{found.epochs - len(found.failed)} of {found.epochs}"))
    return pairs


def _tiles(pairs: Sequence[tuple[str, str]]) -> str:
    entries = "".join(f"<div><dt>{text(name)}</dt><dd>{text(value)}</dd></div>" for name, value in pairs)
    return f'<dl class="tiles">{entries}</dl>'


def duration(seconds: float) -> str:
    """In the unit that suits it."""
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.3g} min" if seconds < 7200 else f"{seconds / 3600:.3g} h"


def runs_table(runs: Sequence[FoundRun], labels: Sequence[str]) -> str:
    """One line a run; a script makes it sortable."""
    head = ["run", "data", "network", "method", "seed", "epochs", "seconds", "train", "test", "objective", "status"]
    rows = []
    for index, (run, label) in enumerate(zip(runs, labels, strict=True)):
        config = run.config
        hidden = f"{format_hidden(config.hidden)} {config.activation}" if config else "–"
        epochs = run.rows[-1]["epoch"] if run.rows else 0
        scores = [score(run, part)[1] for part in ("train", "test")]
        objective = run.last("objective")
        cells = [
            f'<th scope="row" data-key="{text(run.name)}"><a href="#run-{index}">{text(run.name)}</a></th>',
            cell(text(run.data), run.data),
            cell(text(hidden), len(config.hidden) if config else 0),
            cell(text(label), label),
            cell(str(config.seed) if config else "–", config.seed if config else "", "n"),
            cell(str(epochs), epochs, "n"),
            cell(number(run.seconds, ".4g"), run.seconds, "n"),
            *(cell(number(value, ".4f"), "" if value is None else value, "n") for value in scores),
            cell(number(objective, ".4g"), "" if objective is None else objective, "n"),
            cell(status(run), run.status),
        ]
        rows.append(row(cells, f' data-run="{index}"'))
    return table(head, rows, "Runs", "sortable", head[4:10])


def proof_table(runs: Sequence[FoundRun]) -> str:
    """Certificate and condition of all runs that have them."""
    rows = []
    for index, run in enumerate(runs):
        found, theory = certificate(run), theory_of(run)
        if found is None or theory is None or run.config is None:
            continue
        weights, c_k = theory.weights, run.last("c_k")
        failed = len(found.failed)
        held = f'<span class="{"bad" if failed else "good"}">{found.epochs - failed} of {found.epochs}</span>'
        cells = [
            f'<th scope="row" data-key="{text(run.name)}"><a href="#run-{index}">{text(run.name)}</a></th>',
            cell(held, failed),
            cell(text(found.dtype), found.dtype),
            cell(number(weights.nu), weights.nu, "n"),
            cell(number(weights.rho), weights.rho, "n"),
            cell(f"&gt; {number(theory.rho_bound)}", theory.rho_bound, "n"),
            cell("holds" if theory.holds else "does not hold", int(theory.holds)),
            cell(number(theory.C_1, ".3g"), theory.C_1, "n"),
            cell(number(theory.C_2, ".3g"), theory.C_2, "n"),
            cell(number(c_k, ".3g"), "" if c_k is None else c_k, "n"),
        ]
        rows.append(row(cells, f' data-run="{index}"'))
    head = [
        "run",
        "certified epochs",
        "arithmetic",
        "nu",
        "rho",
        "rho needed",
        "condition",
        "C₁",
        "C₂",
        "c<sub>k</sub>",
    ]
    return table(head, rows, "Certificate and theory of all runs", "sortable", (*head[3:6], *head[7:])) if rows else ""


def experiment_section(found: Experiment, anchor: str) -> str:
    """Figures, tables, and what is wrong with the published numbers."""
    parts = [f'<section class="experiment" id="{anchor}"><h3>{text(found.title)}</h3>']
    if found.command:
        parts.append(command_line("made by", found.command))
    parts += [
        f'<figure><img src="{url}" alt="{text(found.title)}: {text(name)}"></figure>' for name, url in found.figures
    ]
    tables = [_experiment_table(entry) for entry in found.tables]
    parts += tables[:_SHOWN]
    if more := tables[_SHOWN:]:
        parts.append(f"<details><summary>{len(more)} more tables</summary>{''.join(more)}</details>")
    if found.notes:
        parts.append(items(found.notes, "notes", marked=True))
    if found.defects:
        parts.append(f"<h4>What is wrong with the published numbers</h4>{items(found.defects, 'notes', marked=True)}")
    return "".join(parts) + "</section>"


def _experiment_table(found: TableFound) -> str:
    head, *lines = found.rows
    columns = [[line[i] for line in lines if i < len(line) and line[i]] for i in range(len(head))]
    right = [inline(name) for name, column in zip(head, columns, strict=True) if all(map(_is_numeric, column))]
    numeric = [inline(name) in right for name in head]
    rows = [
        row(cell(inline(entry), css="n" if i < len(head) and numeric[i] else "") for i, entry in enumerate(line))
        for line in lines
    ]
    heading = f"<h4>{inline(found.heading)}</h4>" if found.heading else ""
    return heading + table([inline(name) for name in head], rows, found.heading or "Table", right=right)


def _is_numeric(entry: str) -> bool:
    return bool(re.fullmatch(r"[-–+~<>≤≥ ]*\d[\d.,e+-]*( ?± ?[\d.e+-]+)?[ %x×]*|[-–]", entry))


def command_line(what: str, command: str) -> str:
    """A command to copy, and what it does."""
    return (
        f'<div class="command"><p>{text(what)}</p><pre tabindex="0"><code>{text(command)}</code></pre>'
        f'<button type="button" class="copy js-only" aria-label="Copy the command: {text(what)}">Copy</button></div>'
    )


def problems_section(problems: Sequence[str]) -> str:
    """What could not be read."""
    if not problems:
        return ""
    count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
    return f'<section class="problems" id="problems"><h2>{count}</h2>{items(problems)}</section>'
