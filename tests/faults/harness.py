"""Start a run that will meet faults, watch it, and compare what it came to; nothing is left running."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

from processes import assert_gone, processes_of, rank_of

INJECT = Path(__file__).parent / "inject"
SECONDS = 180  # within which everything must end, on a busy machine too
_TAIL = 2**14  # bytes that hold more than one row
TRAIN = ("train", "--hidden", "6x30", "--epochs", "24", "--checkpoint-every", "5", "--quiet")
"""Digits, seven layers of which four come in epoch 8; checkpoints at 5, 10, 15, 20 and 24."""


@dataclass(frozen=True)
class Fault:
    """A signal that a rank sends itself at a place of `inject/sitecustomize.py`, in this epoch or the next chance."""

    rank: int
    place: str
    epoch: int
    marker: Path
    signal: int = signal.SIGKILL
    again: bool = False

    @property
    def happened_in(self) -> int | None:
        """The epoch in which it happened, or None if it did not yet."""
        text = self.marker.read_text() if self.marker.exists() else ""
        return int(text) if text else None


def python(*arguments: str) -> list[str]:
    return [sys.executable, "-m", *arguments]


def pdadmm(*arguments: str) -> list[str]:
    return python("pdadmm", *arguments)


def environment(faults: Sequence[Fault] = (), **more: str) -> dict[str, str]:
    """The environment of a launcher whose processes will meet these faults."""
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", **more}
    if faults:
        before = [os.environ["PYTHONPATH"]] if os.environ.get("PYTHONPATH") else []
        env["PYTHONPATH"] = os.pathsep.join([str(INJECT), *before])
        env["PDADMM_FAULTS"] = json.dumps([{**asdict(fault), "marker": str(fault.marker)} for fault in faults])
    return env


class Run:
    """A launcher and its processes; use it as a context manager, which ends all of them.

    Standard error is read line by line, each with the time at which it came. `out` is the run directory, by which the
    processes are known: it is in all of their command lines.
    """

    def __init__(self, command: Sequence[str], out: Path, faults: Sequence[Fault] = (), **env: str) -> None:
        self.out = out
        self.lines: list[tuple[float, str]] = []
        self._process = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(faults, **env),
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as lines:
            for line in lines:
                self.lines.append((time.time(), line.rstrip("\n")))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pid in {self._process.pid, *processes_of(str(self.out))}:
            kill(pid, signal.SIGCONT, signal.SIGKILL)
        self._process.wait(timeout=SECONDS)
        self._reader.join(timeout=SECONDS)

    @property
    def pid(self) -> int:
        """The launcher's."""
        return self._process.pid

    @property
    def errors(self) -> str:
        """Standard error so far."""
        return "\n".join(line for _, line in self.lines)

    @property
    def is_running(self) -> bool:
        """Whether the launcher has not ended yet."""
        return self._process.poll() is None

    def workers(self) -> dict[int, int]:
        """The processes of the run by rank."""
        found = {}
        for pid in processes_of(str(self.out)):
            rank = rank_of(pid)
            if rank is not None:
                found[rank] = pid
        return found

    def wait(self, seconds: float = SECONDS) -> int:
        """The exit code."""
        code = self._process.wait(timeout=seconds)
        self._reader.join(timeout=seconds)
        return code

    def until(self, happened: Callable[[], Any], seconds: float = SECONDS) -> Any:
        """Wait for something to be true while the run goes on; it must happen."""
        deadline = time.monotonic() + seconds
        while not (found := happened()):
            assert time.monotonic() < deadline, f"did not happen in {seconds} s: {self.errors}"
            assert self.is_running or happened(), f"the run ended before: {self.errors}"
            time.sleep(0.02)
        return found

    def said(self, text: str) -> float | None:
        """When a line with this text came, or None."""
        return next((moment for moment, line in self.lines if text in line), None)

    def until_epoch(self, epoch: int) -> None:
        """Wait for an epoch's row."""
        self.until(lambda: last_epoch(self.out) >= epoch)


@dataclass(frozen=True)
class Recovery:
    """What a fault cost."""

    event: str
    detected: float
    recovered: float
    lost: int
    bits_equal: bool

    HEAD = f"{'event':<40} {'detected':>9} {'recovered':>10} {'iterations lost':>16} {'bits equal':>11}"

    def __str__(self) -> str:
        bits = "yes" if self.bits_equal else "NO"
        return f"{self.event:<40} {self.detected:>7.2f} s {self.recovered:>8.2f} s {self.lost:>16} {bits:>11}"


def pause(rank: int, epoch: int, marker: Path) -> Fault:
    """Stops a rank in an epoch, and thereby the run, so that things can be done to it; SIGCONT lets it go on."""
    return Fault(rank, "q", epoch, marker, signal.SIGSTOP)


def finish(out: Path, command: Sequence[str]) -> None:
    """A run to its end that nothing happens to."""
    with Run(command, out) as run:
        code = run.wait()
        assert code == 0, run.errors
        assert_gone(str(out))


def recover(
    event: str, command: Sequence[str], out: Path, fault: Fault, calm: Path, then: Callable[[Run], None] | None = None
) -> Recovery:
    """Carry out a run that meets a fault and must end well by itself, and compare it with the calm one."""
    with Run(command, out, [fault]) as run:
        if then is not None:
            run.until(lambda: fault.happened_in)
            then(run)
        detected: float = run.until(lambda: run.said("starting again"))
        before = _stamp(out)
        run.until(lambda: _stamp(out) != before)
        recovered = (out / "history.jsonl").stat().st_mtime
        code = run.wait()
        assert code == 0, run.errors
        assert_gone(str(out))
    assert fault.happened_in is not None
    moment = fault.marker.stat().st_mtime
    lost = fault.happened_in - (resumed_from(out) or 0)
    return Recovery(event, detected - moment, recovered - moment, lost, same_bits(out, calm))


def _stamp(out: Path) -> tuple[int, int]:
    try:
        stat = (out / "history.jsonl").stat()
    except FileNotFoundError:
        return 0, 0
    return stat.st_size, stat.st_mtime_ns


def same_bits(out: Path, calm: Path, stopped_in: int | None = None) -> bool:
    """Whether a run has the model of another to the last bit, and its history but for the time it took.

    The row that a run was asked to stop in may hold more than it would have: all that a last row is evaluated for.
    """
    models = [(run / "model.safetensors").read_bytes() for run in (out, calm)]
    rows, expected = history(out), history(calm)
    for number, row in enumerate(rows):
        if row["epoch"] == stopped_in:
            rows[number] = {key: value for key, value in row.items() if key in expected[number]}
    return models[0] == models[1] and rows == expected


def history(out: Path) -> list[dict[str, Any]]:
    """The rows without the keys that say how long they took."""
    rows = [json.loads(line) for line in (out / "history.jsonl").read_text().splitlines()]
    return [{key: value for key, value in row.items() if key not in ("seconds", "workers")} for row in rows]


def last_epoch(out: Path) -> int:
    """The epoch of the last row that is whole; 0 if there is none."""
    try:
        with (out / "history.jsonl").open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL))
            lines = file.read().split(b"\n")[:-1]
    except FileNotFoundError:
        return 0
    return int(json.loads(lines[-1])["epoch"]) if lines else 0


def resumed_from(out: Path) -> int | None:
    """The epoch of the checkpoint that a run last went on from."""
    found: int | None = json.loads((out / "summary.json").read_text())["resumed_from"]
    return found


def checkpoints(out: Path) -> list[int]:
    """The epochs of the checkpoints that are there."""
    return sorted(int(path.name.removeprefix("epoch-")) for path in (out / "checkpoints").glob("epoch-????????"))


@contextmanager
def small_disk(path: Path, megabytes: int) -> Iterator[Path]:
    """A file system of its own, which can be filled."""
    if os.geteuid() != 0:
        pytest.skip("a small file system needs root")
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(path)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("this machine does not allow to mount a tmpfs")
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


def fill(disk: Path, room: int) -> Path:
    """A file that leaves so many bytes."""
    filler = disk / "filler"
    with filler.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(1, shutil.disk_usage(disk).free - room))
    return filler


def kill(pid: int, *signals: int) -> None:
    """Send signals to a process that may have ended."""
    for number in signals:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return


def is_pending(pid: int, number: int) -> bool:
    """Whether a signal has been sent to a process that is stopped and has not seen it yet."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    masks = [int(line.split()[1], 16) for line in lines if line.startswith(("SigPnd", "ShdPnd"))]
    return any(mask >> (number - 1) & 1 for mask in masks)
