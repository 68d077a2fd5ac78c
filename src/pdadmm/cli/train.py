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
from pdadmm.config import to_toml
from pdadmm.rundir import MODEL_FILE, PLOT_FILE, SUMMARY_FILE, RunDirectory
from pdadmm.summary import summarise
from pdadmm.trainer import Observer, Result, load_for, train

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
    """Train, with progress; every file is written whole."""
    config = config_from(arguments)
    data = load_for(config)
    out: Path = arguments.out or Path("runs") / f"{Path(config.data).stem}-{time.strftime('%Y%m%d-%H%M%S')}"
    with RunDirectory(out, arguments.overwrite) as directory, _StopRequest() as stop:
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
            result = train(config, data, Observer(on_row, progress.note, lambda: stop.asked))
        finally:
            progress.close()
        summary = summarise(result, data)
        _store(directory, result, summary, progress)
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
