"""Train what an experiment needs: each run a `pdadmm train` with a directory of its own.

A run that has ended is read, one that was stopped goes on, so that a command may be stopped and given again. Runs
that are timed have the machine to themselves; others run side by side.
"""

from __future__ import annotations

import dataclasses
import json
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from tqdm import tqdm

from pdadmm.config import Config, to_toml
from pdadmm.engine.launch import die_with_launcher
from pdadmm.errors import UserError
from pdadmm.machine import usable_cores
from pdadmm.run import read_config
from pdadmm.rundir import CONFIG_FILE, HISTORY_FILE, SUMMARY_FILE, make_directory, write_whole

POLL_SECONDS = 0.1
LINE_SECONDS = 30.0  # between two lines of progress, where there is no terminal


@dataclass(frozen=True)
class Case:
    """One `pdadmm train`, in the run directory `path`."""

    path: Path
    config: Config
    data: str | None = None
    """The data set of the paper that it trains on, all of it or a part."""
    is_timed: bool = False
    """Its time is what it is run for, so nothing else may run beside it."""

    def start(self, threads: int) -> subprocess.Popen[bytes]:
        """Begin the run, or go on with it; what it says goes into a file beside its directory."""
        beside = self.path.with_suffix(".toml")
        if self.is_begun and not self.is_timed:
            given = ["--resume", str(self.path), "--data", self.config.data]
        else:  # what was timed in part is timed again: it has no checkpoints, which would take time
            make_directory(self.path.parent)
            write_whole(beside, to_toml(self.config).encode())
            given = ["--config", str(beside), "--out", str(self.path), "--overwrite"]
        command = [sys.executable, "-m", "pdadmm", "train", "--quiet", *given]
        with self.path.with_suffix(".log").open("wb") as log:
            return subprocess.Popen(
                [*command, "--threads", str(1 if self.is_timed else threads)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,  # Ctrl-C at a terminal would reach it a second time, which ends a run at once
                preexec_fn=die_with_launcher,
            )

    def last_line(self) -> str:
        """The last that it said, which is why it failed."""
        lines = self.path.with_suffix(".log").read_text(errors="replace").strip().splitlines()
        return lines[-1].removeprefix("pdadmm: error: ") if lines else "it said nothing"

    @property
    def is_begun(self) -> bool:
        """Whether there is something to go on with."""
        return (self.path / CONFIG_FILE).exists()

    @property
    def is_finished(self) -> bool:
        """Whether it has all its epochs."""
        summary = self.summary()
        return summary is not None and (summary["status"], summary["epochs"]) == ("completed", self.config.epochs)

    def summary(self) -> dict[str, Any] | None:
        """How it ended, if it did."""
        try:
            found: dict[str, Any] = json.loads((self.path / SUMMARY_FILE).read_bytes())
        except (OSError, ValueError):
            return None
        return found

    def epochs_done(self) -> int:
        """Rows of its history, which it may be writing to."""
        try:
            return (self.path / HISTORY_FILE).read_bytes().count(b"\n")
        except OSError:
            return 0

    def check(self) -> None:
        """Refuse a directory that holds a run of other options: its numbers are not those asked for."""
        if not self.is_begun:
            return
        before, now = read_config(self.path).resolved(), self.config.resolved()
        kept = [f.name for f in dataclasses.fields(Config) if f.metadata["on_resume"] != "free"]
        names = [n for n in ("epochs", "workers", "shards", *kept) if getattr(before, n) != getattr(now, n)]
        if names:
            raise UserError(f"{self.path} holds a run of other {', '.join(names)}; choose another --out, or remove it")


@dataclass(frozen=True)
class Failure:
    """A run that did not come to its end."""

    run: str
    code: int
    message: str

    def __str__(self) -> str:
        return f"{self.run} ended with code {self.code}: {self.message}"


def train(cases: Sequence[Case], threads: int, quiet: bool, name: str) -> list[Failure]:
    """Train all that is not finished, as many at a time as the cores allow; those that failed do not stop the others.

    Ctrl-C or SIGTERM lets the running ones finish an iteration and save, and then raises KeyboardInterrupt.
    """
    waiting = [case for case in cases if not case.is_finished]
    running: dict[Case, subprocess.Popen[bytes]] = {}
    failures: list[Failure] = []
    stops = 0

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal stops
        stops += 1
        for process in running.values():
            process.send_signal(signal.SIGINT)

    most = 1 if any(case.is_timed for case in cases) else max(1, usable_cores() // threads)
    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    bar = progress(sum(case.config.epochs for case in cases), "epoch", quiet, name)
    bar.update(sum(case.epochs_done() for case in cases))
    bar.initial = bar.n  # what an earlier command did says nothing of the rate
    try:
        while running or (waiting and not stops):
            while waiting and not stops and len(running) < most:
                case = waiting.pop(0)
                running[case] = case.start(threads)
            time.sleep(POLL_SECONDS)
            for case in [case for case, process in running.items() if process.poll() is not None]:
                code = running.pop(case).returncode
                if not case.is_finished and not stops:
                    failures.append(Failure(case.path.name, code, case.last_line()))
            bar.set_postfix_str(", ".join(case.path.name for case in running), refresh=False)
            bar.update(sum(case.epochs_done() for case in cases) - bar.n)
    finally:
        for process in running.values():
            process.kill()
            process.wait()
        for number, handler in before.items():
            signal.signal(number, handler)
        bar.close()
    if stops:
        raise KeyboardInterrupt
    return failures


def progress(total: int, unit: str, quiet: bool, name: str) -> tqdm[Any]:
    """A bar on standard error with the time left; where that is no terminal, a line now and then."""
    hidden = quiet or sys.stderr is None or not total
    seconds = 0.1 if hidden or sys.stderr.isatty() else LINE_SECONDS
    return tqdm(total=total, unit=unit, desc=name, disable=hidden, mininterval=seconds, dynamic_ncols=True)
