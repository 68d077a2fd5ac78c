"""`pdadmm inspect`: what a run is, whether it is whole, what resuming it would do."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pdadmm.cli.options import add_json_flag
from pdadmm.config import Config
from pdadmm.errors import DamageError, UserError
from pdadmm.inspection import Inspection, inspect_run, number_in
from pdadmm.machine import format_bytes
from pdadmm.rundir import CONFIG_FILE
from pdadmm.shell import as_argument, beside, quoted, say

_STATUS = {
    "running": "a run holds the directory",
    "completed": "all epochs were run",
    "converged": "the tolerance was reached",
    "interrupted": "stopped on request, after a whole iteration",
    "killed": "ended without a word: by SIGKILL, or with its machine",
    "stopped": "ended early: by an error such as divergence, a full disk or a lost worker, or by a second Ctrl-C",
    "part": "another host holds the history, the results and the other layers",
}


def add_parser(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser("inspect", help="what a run directory holds, is it valid, how to continue")
    parser.add_argument("path", type=Path, metavar="RUN", help="a run directory")
    add_json_flag(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print all that was found; damage is an error only after that."""
    found = inspect_run(arguments.path)
    report = _report(found)
    if arguments.json:
        print(json.dumps(report))
    else:
        for line in _lines(report):
            say(line)
    if found.problems:
        more = f" (and {len(found.problems) - 1} more)" if len(found.problems) > 1 else ""
        raise DamageError(f"{arguments.path} is damaged: {found.problems[0]}{more}")
    return 0


def _way(found: Inspection) -> tuple[str, list[str], int | None]:
    """What resuming would do or what else there is to do, its command, and after which epoch it goes on."""
    resume, config, newest = ["train", "--resume", as_argument(found.path)], found.config, found.newest
    if found.running:
        return "it goes on by itself; a second run is refused", [], None
    if config is None:
        kept = f"; its options are also in the manifest of epoch {newest.epoch}" if newest else ""
        return f"put a valid {CONFIG_FILE} back first{kept}", [], None
    if newest is None or newest.manifest is None:
        again = ["train", "--config", as_argument(found.path / CONFIG_FILE), "--out", as_argument(beside(found.path))]
        if found.checkpoints:
            return "no checkpoint is valid: put the damaged files back from a copy, or run it all again", again, None
        if found.model:
            return "it has no checkpoint; a new run starts from its model", [*again, "--init-from", resume[-1]], None
        return "it has no checkpoint, so it begins anew", resume, 0
    epoch, text = newest.epoch, f"goes on after epoch {newest.epoch}"
    if epoch < found.epoch:
        text += f"; what came after it, to epoch {found.epoch}, is computed again"
    if found.is_part:
        return f"{text}: on all hosts as it was begun, torchrun … -m pdadmm {' '.join(map(quoted, resume))}", [], epoch
    try:
        changes = config.check_resumes(Config.from_mapping(newest.manifest.config), allow_changes=True)
    except (UserError, ArithmeticError) as error:
        return f"{CONFIG_FILE} does not fit the checkpoint of epoch {epoch}: {error}", [], None
    if changes:
        return f"{text}, with another option: {changes[0]}", [*resume, "--allow-changes"], epoch
    if epoch >= config.epochs and found.status == "completed" and found.model:
        return f"{text}, to twice as many or any other number", [*resume, "--epochs", str(2 * epoch)], epoch
    if epoch >= config.epochs:
        return "no epoch is left to run; it writes model and summary anew", resume, epoch
    if found.status == "converged":
        return f"{text}, to a lower tolerance", [*resume, "--set", f"tolerance={config.tolerance / 10:g}"], epoch
    if found.status == "stopped":
        text += "; if it diverged, it needs other options too, with --allow-changes"
    return text, resume, epoch


def _report(found: Inspection) -> dict[str, Any]:
    """All that there is to say, as plain values."""
    last: dict[str, Any] = {}
    for row in found.rows:
        last |= row
    scores = {name: number_in(last, name) for name in last if name.endswith(("_accuracy", "_r2"))}
    options = found.config.to_mapping() if found.config else {}
    advice, arguments, epoch = _way(found)
    command = " ".join(["pdadmm", *map(quoted, arguments)]) if arguments else None
    return {
        "run": str(found.path),
        **{name: options.get(name) for name in ("data", "hidden", "activation", "method", "workers", "shards")},
        "status": found.status,
        "valid": not found.problems,
        "epoch": found.epoch,
        "epochs": options.get("epochs"),
        "objective": number_in(last, "objective"),
        "scores": {name: value for name, value in scores.items() if value is not None},
        "seconds": sum(number_in(row, "seconds") or 0.0 for row in found.rows),
        "checkpoints": [
            {"epoch": one.epoch, "bytes": one.bytes, "valid": not one.problem, "problem": one.problem or None}
            for one in found.checkpoints
        ],
        "model": found.model or None,
        "results_epoch": found.summary["epochs"] if found.summary else None,
        "notes": found.notes,
        "problems": found.problems,
        "resume_epoch": epoch,
        "resume_command": command if epoch is not None else None,
        "command": command,
        "advice": advice,
    }


def _lines(report: dict[str, Any]) -> Iterator[str]:
    """The report for people: a name, then what there is to say, under one another."""
    shown = report | {
        "status": f"{report['status']}: {_STATUS[report['status']]}",
        "scores": "  ".join(f"{name} {value:.4f}" for name, value in report["scores"].items()),
        "checkpoints": [
            f"epoch {one['epoch']:<6} {format_bytes(one['bytes']):>10}  {'valid' if one['valid'] else 'DAMAGED'}"
            for one in report["checkpoints"]
        ],
    }
    for name in ("valid", "results_epoch", "resume_epoch", "resume_command"):  # said by other lines
        del shown[name]
    for name, value in shown.items():
        for index, line in enumerate(value if isinstance(value, list) else [value]):
            if line not in (None, ""):
                yield f"{'' if index else name:<12} {f'{line:.6g}' if isinstance(line, float) else line}"
