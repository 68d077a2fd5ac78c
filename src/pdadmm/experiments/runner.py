"""Train what an experiment needs: each run a process and a directory of its own.

A run that has ended is read, one that was stopped goes on, so that a command may be stopped and given again. Runs
that are timed have the machine to themselves; others run side by side.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO

from pdadmm.engine.launch import die_with_launcher
from pdadmm.experiments.cases import Case
from pdadmm.experiments.meter import Meter

POLL_SECONDS = 0.1
INTERRUPTED = 130


@dataclass(frozen=True)
class Failure:
    """A run that did not come to its end."""

    run: str
    code: int
    message: str

    def __str__(self) -> str:
        return f"{self.run} ended with code {self.code}: {self.message}"


@dataclass
class _Running:
    case: Case
    process: subprocess.Popen[bytes]
    errors: IO[bytes]

    def last_line(self) -> str:
        self.errors.seek(0)
        lines = self.errors.read().decode(errors="replace").strip().splitlines()
        return lines[-1].removeprefix("pdadmm: error: ") if lines else "it said nothing"


class Runner:
    """Runs cases, `jobs` at a time, with `threads` each."""

    def __init__(self, meter: Meter, jobs: int, threads: int) -> None:
        self._meter, self._jobs, self._threads = meter, jobs, threads
        self._running: list[_Running] = []
        self._stops = 0

    def run(self, cases: Sequence[Case]) -> list[Failure]:
        """Train all of them; those that failed are told, and do not stop the others.

        Ctrl-C or SIGTERM lets the running ones finish an iteration and save, and then raises KeyboardInterrupt.
        """
        waiting = [case for case in cases if not case.is_finished()]
        failures: list[Failure] = []
        before = {number: signal.signal(number, self._stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            while (waiting and not self._stops) or self._running:
                while waiting and not self._stops and self._has_room(waiting[0]):
                    self._start(waiting.pop(0))
                failures += self._collect()
                self._report()
                time.sleep(POLL_SECONDS)
        finally:
            for running in self._running:
                running.process.kill()
                running.process.wait()
            for number, handler in before.items():
                signal.signal(number, handler)
            self._meter.close()
        if self._stops:
            raise KeyboardInterrupt
        return failures

    def _has_room(self, case: Case) -> bool:
        if case.alone or any(running.case.alone for running in self._running):
            return not self._running
        return len(self._running) < self._jobs

    def _start(self, case: Case) -> None:
        errors = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the process
        threads = 1 if case.alone else self._threads
        process = subprocess.Popen(
            [sys.executable, "-m", "pdadmm", "train", "--quiet", *case.arguments(threads)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            # Ctrl-C at a terminal would reach it a second time, which ends a run at once.
            start_new_session=True,
            preexec_fn=die_with_launcher,
        )
        self._running.append(_Running(case, process, errors))

    def _collect(self) -> list[Failure]:
        """Take away those that have ended."""
        failures = []
        for running in [found for found in self._running if found.process.poll() is not None]:
            self._running.remove(running)
            case, code = running.case, running.process.returncode
            if case.is_finished():
                self._meter.advance(case.key, 1.0)
                self._meter.show(f"{case.name} has ended", now=True)
            elif not (self._stops and code in (INTERRUPTED, -signal.SIGINT, -signal.SIGTERM)):
                failures.append(Failure(case.name, code, running.last_line()))
                self._meter.say(f"failed: {failures[-1]}")
            running.errors.close()
        return failures

    def _report(self) -> None:
        doing = []
        for running in self._running:
            case = running.case
            done = min(case.epochs_done(), case.config.epochs)
            self._meter.advance(case.key, 0.999 * done / case.config.epochs)
            doing.append(f"{case.name} epoch {done}/{case.config.epochs}")
        if doing:
            self._meter.show(", ".join(doing))

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self._stops += 1
        for running in self._running:
            if self._stops > 2:
                running.process.kill()
            else:
                running.process.send_signal(signal.SIGINT)


def finished(cases: Sequence[Case]) -> list[Case]:
    """Those that have ended."""
    return [case for case in cases if case.is_finished()]


def samples_used(cases: Mapping[str, Case]) -> list[str]:
    """A note of what was really trained on, by data set; caches may hold a part of one."""
    found = []
    for name, case in cases.items():
        summary = case.summary()
        if summary is not None:
            data = summary["data"]
            found.append(f"{name} {data['train_samples']:,}/{data['test_samples']:,}")
    return [f"Training and test samples of the runs: {', '.join(found)}."] if found else []


def run_folder(out: Path, experiment: str) -> Path:
    """Where the runs of an experiment live."""
    return out / experiment / "runs"
