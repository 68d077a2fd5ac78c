"""Two hosts on one machine: network namespaces joined by a veth pair, with an optional limit on the link.

Needs root and iproute2; tests skip with the reason where they are missing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

ADDRESSES = ("10.77.0.1", "10.77.0.2")


def why_not() -> str | None:
    """Why this machine cannot have such hosts, or None."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None or shutil.which("tc") is None:
        return "network namespaces need iproute2 (ip and tc)"
    probe = f"pdadmm-probe-{os.getpid()}"
    if subprocess.run(["ip", "netns", "add", probe], capture_output=True, check=False).returncode:
        return "this machine does not allow network namespaces"
    subprocess.run(["ip", "netns", "del", probe], check=True)
    return None


@contextmanager
def two_hosts() -> Iterator[tuple[str, str]]:
    """The names of two namespaces that reach each other at ADDRESSES."""
    names = (f"pdadmm-{os.getpid()}-a", f"pdadmm-{os.getpid()}-b")
    try:
        for name in names:
            _ip("netns", "add", name)
        _ip("link", "add", "veth-a", "netns", names[0], "type", "veth", "peer", "name", "veth-b", "netns", names[1])
        for name, device, address in zip(names, ("veth-a", "veth-b"), ADDRESSES, strict=True):
            _ip("-n", name, "address", "add", f"{address}/24", "dev", device)
            _ip("-n", name, "link", "set", device, "up")
            _ip("-n", name, "link", "set", "lo", "up")
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def limit(names: tuple[str, str], megabits: int) -> None:
    """Let at most so many megabits a second pass in each direction."""
    for name, device in zip(names, ("veth-a", "veth-b"), strict=True):
        tc = ["ip", "netns", "exec", name, "tc", "qdisc", "replace", "dev", device, "root", "tbf"]
        burst = max(16_000, megabits * 1_000_000 // 8 // 250)
        subprocess.run([*tc, "rate", f"{megabits}mbit", "burst", str(burst), "latency", "200ms"], check=True)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)
