"""Two hosts as network namespaces: a worker killed, the link between them cut and healed."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from benchmarks import hosts

from faults.harness import (
    TRAIN,
    Fault,
    Run,
    checkpoints,
    finish,
    kill,
    pause,
    pdadmm,
    resumed_from,
    same_bits,
)
from processes import assert_gone, processes_of

PATIENT = "read_timeout=600"  # an agent that cannot reach the other waits so long for the link to heal
HASTY = "read_timeout=10,join_timeout=30"

pytestmark = [pytest.mark.slow, pytest.mark.skipif(hosts.why_not() is not None, reason=str(hosts.why_not()))]


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One process that nothing happens to."""
    out = tmp_path_factory.mktemp("calm") / "run"
    finish(out, pdadmm(*TRAIN, "--out", str(out)))
    return out


def torchrun(host: str, address: str, conf: str, *arguments: str) -> list[str]:
    """What a user types on a host, and where; the first one is told to hold the rendezvous, whatever its own name."""
    is_first = int(address == hosts.ADDRESSES[0])
    return [
        *("ip", "netns", "exec", host, sys.executable, "-m", "torch.distributed.run"),
        *("--nnodes", "2", "--nproc-per-node", "1", "--max-restarts", "3"),
        *("--rdzv-backend", "c10d", "--rdzv-endpoint", f"{hosts.ADDRESSES[0]}:29577", "--rdzv-id", "test"),
        *("--rdzv-conf", f"is_host={is_first},{conf}", "--local-addr", address),
        *("-m", "pdadmm", *arguments),
    ]


def launched(host: int, names: tuple[str, str], out: Path, arguments: list[str], fault: Fault | None, conf: str) -> Run:
    """A torchrun on a host; `arguments` end with --out or --resume, which is followed by the host's directory."""
    command = torchrun(names[host], hosts.ADDRESSES[host], conf, *arguments, str(out))
    faults = [fault] if fault else []
    return Run(command, out, faults, GLOO_SOCKET_IFNAME=hosts.DEVICES[host], TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1")


@contextmanager
def on_both(
    names: tuple[str, str], outs: tuple[Path, Path], arguments: list[str], fault: Fault | None, conf: str = PATIENT
) -> Iterator[list[Run]]:
    """A torchrun on each host."""
    with ExitStack() as stack:
        yield [stack.enter_context(launched(host, names, out, arguments, fault, conf)) for host, out in enumerate(outs)]


def ends(runs: list[Run], outs: tuple[Path, Path]) -> list[int]:
    """The exit codes; nothing is left."""
    codes = [run.wait() for run in runs]
    for out in outs:
        assert_gone(str(out))
    return codes


def said(runs: list[Run]) -> str:
    return "\n".join(run.errors for run in runs)


def set_link(names: tuple[str, str], state: str) -> None:
    """Cut the cable, or mend it."""
    subprocess.run(["ip", "-n", names[0], "link", "set", hosts.DEVICES[0], state], check=True, timeout=20)


def directories(tmp_path: Path, shared: bool) -> tuple[Path, Path]:
    """The run directory of each host."""
    return (tmp_path / "run", tmp_path / "run") if shared else (tmp_path / "run-a", tmp_path / "run-b")


OPTIONS = [*TRAIN, "--workers", "2", "--timeout", "10"]


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("shared", [True, False], ids=["one directory", "two directories"])
def test_a_killed_worker(shared: bool, rank: int, tmp_path: Path, calm: Path) -> None:
    """Both agents start their worker again; where the hosts share no files, each has those of its own layers."""
    outs, fault = directories(tmp_path, shared), Fault(rank, "z", 13, tmp_path / "fault")
    with hosts.two_hosts() as names, on_both(names, outs, [*OPTIONS, "--out"], fault) as runs:
        assert ends(runs, outs) == [0, 0], said(runs)
    assert fault.happened_in == 13
    assert same_bits(outs[0], calm)
    for out in outs:
        assert checkpoints(out) == [20, 24]
    if not shared:
        layers = [sorted(path.name[6:9] for path in (out / "checkpoints" / "latest").glob("layer-*")) for out in outs]
        assert layers[0] + layers[1] == [f"{layer:03d}" for layer in range(1, 8)]


def cut_in_an_epoch(runs: list[Run], names: tuple[str, str], fault: Fault) -> None:
    """The cable is cut while an iteration is under way; the processes notice when --timeout has passed."""
    runs[1].until(lambda: fault.happened_in)
    set_link(names, "down")
    kill(runs[1].workers()[1], signal.SIGCONT)
    for run in runs:
        run.until(lambda run=run: run.said("lost another process"))  # type: ignore[misc]


@pytest.mark.parametrize("shared", [True, False], ids=["one directory", "two directories"])
def test_a_link_that_is_cut_and_healed(shared: bool, tmp_path: Path, calm: Path) -> None:
    """The agents wait for each other, and the run goes on by itself."""
    outs, fault = directories(tmp_path, shared), pause(1, 13, tmp_path / "pause")
    with hosts.two_hosts() as names, on_both(names, outs, [*OPTIONS, "--out"], fault) as runs:
        cut_in_an_epoch(runs, names, fault)
        time.sleep(10)  # longer than it took to notice
        set_link(names, "up")
        assert ends(runs, outs) == [0, 0], said(runs)
    assert same_bits(outs[0], calm)
    assert resumed_from(outs[0]) == 10


def test_a_link_that_stays_cut(tmp_path: Path, calm: Path) -> None:
    """The workers end by their deadline and the first agent by its own; the second agent may wait for the kernel to
    give its connection up, but ends when the link is there again. Launched anew, the run goes on."""
    outs, fault = directories(tmp_path, False), pause(1, 13, tmp_path / "pause")
    with hosts.two_hosts() as names:
        with on_both(names, outs, [*OPTIONS, "--out"], fault, HASTY) as runs:
            cut_in_an_epoch(runs, names, fault)
            assert runs[0].wait() != 0
            assert not runs[1].workers()
            set_link(names, "up")
            assert 0 not in ends(runs, outs), said(runs)
        with on_both(names, outs, ["train", "--workers", "2", "--timeout", "10", "--quiet", "--resume"], None) as runs:
            assert ends(runs, outs) == [0, 0], said(runs)
    assert same_bits(outs[0], calm)
    assert resumed_from(outs[0]) == 10


def test_a_host_that_comes_back(tmp_path: Path, calm: Path) -> None:
    """Agent and worker of the second host die; the first waits until the same command is given there again."""
    outs, fault = directories(tmp_path, False), pause(1, 13, tmp_path / "pause")
    with hosts.two_hosts() as names, on_both(names, outs, [*OPTIONS, "--out"], fault) as runs:
        runs[1].until(lambda: fault.happened_in)
        for pid in processes_of(str(outs[1])):
            kill(pid, signal.SIGKILL)
        assert runs[1].wait() != 0
        runs[0].until(lambda: runs[0].said("lost another process"))
        with launched(1, names, outs[1], [*OPTIONS, "--out"], fault, PATIENT) as again:
            both = [runs[0], again]
            assert ends(both, outs) == [0, 0], said(both)
            assert "Traceback" not in said(both), said(both)
    assert same_bits(outs[0], calm)
