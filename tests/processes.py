"""Processes of a run, found by what their command lines hold, as /proc has them."""

from __future__ import annotations

import os
import time
from pathlib import Path


def processes_of(marker: str) -> list[int]:
    """Processes whose command line holds this text; what has ended but was not waited for has none."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue
            if marker in line:
                found.append(int(entry.name))
    return found


def rank_of(pid: int) -> int | None:
    """A process's rank, by its environment; None if it has none."""
    try:
        values = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    return next((int(value[5:]) for value in values if value.startswith(b"RANK=")), None)


def rank_process(marker: str, rank: int) -> int:
    """The process of a rank."""
    return next(pid for pid in processes_of(marker) if rank_of(pid) == rank)


def assert_gone(marker: str) -> None:
    """No process of the run is left, at the latest after a while."""
    deadline = time.monotonic() + 20
    while (left := processes_of(marker)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not left
