"""What this machine has to offer: usable cores, free memory (by affinity and cgroup as well as by size), devices."""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Callable
from pathlib import Path

import torch

from pdadmm.errors import UserError

_CGROUP = Path("/sys/fs/cgroup")
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
COMMON_CACHE = 32 * 2**20
KEPT_SIZE = 8 * 2**20  # as large as tiles and their temporaries are
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h


def default_threads() -> int:
    """Threads for the arithmetic: OMP_NUM_THREADS where it is set, as for every other program, else usable cores."""
    asked = os.environ.get("OMP_NUM_THREADS", "")
    return int(asked) if asked.isdigit() and int(asked) > 0 else usable_cores()


def usable_cores() -> int:
    """Cores this process may use: its affinity mask, capped by the cgroup's quota."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _read(_CGROUP / "cpu.max").split()
    if len(quota) == 2 and quota[0] != "max":
        cores = min(cores, max(1, int(quota[0]) // int(quota[1])))
    return cores


def last_level_cache() -> int:
    """Bytes of the largest cache that the first core has, or a common size where that cannot be told."""
    found = [_read(index / "size").strip() for index in _CACHES.glob("index*")]
    sizes = [int(size[:-1]) * {"K": 2**10, "M": 2**20}[size[-1]] for size in found if re.fullmatch(r"\d+[KM]", size)]
    return max(sizes, default=COMMON_CACHE)


def keep_freed_memory() -> None:
    """Let the C library keep what tiles give back instead of returning it to the system, to be faulted in again.

    Only where it is glibc; arrays of samples are larger than that and still go back.
    """
    if mallopt := _of_glibc("mallopt"):
        mallopt(_M_MMAP_THRESHOLD, KEPT_SIZE)
        mallopt(_M_TRIM_THRESHOLD, 4 * KEPT_SIZE)


def return_freed_memory() -> None:
    """Give back what was kept, once the arithmetic is over."""
    if malloc_trim := _of_glibc("malloc_trim"):
        malloc_trim(0)


def check_device(name: str) -> None:
    """Refuse a device that torch does not know, or that is not here."""
    try:
        torch.zeros(1, device=name).item()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).partition("\n")[0]
        raise UserError(f"device must be one that torch can use here, such as cpu; got {name!r} ({reason})") from None


def available_memory() -> int | None:
    """Bytes that can be had without swapping, or None where that cannot be told."""
    free = _size_in(Path("/proc/meminfo"), "MemAvailable")
    limit, used = _read(_CGROUP / "memory.max").strip(), _read(_CGROUP / "memory.current").strip()
    if limit.isdigit() and used.isdigit():
        left = int(limit) - int(used)
        free = left if free is None else min(free, left)
    return free


def resident_memory() -> int:
    """Bytes this process holds now; 0 where that cannot be told."""
    fields = _read(Path("/proc/self/statm")).split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") if len(fields) > 1 else 0


def anonymous_memory() -> int:
    """Bytes of it that no file backs, so that the system cannot take them back; 0 where that cannot be told."""
    return _size_in(Path("/proc/self/status"), "RssAnon") or 0


def format_bytes(count: float) -> str:
    """1536 -> 1.5 KiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def _size_in(path: Path, key: str) -> int | None:
    """The bytes that a file of /proc has for a key."""
    for line in _read(path).splitlines():
        name, _, value = line.partition(":")
        if name == key:
            return int(value.split()[0]) * 1024
    return None


def _of_glibc(name: str) -> Callable[..., int] | None:
    try:
        function: Callable[..., int] = getattr(ctypes.CDLL(None), name)
    except (OSError, AttributeError, TypeError):
        return None
    return function


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
