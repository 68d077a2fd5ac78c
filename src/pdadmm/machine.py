"""What this machine has to offer: usable cores and free memory, by affinity and cgroup as well as by size."""

from __future__ import annotations

import os
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")


def usable_cores() -> int:
    """Cores this process may use: its affinity mask, capped by the cgroup's quota."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _read(_CGROUP / "cpu.max").split()
    if len(quota) == 2 and quota[0] != "max":
        cores = min(cores, max(1, int(quota[0]) // int(quota[1])))
    return cores


def available_memory() -> int | None:
    """Bytes that can be had without swapping, or None where that cannot be told."""
    free = _meminfo("MemAvailable")
    limit, used = _read(_CGROUP / "memory.max").strip(), _read(_CGROUP / "memory.current").strip()
    if limit.isdigit() and used.isdigit():
        left = int(limit) - int(used)
        free = left if free is None else min(free, left)
    return free


def resident_memory() -> int:
    """Bytes this process holds now; 0 where that cannot be told."""
    fields = _read(Path("/proc/self/statm")).split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") if len(fields) > 1 else 0


def _meminfo(key: str) -> int | None:
    for line in _read(Path("/proc/meminfo")).splitlines():
        name, _, value = line.partition(":")
        if name == key:
            return int(value.split()[0]) * 1024
    return None


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
