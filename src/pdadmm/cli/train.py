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

from pdadmm.cli.options import add_config_flags, add_output_flags, config_from
from pdadmm.cli.progress import Progress
from pdadmm.config import Config, to_toml
from pdadmm.data import Dataset
from pdadmm.engine.launch import die_with_launcher, is_worker, launch
from pdadmm.engine.world import LocalWorld, World
from pdadmm.observer import Observer, silent
from pdadmm.plan import format_bytes
from pdadmm.prepare import check_run, holds_data
from pdadmm.rundir import MODEL_FILE, PLOT_FILE, SUMMARY_FILE, RunDirectory
from pdadmm.summary import summarise
from pdadmm.trainer import Result, load_for, train_in

INTERRUPTED = 130


def add_parser(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser("train", help="train a network and write a run directory")
    add_output_flags(parser, "run directory (default: runs/DATA-TIME)")
    parser.add_argument("--overwrite", action="store_true", help="replace a run that --out already holds")
    parser.add_argument("--quiet", action="store_true", help="show no progress and no notes")
    add_config_flags(parser)
    parser.set_defaults(run=run)


class _StopRequest:
    """Ctrl-C or SIGTERM asks the run to end after the iteration; a second one ends it at once."""

    def __init__(self) -> None:
        self.asked = False

    def __enter__(self) -> _StopRequest:
        self._before = {number: signal.signal(number, self._handle) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
        # os.write: a handler may interrupt a print.
        os.write(2, b"stopping after this iteration; once more to stop at once\n")


def run(arguments: argparse.Namespace) -> int:
    """Train in this process, as one process of many, or by starting many."""
    config = config_from(arguments)
    if config.workers * config.shards == 1:
        return _run_in(LocalWorld(), config, arguments)
    if not is_worker():
        return _launch(config, arguments)
    from pdadmm.engine.comm import DistributedWorld

    die_with_launcher()
    return _run_in(DistributedWorld(config.workers, config.shards, config.timeout), config, arguments)


def _launch(config: Config, arguments: argparse.Namespace) -> int:
    """Find mistakes once, before any process starts; then start them."""
    data = load_for(config)
    check_run(config.resolved(), data)
    out = _out(arguments, config)
    given = [*arguments.argv, "--out", str(out)]
    return launch(given, config.workers * config.shards, config.threads)


def _out(arguments: argparse.Namespace, config: Config) -> Path:
    named: Path | None = arguments.out
    return named or Path("runs") / f"{Path(config.data).stem}-{time.strftime('%Y%m%d-%H%M%S')}"


def _run_in(world: World, config: Config, arguments: argparse.Namespace) -> int:
    """One process's part; the first one speaks and writes for all."""
    data = load_for(config) if holds_data(world) else None
    with _StopRequest() as stop:
        if world.stage or world.shard:
            observer = silent()
            observer.should_stop = lambda: stop.asked
            train_in(world, config, data, observer)
            world.close()
            return 0
        assert data is not None
        return _run_first(world, config, data, arguments, stop)


def _run_first(world: World, config: Config, data: Dataset, arguments: argparse.Namespace, stop: _StopRequest) -> int:
    """Train, with progress; every file is written whole."""
    out = _out(arguments, config)
    with RunDirectory(out, arguments.overwrite) as directory:
        progress = Progress(config.epochs, arguments.quiet)
        begun = False

        def on_row(row: dict[str, Any]) -> None:
            nonlocal begun
            if not begun:
                directory.begin(to_toml(config.resolved()))
                begun = True
            directory.append_row(row)
            progress.row(row)

        try:
            result = train_in(world, config, data, Observer(on_row, progress.note, lambda: stop.asked))
        finally:
            progress.close()
        assert result is not None
        summary = summarise(result, data)
        _store(directory, result, summary, progress)
    world.close()
    _print_summary(summary, out, arguments.json)
    return INTERRUPTED if result.status == "interrupted" else 0


def _store(directory: RunDirectory, result: Result, summary: dict[str, Any], progress: Progress) -> None:
    result.model.save(directory.path / MODEL_FILE)
    directory.write_text(SUMMARY_FILE, json.dumps(summary, indent=2) + "\n")
    try:
        from pdadmm.plot import plot_run
    except ImportError:
        progress.note(f"no {PLOT_FILE}: it needs pip install 'pdadmm[plot]'")
    else:
        plot_run(result.history, directory.path / PLOT_FILE)


def _print_summary(summary: dict[str, Any], out: Path, as_json: bool) -> None:
    if as_json:
        print(json.dumps({**summary, "out": str(out)}))
        return
    scores = "  ".join(f"{name} {value:.4f}" for name, value in summary["scores"].items())
    print(f"{summary['status']} after {summary['epochs']} epochs: {scores}  ({summary['seconds']:.1f} s of training)")
    print(f"{summary['advice']}")
    print(f"run directory: {out}")
    if len(summary["workers"]) > 1:
        _print_workers(summary["workers"])


def _print_workers(workers: list[dict[str, Any]]) -> None:
    """Who computed, who waited, and for whom everyone did."""
    print("worker  layers      compute      wait      send       sent   idle")
    for number, worker in enumerate(workers, start=1):
        layers = f"{worker['layers'][0]}-{worker['layers'][-1]}"
        times = "".join(f"{worker[f'{name}_seconds']:8.2f} s" for name in ("compute", "wait", "send"))
        sent = format_bytes(worker["bytes_sent"])
        print(f"{number:>6}  {layers:<8}{times} {sent:>10}  {worker['idle_share']:5.1%}")
    print(_who_is_waited_for(workers))


def _who_is_waited_for(workers: list[dict[str, Any]]) -> str:
    """The worker that computed longest."""
    slowest = max(range(len(workers)), key=lambda i: workers[i]["compute_seconds"])
    layers = workers[slowest]["layers"]
    return f"the others wait for worker {slowest + 1} (layers {layers[0]} to {layers[-1]})"
