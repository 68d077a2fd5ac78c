"""5,000 iterations of a small network with a worker killed every 500: the same bits, and nothing that grows."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from faults.harness import Fault, Run, last_epoch, pdadmm, resumed_from, same_bits
from processes import assert_gone

EPOCHS, BETWEEN = 5000, 500
PLACES = ("p", "W", "z", "q", "exchange", "checkpoint file")
SECONDS = 900
FILES = 4  # that a worker has open only while it writes a checkpoint
MEGABYTES = 24  # the first worker keeps the rows of the history, some 12 MB in the end

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Usage:
    """What a run takes of the machine halfway between two kills."""

    epoch: int
    launcher_mb: float
    launcher_files: int
    workers_mb: list[float]
    workers_files: list[int]
    shared_memory: int
    temporary: int

    HEAD = "epoch  launcher MB  files  workers MB   files    /dev/shm  temporary"

    def __str__(self) -> str:
        workers = "  ".join(f"{size:.0f}" for size in self.workers_mb)
        return (
            f"{self.epoch:>5} {self.launcher_mb:>12.1f} {self.launcher_files:>6}  {workers:>10}  "
            f"{self.workers_files!s:>8} {self.shared_memory:>9} {self.temporary:>10}"
        )


def measure(run: Run, temporary: Path) -> Usage:
    epoch, workers = last_epoch(run.out), [pid for _, pid in sorted(run.workers().items())]
    return Usage(
        epoch,
        memory(run.pid),
        open_files(run.pid),
        [memory(pid) for pid in workers],
        [open_files(pid) for pid in workers],
        entries("/dev/shm"),
        entries(temporary),
    )


def memory(pid: int) -> float:
    """Resident, in MB."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def open_files(pid: int) -> int:
    return entries(f"/proc/{pid}/fd")


def entries(directory: str | Path) -> int:
    return len(list(Path(directory).iterdir()))


def test_many_deaths_leave_no_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, temporary = tmp_path / "data.npz", tmp_path / "temporary"
    temporary.mkdir()
    rng = np.random.default_rng(0)
    X = rng.normal(size=(240, 6)).astype(np.float32)
    np.savez(data, X=X, y=X[:, :3].argmax(1))
    command = ["train", "--data", str(data), "--hidden", "4x8", "--epochs", str(EPOCHS), "--workers", "2", "--quiet"]
    command += ["--set", "placement=3,2"]  # so that both have a q; balanced, the second has the output layer alone
    command += ["--checkpoint-every", "50", "--set", "evaluate_every=100", "--set", "stationarity_every=0"]
    calm, out = tmp_path / "calm", tmp_path / "run"
    with Run(pdadmm(*command, "--out", str(calm)), calm) as run:
        assert run.wait(SECONDS) == 0, run.errors
    kills = range(BETWEEN, EPOCHS, BETWEEN)
    faults = [
        Fault(number % 2, PLACES[number % len(PLACES)], epoch, tmp_path / f"fault-{epoch}")
        for number, epoch in enumerate(kills)
    ]
    found: list[Usage] = []
    with Run(pdadmm(*command, "--restarts", "20", "--out", str(out)), out, faults, TMPDIR=str(temporary)) as run:
        for middle in range(BETWEEN // 2, EPOCHS, BETWEEN):
            run.until(lambda middle=middle: last_epoch(out) >= middle, SECONDS)  # type: ignore[misc]
            found.append(measure(run, temporary))
        assert run.wait(SECONDS) == 0, run.errors
        assert_gone(str(out))
    with capsys.disabled():
        print("\n" + "\n".join([Usage.HEAD, *map(str, found)]))
    assert run.errors.count("starting again") == len(kills)
    assert all(fault.happened_in for fault in faults)
    assert resumed_from(out) in (4450, 4500)  # whether the checkpoint of 4500 was whole is a matter of luck
    assert same_bits(out, calm)
    # The first start has not yet imported and allocated what a restart needs.
    second, last = found[1], found[-1]
    assert last.launcher_mb < second.launcher_mb + MEGABYTES
    assert last.launcher_files <= second.launcher_files
    assert max(last.workers_mb) < max(second.workers_mb) + MEGABYTES
    assert max(last.workers_files) <= max(second.workers_files) + FILES
    assert last.shared_memory <= second.shared_memory
    assert last.temporary <= len(kills) + 1  # torchelastic leaves an empty folder each time it starts processes
