"""Two hosts on one machine: network namespaces joined by a veth pair, with an optional limit on the link.

Needs root and iproute2; tests skip with the reason where they are missing. `run_on_both` is what a user types on two
hosts: one torchrun on each, with one worker.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

ADDRESSES = ("10.77.0.1", "10.77.0.2")
DEVICES = ("veth-a", "veth-b")


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
        _ip("link", "add", DEVICES[0], "netns", names[0], "type", "veth", "peer", "name", DEVICES[1], "netns", names[1])
        for name, device, address in zip(names, DEVICES, ADDRESSES, strict=True):
            _ip("-n", name, "address", "add", f"{address}/24", "dev", device)
            _ip("-n", name, "link", "set", device, "up")
            _ip("-n", name, "link", "set", "lo", "up")
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def limit(names: tuple[str, str], megabits: int) -> None:
    """Let at most so many megabits a second pass in each direction."""
    for name, device in zip(names, DEVICES, strict=True):
        tc = ["ip", "netns", "exec", name, "tc", "qdisc", "replace", "dev", device, "root", "tbf"]
        burst = max(16_000, megabits * 1_000_000 // 8 // 250)
        subprocess.run([*tc, "rate", f"{megabits}mbit", "burst", str(burst), "latency", "200ms"], check=True)


def unlimit(names: tuple[str, str]) -> None:
    """Take the limit away, if there is one."""
    for name, device in zip(names, DEVICES, strict=True):
        tc = ["ip", "netns", "exec", name, "tc", "qdisc", "del", "dev", device, "root"]
        subprocess.run(tc, capture_output=True, check=False)


def run_on_both(names: tuple[str, str], arguments: Sequence[str], timeout: float) -> None:
    """`pdadmm ARGUMENTS` under torchrun, a worker of one thread on each host; both must end well."""
    ends = []
    for node, (name, device) in enumerate(zip(names, DEVICES, strict=True)):
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--node-rank", str(node)]
        torchrun += ["--nproc-per-node", "1", "--master-addr", ADDRESSES[0], "--master-port", "29577"]
        command = ["ip", "netns", "exec", name, *torchrun, "-m", "pdadmm", *arguments]
        environment = {**os.environ, "GLOO_SOCKET_IFNAME": device, "OMP_NUM_THREADS": "1"}
        ends.append(subprocess.Popen(command, env=environment))
    try:
        codes = [process.wait(timeout=timeout) for process in ends]
    finally:
        for process in ends:
            process.kill()
    if any(codes):
        raise RuntimeError(f"pdadmm {' '.join(arguments)} ended with {codes}")


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)
