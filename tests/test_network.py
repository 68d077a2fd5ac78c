"""What a run on this machine offers to the network: gloo's sockets on loopback, of which strangers can make no use."""

from __future__ import annotations

import ipaddress
import os
import signal
import socket
import struct
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from faults.harness import TRAIN, Run, finish, kill, pause, pdadmm, same_bits
from processes import assert_gone, processes_of

Address = tuple[str, int]
_LISTENS = "0A"
CONNECTIONS = 1000


def listening(pids: list[int]) -> set[Address]:
    """Where these processes listen, by /proc."""
    inodes = set()
    for pid in pids:
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            target = str(entry.readlink())
            if target.startswith("socket:["):
                inodes.add(target[8:-1])
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == _LISTENS and fields[9] in inodes:
                found.add(_address(fields[1]))
    return found


def _address(text: str) -> Address:
    """An address as /proc writes it: words of four bytes in the machine's order."""
    words, port = text.split(":")
    packed = b"".join(struct.pack("=I", int(words[i : i + 8], 16)) for i in range(0, len(words), 8))
    return str(ipaddress.ip_address(packed)), int(port, 16)


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nobody disturbs."""
    out = tmp_path_factory.mktemp("calm") / "run"
    finish(out, pdadmm(*TRAIN, "--out", str(out)))
    return out


def connect(address: Address) -> socket.socket:
    found = socket.create_connection(address, timeout=5)
    found.settimeout(0.2)
    return found


def garbage(address: Address) -> list[socket.socket]:
    for content in (b"\0" * 64, b"\xff" * 64, b"GET / HTTP/1.1\r\n\r\n", os.urandom(2**16)):
        with connect(address) as peer:
            try:
                peer.sendall(content)
                peer.recv(64)
            except OSError:  # it hung up, or says nothing
                pass
    return []


def half_a_message(address: Address) -> list[socket.socket]:
    """Too little to be understood, and no end."""
    peers = [connect(address) for _ in range(3)]
    for size, peer in zip((1, 3, 7), peers, strict=True):
        peer.send(b"\x01" * size)
    return peers


def many_connections(address: Address) -> list[socket.socket]:
    peers: list[socket.socket] = []
    try:
        for _ in range(CONNECTIONS):
            peers.append(connect(address))
    except OSError:  # it takes no more, which is its good right
        pass
    return peers


Attack = Callable[[Address], list[socket.socket]]
"""What a stranger does; the connections that it leaves open until the run has ended."""


@pytest.mark.parametrize("attack", [garbage, half_a_message, many_connections])
def test_strangers_reach_nothing_that_matters(attack: Attack, tmp_path: Path, calm: Path) -> None:
    """All listeners are on loopback and belong to workers; whatever is sent there, the bits are the same."""
    out, fault = tmp_path / "run", pause(1, 13, tmp_path / "pause")
    with Run(pdadmm(*TRAIN, "--workers", "2", "--set", "placement=4,3", "--out", str(out)), out, [fault]) as run:
        run.until(lambda: fault.happened_in)
        workers = run.workers()
        assert listening([pid for pid in processes_of(str(out)) if pid not in workers.values()]) == set()
        addresses = listening(list(workers.values()))
        assert addresses  # else nothing would be tried
        assert {address for address, _ in addresses} <= {"127.0.0.1", "::1"}
        with ExitStack() as stack:
            for address in addresses:
                for peer in attack(address):
                    stack.enter_context(peer)
            kill(workers[1], signal.SIGCONT)
            assert run.wait() == 0, run.errors
        assert_gone(str(out))
    assert run.errors == ""
    assert same_bits(out, calm)
