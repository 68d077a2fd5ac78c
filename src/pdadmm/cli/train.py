"""`pdadmm train`: from data to a run directory."""

from __future__ import annotations

import argparse
import json
import os
import signal
import time
from pathlib import Path
from types import FrameType
from typing import Any

from pdadmm.cli.options import add_config_flags, add_hidden_flag, add_output_flags, config_from, given_options
from pdadmm.cli.progress import Progress
from pdadmm.config import Config
from pdadmm.data import Dataset
from pdadmm.engine.launch import StopRequests, die_with_launcher, is_worker, launch, own_rank
from pdadmm.engine.world import World
from pdadmm.errors import StorageError, UserError
from pdadmm.events import check_installed
from pdadmm.machine import keep_freed_memory
from pdadmm.observer import Observer
from pdadmm.prepare import check_run, holds_data
from pdadmm.run import Place, carry_out, read_config
from pdadmm.rundir import SUMMARY_FILE, RunDirectory
from pdadmm.shell import as_argument, quoted, say
from pdadmm.storage import storage_of
from pdadmm.trainer import load_for


def add_parser(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "train", usage="pdadmm train [OPTION ...]", help="train a network and write a run directory"
    )
    add_config_flags(parser)
    files = parser.add_argument_group("the run directory and the screen")
    add_output_flags(files, "run directory (default: runs/DATA-TIME)")
    files.add_argument("--overwrite", action="store_true", help="replace a run that --out already holds")
    files.add_argument(
        "--resume", type=Path, metavar="RUN", help="go on with the run in this directory, from its last checkpoint"
    )
    add_hidden_flag(files, "with --resume: also with options that change what is computed")(
        "--allow-changes", action="store_true"
    )
    files.add_argument("--quiet", action="store_true", help="show no progress and no notes")
    parser.set_defaults(run=run)


class Terminated(KeyboardInterrupt):
    """A second SIGTERM, which ends the run at once."""


class _StopRequests(StopRequests):
    """The first asks the run to end after the iteration; a second one ends it at once."""

    def __init__(self, speaks: bool) -> None:
        super().__init__()
        self._speaks = speaks

    def hear(self, number: int, frame: FrameType | None) -> None:
        """Called by the system."""
        super().hear(number, frame)
        if self.times > 1:
            raise Terminated if number == signal.SIGTERM else KeyboardInterrupt
        if self._speaks:
            # os.write: a handler may interrupt a print.
            os.write(2, b"stopping after this iteration; once more to stop at once\n")


def run(arguments: argparse.Namespace) -> int:
    """Train in this process, as one process of many, or by starting many."""
    config = _config(arguments)
    if config.tensorboard == "on" and own_rank() == 0:
        check_installed()
    keep_freed_memory()
    if config.workers * config.shards == 1:
        return _run_in(World(), config, arguments)
    if not is_worker():
        return _launch(config, arguments)
    from pdadmm.engine.comm import DistributedWorld

    die_with_launcher()
    return _run_in(DistributedWorld(config.workers, config.shards, config.timeout), config, arguments)


def _config(arguments: argparse.Namespace) -> Config:
    """What the flags say, or, of a run to resume, what it was begun with and the flags change."""
    if arguments.resume is None:
        if arguments.allow_changes:
            raise UserError("--allow-changes is for --resume")
        return config_from(arguments)
    for name in ("out", "overwrite", "config", "preset"):
        if getattr(arguments, name):
            raise UserError(f"--resume goes on in its own directory with its own options; --{name} does not go with it")
    before = read_config(arguments.resume, resumes=True)
    config = config_from(arguments, before.handed_over(given_options(arguments).get("method", before.method)))
    config.resolved().check_resumes(before.resolved(), arguments.allow_changes)
    return config


def _launch(config: Config, arguments: argparse.Namespace) -> int:
    """Hold the directory, find mistakes once, before any process starts; then start them."""
    given, out = list(arguments.argv), _out(arguments, config)
    if arguments.resume is None:
        given += ["--out", str(out)]
    with RunDirectory(out, arguments.overwrite, arguments.resume is not None) as directory:
        check_run(config.resolved(), _load(config, arguments, out), storage_of(config, out))
        return launch(given, config, out, directory.lock)


def _load(config: Config, arguments: argparse.Namespace, out: Path) -> Dataset:
    try:
        return load_for(config, out)
    except UserError as error:
        if arguments.resume is None or not Path(config.data).suffix or Path(config.data).exists():
            raise
        raise UserError(f"{error}; if it has moved, say where it is now by --data") from None


def _out(arguments: argparse.Namespace, config: Config) -> Path:
    named: Path | None = arguments.resume or arguments.out
    return named or Path("runs") / f"{Path(config.data).stem}-{time.strftime('%Y%m%d-%H%M%S')}"


def _run_in(world: World, config: Config, arguments: argparse.Namespace) -> int:
    """One process's part; the first one speaks and writes for all."""
    out = _out(arguments, config)
    is_first = world.stage == world.shard == 0
    place = Place(out, arguments.overwrite, arguments.resume is not None, arguments.allow_changes)

    def load() -> Dataset | None:
        return _load(config, arguments, out) if holds_data(world) else None

    with _StopRequests(speaks=is_first) as stop:
        progress = Progress(config.epochs, arguments.quiet or not is_first)
        warn = progress.warn if is_first else progress.note
        observer = Observer(progress.row, progress.note, lambda: stop.number > 0, warn)
        try:
            summary = carry_out(world, config, load, place, observer)
        finally:
            progress.close()
    world.close()
    if summary is None:
        return 0
    _print_summary(summary, out, arguments.json)
    if summary["status"] != "interrupted":
        return 0
    if config.saves and summary["checkpoints"]["last_epoch"] != summary["epochs"]:
        raise StorageError("the run was stopped, but its last checkpoint could not be written")
    return 128 + (stop.number or signal.SIGTERM)  # another process of the run may have been the one that was asked


def _print_summary(summary: dict[str, Any], out: Path, as_json: bool) -> None:
    if as_json:
        print(json.dumps({**summary, "out": str(out)}))
        return
    scores = "  ".join(f"{name} {value:.4f}" for name, value in summary["scores"].items())
    say(f"{summary['status']} after {summary['epochs']} epochs: {scores}  ({summary['seconds']:.1f} s of training)")
    say(f"{summary['advice']}")
    say(f"run directory: {out}")
    if summary["status"] == "interrupted" and summary["checkpoints"]["last_epoch"] == summary["epochs"]:
        say(f"go on with: pdadmm train --resume {quoted(as_argument(out))}")
    if summary["restarts"]:
        often = "once" if summary["restarts"] == 1 else f"{summary['restarts']} times"
        say(f"the run was started again {often}; times below are since then")
    if summary["checkpoints"]["failed"]:
        say(f"{summary['checkpoints']['failed']} checkpoints could not be written")
    if len(summary["workers"]) > 1:
        times = [worker["compute_seconds"] for worker in summary["workers"]]
        slowest = times.index(max(times))
        layers = summary["workers"][slowest]["layers"]
        say(
            f"the others wait for worker {slowest + 1} (layers {layers[0]} to {layers[-1]}); what each did is in "
            f"{SUMMARY_FILE} and the report"
        )
