"""Runs that experiments need: read when finished, resumed when stopped, named when they fail."""

from __future__ import annotations

import os
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from commands import samples
from pdadmm.checkpoint.folder import Folder
from pdadmm.config import Config
from pdadmm.errors import UserError
from pdadmm.experiments.runs import Case, train
from pdadmm.rundir import read_history

DEADLINE = 60.0


@pytest.fixture
def config(tmp_path: Path) -> Config:
    X, y = samples()
    np.savez(tmp_path / "samples.npz", X=X, y=y)
    return Config(data=str(tmp_path / "samples.npz"), hidden=(8, 8), epochs=3)


def run(*cases: Case) -> list[str]:
    return [str(failure) for failure in train(cases, 1, quiet=True, name="test")]


def test_a_finished_run_is_read_and_a_failed_one_named(tmp_path: Path, config: Config) -> None:
    good = Case(tmp_path / "runs" / "good", config)
    bad = Case(tmp_path / "runs" / "bad", replace(config, data=str(tmp_path / "no.npz")))
    (failure,) = run(bad, good)
    assert failure.startswith("bad ended with code 2: ")
    assert "no.npz" in failure
    assert (bad.is_finished, good.is_finished) == (False, True)
    assert [row["epoch"] for row in read_history(good.path)] == [1, 2, 3]
    written = (good.path / "history.jsonl").stat().st_mtime_ns
    assert run(good) == []
    assert (good.path / "history.jsonl").stat().st_mtime_ns == written


def test_a_run_of_other_options_is_not_taken_for_the_one_asked_for(tmp_path: Path, config: Config) -> None:
    case = Case(tmp_path / "runs" / "one", config)
    assert run(case) == []
    case.check()
    replace(case, config=replace(config, threads=2)).check()
    for name, value in (("hidden", (9, 9)), ("epochs", 4), ("workers", 2), ("seed", 1)):
        with pytest.raises(UserError, match=f"holds a run of other .*{name}"):
            replace(case, config=Config.from_mapping({**config.to_mapping(), name: value})).check()
    assert not replace(case, config=replace(config, epochs=4)).is_finished


def interrupt_after_a_row(case: Case) -> None:
    end = time.monotonic() + DEADLINE
    while case.epochs_done() < 1 and time.monotonic() < end:
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGINT)


def test_a_stopped_run_goes_on(tmp_path: Path, config: Config) -> None:
    case = Case(tmp_path / "runs" / "one", replace(config, epochs=600))
    waiting = Case(tmp_path / "runs" / "never", config, is_timed=True)
    before = signal.getsignal(signal.SIGINT)
    threading.Thread(target=interrupt_after_a_row, args=(case,), daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        run(case, waiting)
    assert signal.getsignal(signal.SIGINT) is before
    stopped = case.epochs_done()
    summary = case.summary()
    assert summary is not None
    assert summary["status"] == "interrupted"
    assert Folder(case.path).epochs() == [stopped]
    assert not waiting.path.exists()
    assert run(case) == []
    again = case.summary()
    assert again is not None
    assert (again["status"], again["resumed_from"], case.epochs_done()) == ("completed", stopped, 600)


def test_a_timed_run_is_not_resumed_but_timed_again(tmp_path: Path, config: Config) -> None:
    timed = replace(config, epochs=2, checkpoint_minutes=0.0)
    case = Case(tmp_path / "runs" / "one", timed, is_timed=True)
    assert run(case) == []
    (case.path / "summary.json").unlink()
    assert run(case) == []
    assert [row["epoch"] for row in read_history(case.path)] == [1, 2]


def test_progress_is_lines_where_there_is_no_terminal(
    tmp_path: Path, config: Config, capsys: pytest.CaptureFixture[str]
) -> None:
    case = Case(tmp_path / "runs" / "one", config)
    assert train([case], 1, quiet=True, name="test") == []
    assert capsys.readouterr().err == ""
    assert train([case], 1, quiet=False, name="test") == []
    assert "test: 100%" in capsys.readouterr().err
