"""`pdadmm inspect`: what a run directory holds, whether it is valid, how far the run came, how to continue."""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pdadmm.cli.options import add_json_flag
from pdadmm.config import Config
from pdadmm.errors import DamageError, UserError
from pdadmm.inspection import Checkpoint, Inspection, inspect_run, number_in
from pdadmm.machine import format_bytes
from pdadmm.notation import format_hidden
from pdadmm.rundir import CONFIG_FILE, MODEL_FILE
from pdadmm.shell import as_argument, beside, quoted

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
    way = _way(found)
    if arguments.json:
        print(json.dumps(_mapping(found, way)))
    else:
        for line in _lines(found, way):
            print(_printable(line))
    if found.problems:
        more = f" (and {len(found.problems) - 1} more)" if len(found.problems) > 1 else ""
        raise DamageError(_printable(f"{arguments.path} is damaged: {found.problems[0]}{more}"))
    return 0


@dataclass(frozen=True)
class _Way:
    """How to continue: a command, where there is one, and what it does or what else to do."""

    text: str
    arguments: tuple[str, ...] = ()
    epoch: int | None = None

    @property
    def command(self) -> str | None:
        """As a shell takes it."""
        return " ".join(["pdadmm", *map(quoted, self.arguments)]) if self.arguments else None


def _way(found: Inspection) -> _Way:
    resume = ("train", "--resume", as_argument(found.path))
    if found.running:
        return _Way("it goes on by itself; a second run is refused")
    if found.config is None:
        kept = f"; its options are also in the manifest of epoch {found.newest.epoch}" if found.newest else ""
        return _Way(f"put a valid {CONFIG_FILE} back first{kept}")
    if found.newest is not None:
        return _way_on(found, found.config, found.newest, resume)
    again = ("train", "--config", as_argument(found.path / CONFIG_FILE), "--out", as_argument(beside(found.path)))
    if found.checkpoints:
        return _Way("no checkpoint is valid: put the damaged files back from a copy, or run it all again", again)
    if found.model:
        return _Way("it has no checkpoint; a new run starts from its model", (*again, "--init-from", resume[-1]))
    if MODEL_FILE in found.present:
        return _Way("it has no checkpoint and no valid model; run it all again", again)
    return _Way("it has no checkpoint, so it begins anew", resume, 0)


def _way_on(found: Inspection, config: Config, newest: Checkpoint, resume: tuple[str, ...]) -> _Way:
    """From a checkpoint."""
    epoch, text = newest.epoch, f"goes on after epoch {newest.epoch}"
    if epoch < found.epoch:
        text += f"; what came after it, to epoch {found.epoch}, is computed again"
    if newest.is_part:
        command = " ".join(map(quoted, resume))
        return _Way(f"{text}: on all hosts as it was begun, torchrun … -m pdadmm {command}", epoch=epoch)
    assert newest.manifest is not None
    try:
        changes = config.check_resumes(Config.from_mapping(newest.manifest.config), allow_changes=True)
    except (UserError, ArithmeticError) as error:
        return _Way(f"{CONFIG_FILE} does not fit the checkpoint of epoch {epoch}: {error}")
    if changes:
        return _Way(f"{text}, with another option: {changes[0]}", (*resume, "--allow-changes"), epoch)
    if epoch >= config.epochs and found.has_results:
        return _Way(f"{text}, to twice as many or any other number", (*resume, "--epochs", str(2 * epoch)), epoch)
    if epoch >= config.epochs:
        return _Way("no epoch is left to run; it writes model and summary anew", resume, epoch)
    if found.status == "converged":
        return _Way(f"{text}, to a lower tolerance", (*resume, "--tolerance", f"{config.tolerance / 10:g}"), epoch)
    if found.status == "stopped":
        text += "; if it diverged, it needs other options too, with --allow-changes"
    return _Way(text, resume, epoch)


def _printable(text: str) -> str:
    """Names of files may hold anything, and a terminal obeys some of it."""
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


def _scores(found: Inspection) -> dict[str, float]:
    scores = {name: number_in(found.last, name) for name in found.last if name.endswith(("_accuracy", "_r2"))}
    return {name: value for name, value in scores.items() if value is not None}


def _time(saved: float | None, form: str) -> str | None:
    try:
        return None if saved is None else time.strftime(form, time.localtime(saved))
    except (ValueError, OverflowError, OSError):  # a file may claim any time
        return None


def _mapping(found: Inspection, way: _Way) -> dict[str, Any]:
    """The report as plain values."""
    config = found.config
    return {
        "run": str(found.path),
        "status": found.status,
        "valid": found.valid,
        "epoch": found.epoch,
        "epochs": config.epochs if config else None,
        "objective": number_in(found.last, "objective"),
        "scores": _scores(found),
        "seconds": found.seconds,
        "data": config.data if config else None,
        "hidden": format_hidden(config.hidden) if config else None,
        "activation": config.activation if config else None,
        "method": config.method if config else None,
        "workers": config.workers if config else None,
        "shards": config.shards if config else None,
        "checkpoints": [
            {
                "epoch": checkpoint.epoch,
                "bytes": checkpoint.bytes,
                "saved": _time(checkpoint.saved, "%Y-%m-%dT%H:%M:%S%z"),
                "valid": checkpoint.valid,
                "problem": checkpoint.problem or None,
            }
            for checkpoint in found.checkpoints
        ],
        "set_aside": found.set_aside,
        "unfinished": found.unfinished,
        "model": found.model or None,
        "results_epoch": found.summary["epochs"] if found.summary else None,
        "resume_epoch": way.epoch,
        "resume_command": way.command if way.epoch is not None else None,
        "command": way.command,
        "advice": way.text,
        "problems": found.problems,
        "notes": found.notes,
    }


def _lines(found: Inspection, way: _Way) -> list[str]:
    """The report for people: a name, then what there is to say, under one another."""
    entries: list[tuple[str, list[str]]] = [("run", [str(found.path)])]
    if config := found.config:
        shards = f" on each of {config.shards} shards" if config.shards > 1 else ""
        entries += [
            ("data", [config.data]),
            ("network", [f"hidden {format_hidden(config.hidden)}, {config.activation}, {_method(config)}"]),
            ("workers", [f"{config.workers}{shards}"]),
        ]
    entries += [
        ("status", [f"{found.status}: {_STATUS[found.status]}"]),
        ("epoch", [_epoch_line(found)]),
        ("time", [f"{found.seconds:.1f} s of training"]),
        ("checkpoints", _checkpoint_lines(found)),
        ("model", [_model_line(found)]),
        ("note", found.notes),
        ("problem", found.problems),
        ("continue", [line for line in (way.command, way.text) if line]),
    ]
    return [f"{name if not index else '':<12} {line}" for name, lines in entries for index, line in enumerate(lines)]


def _method(config: Config) -> str:
    return f"solver {config.solver}" if config.method == "pdadmm" else f"method {config.method}"


def _epoch_line(found: Inspection) -> str:
    of = f" of {found.config.epochs}" if found.config else ""
    objective = number_in(found.last, "objective")
    parts = [f"{found.epoch}{of}"] + ([f"objective {objective:.4g}"] if objective is not None else [])
    return "  ".join([*parts, *(f"{name} {value:.4f}" for name, value in _scores(found).items())])


def _checkpoint_lines(found: Inspection) -> list[str]:
    lines = []
    for checkpoint in found.checkpoints:
        saved = _time(checkpoint.saved, "%Y-%m-%d %H:%M:%S") or "at no known time"
        state = "valid" if checkpoint.valid else "DAMAGED"
        part = ", the part of this host" if checkpoint.is_part else ""
        lines.append(f"epoch {checkpoint.epoch:<6} {format_bytes(checkpoint.bytes):>10}  {saved}  {state}{part}")
    lines += [f"{name}  set aside: a resumed run went back before it" for name in found.set_aside]
    state = "being written or deleted" if found.running else "left half written or deleted; a resumed run removes it"
    return [*lines, *(f"{name}  {state}" for name in found.unfinished)] or ["none"]


def _model_line(found: Inspection) -> str:
    if found.model:
        return f"{found.model}  valid"
    return "DAMAGED" if MODEL_FILE in found.present else "none yet: it is written at the end"
