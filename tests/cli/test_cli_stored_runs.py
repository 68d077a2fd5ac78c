"""Runs that earlier versions wrote (`tests/fixtures/runs`): they stay readable, and those that can go on do.

Each was trained for a few epochs on one of the tables beside it. They are never made anew: what counts is that
later versions read what was written then.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from commands import Command, assert_refused, rows_of

STORED = Path(__file__).parent.parent / "fixtures" / "runs"
RUNS = sorted(path.parent.name for path in STORED.glob("*/config.toml"))
TABLES = {"squared": "numbers.csv", "huber": "numbers.csv", "batches": "many.csv"}
RETIRED = {
    "products": "products bfloat16 was removed",
    "onednn": "products onednn was removed",
    "compiled": "compile on was removed",
    "int8": "messages int8 was removed",
    "tiles": "tile_rows 32 was removed",
}
"""Runs that cannot go on, with the retired option that the error must name."""


@pytest.fixture
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of the run that the test is about, and of its table, where commands are given."""
    run = tmp_path / str(request.param)
    shutil.copy(table_of(run), tmp_path)
    shutil.copytree(STORED / run.name, run, symlinks=True)
    return run


def table_of(run: Path) -> Path:
    return STORED / TABLES.get(run.name, "classes.csv")


every_run = pytest.mark.parametrize("stored", RUNS, indirect=True)


@every_run
def test_a_stored_run_is_evaluated_as_it_was_then(stored: Path, pdadmm: Command) -> None:
    then = json.loads((stored / "summary.json").read_text())["scores"]
    found = pdadmm("evaluate", stored, "--json").json()
    assert {name: found[name] for name in then} == pytest.approx(then, abs=1e-6)


@every_run
def test_a_stored_run_predicts_and_is_exported(stored: Path, pdadmm: Command, tmp_path: Path) -> None:
    assert pdadmm("predict", stored, "--data", table_of(stored), "--out", tmp_path / "predicted").code == 0
    lines = (tmp_path / "predicted" / "predictions.csv").read_text().splitlines()
    assert len(lines) == len(table_of(stored).read_text().splitlines())
    pytest.importorskip("onnxruntime")
    assert pdadmm("export", stored, "--format", "onnx", "--out", tmp_path / "served").code == 0


@every_run
def test_a_stored_run_is_found_whole(stored: Path, pdadmm: Command) -> None:
    assert pdadmm("inspect", stored, "--json").json()["status"] == "completed"


@every_run
def test_a_stored_run_goes_on_or_says_which_option_keeps_it(stored: Path, pdadmm: Command) -> None:
    before = rows_of(stored)
    epochs = len(before) + 2
    found = pdadmm("train", "--resume", stored, "--epochs", str(epochs), "--quiet")
    if stored.name in RETIRED:
        assert_refused(found, RETIRED[stored.name])
        assert rows_of(stored) == before
        return
    assert found.code == 0, found.err
    assert json.loads((stored / "summary.json").read_text())["resumed_from"] == len(before)
    assert rows_of(stored)[: len(before)] == before
    assert len(rows_of(stored)) == epochs
