"""A run that loses processes ends by itself, with the bits of a run that lost none. Every process has a deadline."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from commands import assert_refused
from faults.harness import (
    TRAIN,
    Fault,
    Recovery,
    Run,
    checkpoints,
    fill,
    finish,
    history,
    is_pending,
    kill,
    last_epoch,
    pause,
    pdadmm,
    recover,
    resumed_from,
    same_bits,
    small_disk,
)
from processes import assert_gone
from resume_cases import pdadmm as in_this_process
from resume_cases import started

WORKERS = (*TRAIN, "--workers", "3")

EPOCHS = {
    "p": 13,
    "W": 9,  # the network has just grown, and no checkpoint knows it yet
    "z": 13,
    "q": 14,
    "exchange": 8,  # while it grows
    "exchange, sent": 17,
    "checkpoint file": 10,
    "checkpoint files": 5,  # there is no checkpoint before it
    "before rename": 10,
    "after rename": 10,
    "after prune": 15,
}
"""In which epoch the fault at a place happens."""

FIRST_ONLY = ("before rename", "after rename", "after prune")  # the first rank does that for all
MATRIX = [(place, rank) for place in EPOCHS for rank in range(1 if place in FIRST_ONLY else 3)]
SAMPLE = [("exchange", 2), ("before rename", 0)]


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nothing happens to."""
    out = tmp_path_factory.mktemp("calm") / "run"
    finish(out, pdadmm(*WORKERS, "--out", str(out)))
    return out


@pytest.fixture(scope="module")
def table(request: pytest.FixtureRequest) -> Iterator[list[Recovery]]:
    """What the faults cost, printed when all have happened."""
    rows: list[Recovery] = []
    yield rows
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        print("\n" + "\n".join([Recovery.HEAD, *map(str, rows)]))


def kill_in(place: str, rank: int, tmp_path: Path, calm: Path) -> Recovery:
    out = tmp_path / "run"
    fault = Fault(rank, place, EPOCHS[place], tmp_path / "fault")
    event = f"SIGKILL of rank {rank}: {place}"
    placed = ("--set", "placement=3,2,2")  # a hidden layer for each, so that each has every step
    found = recover(event, pdadmm(*WORKERS, *placed, "--out", str(out)), out, fault, calm)
    assert found.bits_equal
    return found


@pytest.mark.parametrize(("place", "rank"), SAMPLE)
def test_a_killed_worker(place: str, rank: int, tmp_path: Path, calm: Path) -> None:
    kill_in(place, rank, tmp_path, calm)


@pytest.mark.slow
@pytest.mark.parametrize(("place", "rank"), MATRIX)
def test_a_killed_worker_wherever_it_was(
    place: str, rank: int, tmp_path: Path, calm: Path, table: list[Recovery]
) -> None:
    table.append(kill_in(place, rank, tmp_path, calm))


@pytest.mark.slow
def test_a_hang_ends_by_deadline(tmp_path: Path, calm: Path, table: list[Recovery]) -> None:
    """A stopped process says nothing; the others give up after --timeout, and the launcher ends it with SIGKILL."""
    out = tmp_path / "run"
    fault = Fault(1, "z", 13, tmp_path / "fault", signal.SIGSTOP)
    command = pdadmm(*WORKERS, "--timeout", "8", "--out", str(out))
    found = recover("SIGSTOP of rank 1: z, timeout 8 s", command, out, fault, calm)
    table.append(found)
    assert found.bits_equal


@pytest.mark.slow
def test_two_workers_killed_at_once(tmp_path: Path, calm: Path, table: list[Recovery]) -> None:
    out, fault = tmp_path / "run", pause(1, 13, tmp_path / "pause")

    def kill_two(run: Run) -> None:
        workers = run.workers()
        for rank in (0, 2):
            kill(workers[rank], signal.SIGKILL)
        kill(workers[1], signal.SIGCONT)

    command = pdadmm(*WORKERS, "--out", str(out))
    found = recover("SIGKILL of ranks 0 and 2 at once", command, out, fault, calm, kill_two)
    table.append(found)
    assert found.bits_equal


def resume(out: Path, calm: Path, workers: int = 1, stopped_in: int | None = None) -> None:
    """Go on, with the bits of a run that was never interrupted; one process will do, and starts sooner."""
    finish(out, pdadmm("train", "--resume", str(out), "--workers", str(workers), "--quiet"))
    assert same_bits(out, calm, stopped_in)


ASK = [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)]


@pytest.mark.parametrize("number", ASK)
def test_a_launcher_that_is_asked_to_stop(number: signal.Signals, tmp_path: Path, calm: Path) -> None:
    """The iteration is finished and saved on all workers, and the run can go on from there."""
    out, fault = tmp_path / "run", pause(1, 13, tmp_path / "pause")
    with Run(pdadmm(*WORKERS, "--out", str(out)), out, [fault]) as run:
        run.until(lambda: fault.happened_in)
        kill(run.pid, number)
        stopped = run.workers()[1]
        run.until(lambda: is_pending(stopped, signal.SIGTERM))
        kill(stopped, signal.SIGCONT)
        assert run.wait() == 128 + number, run.errors
        assert_gone(str(out))
    assert_saved(out, 13)
    resume(out, calm, stopped_in=13)
    assert resumed_from(out) == 13


def assert_saved(out: Path, epoch: int) -> None:
    """The run stopped after an epoch, and its checkpoint is there."""
    assert last_epoch(out) == epoch
    assert checkpoints(out)[-1] == epoch
    assert "test_accuracy" in history(out)[-1]
    assert (out / "model.safetensors").exists()


@pytest.mark.slow
def test_a_worker_that_is_asked_to_stop(tmp_path: Path, calm: Path) -> None:
    """SIGTERM of one worker, as a scheduler sends it, stops the run in order."""
    out, fault = tmp_path / "run", Fault(1, "q", 13, tmp_path / "fault", signal.SIGTERM)
    with Run(pdadmm(*WORKERS, "--out", str(out)), out, [fault]) as run:
        assert run.wait() == 143, run.errors
        assert_gone(str(out))
    assert_saved(out, 13)
    resume(out, calm, stopped_in=13)


@pytest.mark.slow
def test_the_launcher_is_killed(tmp_path: Path, calm: Path) -> None:
    out, fault = tmp_path / "run", pause(1, 13, tmp_path / "pause")
    with Run(pdadmm(*WORKERS, "--out", str(out)), out, [fault]) as run:
        run.until(lambda: fault.happened_in)
        kill(run.pid, signal.SIGKILL)
        assert run.wait() == -signal.SIGKILL
        assert_gone(str(out))
    assert not (out / "model.safetensors").exists()
    resume(out, calm, workers=3)
    assert resumed_from(out) == 10


def test_restarts_exhausted(tmp_path: Path, calm: Path) -> None:
    """A fault that happens every time ends the run with a way to go on."""
    out, fault = tmp_path / "run", Fault(2, "W", 13, tmp_path / "fault", again=True)
    with Run(pdadmm(*WORKERS, "--restarts", "1", "--out", str(out)), out, [fault]) as run:
        assert run.wait() == 5, run.errors
        assert_gone(str(out))
    assert run.errors.count("starting again") == 1
    last = run.lines[-1][1]
    assert "rank 2 was killed by SIGKILL" in last
    assert f"no restart is left (--restarts 1); go on with pdadmm train --resume {out}" in last
    resume(out, calm)


def test_a_directory_in_use_is_refused(tmp_path: Path, calm: Path) -> None:
    """The run that has it is not disturbed."""
    out, fault = tmp_path / "run", pause(1, 13, tmp_path / "pause")
    with Run(pdadmm(*WORKERS, "--out", str(out)), out, [fault]) as run:
        run.until(lambda: fault.happened_in)
        first = run.workers()
        for refused in (
            started("train", "--resume", out, "--workers", "3", "--quiet"),
            in_this_process("train", "--out", out, "--overwrite", "--quiet"),
        ):
            assert_refused(refused, "in use by another run")
        assert run.workers() == first
        kill(first[1], signal.SIGCONT)
        assert run.wait() == 0, run.errors
        assert_gone(str(out))
    assert same_bits(out, calm)


# --- a full disk


@pytest.mark.slow
@pytest.mark.parametrize("room", [2**20, 0])
def test_a_full_disk(room: int, tmp_path: Path, calm: Path) -> None:
    """Without room for a checkpoint the run goes on; without room for a row it ends. What was saved stays."""
    with small_disk(tmp_path / "disk", 32) as disk:
        out, fault = disk / "run", pause(1, 13, tmp_path / "pause")
        with Run(pdadmm(*WORKERS, "--out", str(out)), out, [fault]) as run:
            run.until(lambda: fault.happened_in)
            filler = fill(disk, room)
            kill(run.workers()[1], signal.SIGCONT)
            code = run.wait()
            assert code == (0 if room else 4), run.errors
            assert_gone(str(out))
        assert checkpoints(out) == [5, 10]
        if code == 0:
            assert same_bits(out, calm)
        else:
            assert "history.jsonl" in run.errors
            assert "No space left" in run.errors
        filler.unlink()
        resume(out, calm)
        assert resumed_from(out) == 10
        assert checkpoints(out)[-1] == 24
