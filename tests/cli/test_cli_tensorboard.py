"""Event files hold the history: the same numbers at the same epochs, once each, also after a resume."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commands import Command, assert_refused, rows_of
from pdadmm.events import series

needs_tensorboard = pytest.mark.skipif(
    importlib.util.find_spec("tensorboard") is None, reason="TensorBoard is not installed"
)


def expected(run: Path) -> dict[str, list[tuple[int, float]]]:
    """The history as series, which float32 has rounded."""
    found: dict[str, list[tuple[int, float]]] = {}
    for row in rows_of(run):
        for tag, value in series(row):
            found.setdefault(tag, []).append((row["epoch"], float(np.float32(value))))
    return found


def read_back(run: Path) -> dict[str, list[tuple[int, float]]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run / "tensorboard"), size_guidance={"scalars": 0})
    events.Reload()
    return {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def test_a_row_becomes_one_series_a_number() -> None:
    row: dict[str, Any] = {
        "epoch": 3,
        "residuals": [0.5, 0.25],
        "workers": [[1.0, 2.0, 3.0]],
        "certified": True,
        "method": "adam",
    }
    assert dict(series(row)) == {
        "residuals/1": 0.5,
        "residuals/2": 0.25,
        "workers/1/compute": 1.0,
        "workers/1/wait": 2.0,
        "workers/1/send": 3.0,
        "certified": 1.0,
    }


@needs_tensorboard
def test_the_event_files_hold_the_history(train: Command, npz: Path, tmp_path: Path) -> None:
    assert train("--data", npz, "--out", "run", "--tensorboard").code == 0
    found = read_back(tmp_path / "run")
    assert found == expected(tmp_path / "run")
    assert {"objective", "residuals/2", "test_accuracy", "certified"} <= set(found)


@needs_tensorboard
def test_a_resumed_run_goes_on_without_doubled_steps(
    train: Command, pdadmm: Command, npz: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    options = ("--data", npz, "--out", run, "--grow", "off", "--checkpoint-every", "2", "--epochs", "6")
    assert train(*options, "--tensorboard").code == 0
    newest = sorted((run / "checkpoints").glob("epoch-*"))[-1]
    (newest / "manifest.json").write_text("damaged")  # so that the run goes back by some epochs
    assert pdadmm("train", "--resume", run, "--epochs", "9", "--quiet").code == 0
    found = read_back(run)
    assert [epoch for epoch, _ in found["objective"]] == list(range(1, 10))
    assert found == expected(run)


@needs_tensorboard
def test_a_run_that_begins_with_it_late_has_all_rows(
    train: Command, pdadmm: Command, npz: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    assert train("--data", npz, "--out", run).code == 0
    assert not (run / "tensorboard").exists()
    assert pdadmm("train", "--resume", run, "--epochs", "5", "--quiet", "--tensorboard").code == 0
    assert read_back(run) == expected(run)


@needs_tensorboard
def test_an_overwritten_run_leaves_no_events(train: Command, npz: Path, tmp_path: Path) -> None:
    assert train("--data", npz, "--out", "run", "--tensorboard").code == 0
    (tmp_path / "run" / "report.html").write_text("of the run before")
    assert train("--data", npz, "--out", "run", "--overwrite").code == 0
    assert not (tmp_path / "run" / "tensorboard").exists()
    assert not (tmp_path / "run" / "report.html").exists()


def test_without_the_extra_it_is_refused_before_any_work(
    train: Command, npz: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    outcome = train("--data", npz, "--out", "run", "--tensorboard")
    assert_refused(outcome, "tensorboard must be off where TensorBoard is not installed", "pip install")
    assert not (tmp_path / "run").exists()
