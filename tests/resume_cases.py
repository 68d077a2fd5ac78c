"""Runs that are cut off, damaged and resumed: how to make them, and what must be equal afterwards."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from commands import Outcome, rows_of
from pdadmm.checkpoint.folder import Folder
from pdadmm.cli.main import main
from pdadmm.config import Config
from pdadmm.data import Dataset
from pdadmm.engine.layers import SAMPLE_VARIABLES
from pdadmm.engine.world import World
from pdadmm.history import Row
from pdadmm.observer import Observer
from pdadmm.run import Place, carry_out

SECONDS = 120
RESULTS = ("model.safetensors", "summary.json", "plot.png")


@contextlib.contextmanager
def without_plots() -> Iterator[None]:
    """Figures would take most of the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "pdadmm.charts", None)
        yield


@contextlib.contextmanager
def within(seconds: int) -> Iterator[None]:
    """What takes longer fails instead of hanging the suite."""

    def late(number: int, frame: FrameType | None) -> None:
        raise AssertionError(f"still waiting after {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def pdadmm(*arguments: str | Path) -> Outcome:
    """A command in this process."""
    out, err = io.StringIO(), io.StringIO()
    with without_plots(), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([str(argument) for argument in arguments])
    return Outcome(code, out.getvalue(), err.getvalue())


def started(*arguments: str | Path) -> Outcome:
    """A command in a process of its own, with those that it starts; none of them outlives the deadline."""
    command = [sys.executable, "-m", "pdadmm", *map(str, arguments)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        out, err = process.communicate(timeout=SECONDS)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    return Outcome(process.returncode, out, err)


def resume(run: Path, *options: str | Path, workers: int = 1, shards: int = 1) -> Outcome:
    """`pdadmm train --resume` on so many workers and shards, with the summary as JSON."""
    command = pdadmm if workers * shards == 1 else started
    mesh = ("--workers", str(workers), "--shards", str(shards))
    return command("train", "--resume", run, "--json", *mesh, *options)


# --- runs and copies of them


@dataclass(frozen=True)
class Done:
    """A run that came to its end in this process."""

    path: Path
    summary: dict[str, Any]
    notes: list[str]


def carried_out(
    config: Config,
    data: Dataset,
    path: Path,
    resumes: bool = False,
    allow_changes: bool = False,
    on_row: Callable[[Row], None] = lambda row: None,
) -> Done:
    """A run in this process, as the library does it."""
    notes: list[str] = []
    place = Place(path, resume=resumes, allow_changes=allow_changes)
    threads = set(threading.enumerate())
    try:
        with without_plots():
            summary = carry_out(World(), config, lambda: data, place, Observer(on_row=on_row, on_note=notes.append))
    finally:
        for thread in set(threading.enumerate()) - threads:
            thread.join()  # where a run dies, its process and what it was writing end with it
    assert summary is not None
    return Done(path, summary, notes)


def with_copies(config: Config, data: Dataset, path: Path, epochs: set[int]) -> tuple[Done, dict[int, Path]]:
    """A run, and copies of its directory as a sudden death at the end of these epochs would leave it.

    With a checkpoint every n epochs, a copy holds those that were due at least n + 1 epochs before, and a half-written
    one: the copy is made before the run asks whether its files are there.
    """
    copies: dict[int, Path] = {}

    def copy(row: Row) -> None:
        if row["epoch"] in epochs:
            copies[row["epoch"]] = copied(path, path.with_name(f"{path.name}-died-in-{row['epoch']}"))

    return carried_out(config, data, path, on_row=copy), copies


def copied(run: Path, to: Path) -> Path:
    """A copy of a run directory to do anything to."""
    shutil.copytree(run, to, symlinks=True)
    return to


def cut_back(run: Path, to: Path, epoch: int) -> Path:
    """A copy as it was before its later checkpoints and results were written; the later rows are still there."""
    copied(run, to)
    folder = Folder(to)
    assert epoch in folder.epochs()
    for later in folder.epochs():
        if later > epoch:
            shutil.rmtree(folder.directory(later))
    for name in RESULTS:
        (to / name).unlink(missing_ok=True)
    return to


# --- what must be equal


def content_of(path: Path) -> dict[str, bytes]:
    """Every file below a directory, and where its links lead; but not a dead run's lock, which holds nothing."""
    found = {}
    for entry in sorted(set(path.rglob("*")) - {path / ".lock"}):
        name = str(entry.relative_to(path))
        if entry.is_symlink():
            found[name] = b"-> " + bytes(entry.readlink())
        elif entry.is_file():
            found[name] = entry.read_bytes()
        else:
            found[name] = b""
    return found


def timeless_rows(run: Path) -> list[dict[str, Any]]:
    """The history without the only numbers that may differ, which are times."""
    return [{key: value for key, value in row.items() if key not in ("seconds", "workers")} for row in rows_of(run)]


def newest_state(run: Path) -> dict[str, Tensor]:
    """W, b, p, z, q and the rest of all layers in the newest checkpoint, with the shards put together."""
    directory = Folder(run).directory(Folder(run).epochs()[0])
    layers: dict[str, list[dict[str, Tensor]]] = {}
    for path in sorted(directory.glob("*.safetensors")):
        layers.setdefault(path.name.split("-shard")[0], []).append(load_file(path))
    state = {}
    for layer, shards in layers.items():
        for name in shards[0]:
            parts = [shard[name] for shard in shards]
            if name in (*SAMPLE_VARIABLES, "message", "generator"):  # each shard has its own
                state[f"{layer} {name}"] = torch.cat(parts)
            else:
                assert all(torch.equal(part, parts[0]) for part in parts)
                state[f"{layer} {name}"] = parts[0]
    return state


def assert_same_run(run: Path, reference: Path, variables: bool = True) -> None:
    """The model byte for byte, every row but its time, and the variables where both were saved at the end."""
    rows, expected = timeless_rows(run), timeless_rows(reference)
    assert [row["epoch"] for row in rows] == list(range(1, len(expected) + 1))
    for row, other in zip(rows, expected, strict=True):
        assert row == other, differing(row, other)
    assert (run / "model.safetensors").read_bytes() == (reference / "model.safetensors").read_bytes()
    if variables:
        assert Folder(run).epochs()[0] == Folder(reference).epochs()[0] == len(expected)
        state, other_state = newest_state(run), newest_state(reference)
        assert sorted(state) == sorted(other_state)
        for name, tensor in state.items():
            assert torch.equal(tensor, other_state[name]), name


def differing(row: Row, other: Row) -> str:
    """What two rows do not share, for the message of a test that fails."""
    keys = [key for key in {**row, **other} if row.get(key) != other.get(key)]
    return f"epoch {row['epoch']}: { ({key: (row.get(key), other.get(key)) for key in keys}) }"


# --- manifests that someone edited


def resealed(content: bytes, place: Sequence[str | int], value: Any) -> bytes:
    """A manifest with a value changed and a seal that fits, as anyone can make it who has read the source."""
    values = json.loads(content)
    del values["sha256"]
    inner = values
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    seal = hashlib.sha256(json.dumps(values, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
    return json.dumps({**values, "sha256": seal}, indent=1).encode() + b"\n"


# --- small data


def write_samples(path: Path, count: int = 40, seed: int = 0) -> Path:
    """Three features; the class is the place of the largest."""
    X = np.random.default_rng(seed).normal(size=(count, 3))
    np.savez(path, X=X, y=X.argmax(axis=1))
    return path
