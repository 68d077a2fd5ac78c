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
from pdadmm.experiments.cases import Case
from pdadmm.experiments.meter import Meter
from pdadmm.experiments.runner import Runner, finished
from pdadmm.plan import Shape

DEADLINE = 60.0
SHAPE = Shape(40, 0, 3, 3)


@pytest.fixture
def config(tmp_path: Path) -> Config:
    X, y = samples()
    np.savez(tmp_path / "samples.npz", X=X, y=y)
    return Config(data=str(tmp_path / "samples.npz"), hidden=(8, 8), epochs=3)


def run(*cases: Case) -> list[str]:
    meter = Meter({case.key: case.work for case in cases}, quiet=True)
    return [str(failure) for failure in Runner(meter, 2, 1).run(cases)]


def test_a_finished_run_is_read_and_a_failed_one_named(tmp_path: Path, config: Config) -> None:
    good = Case(tmp_path / "runs" / "good", config, SHAPE)
    bad = Case(tmp_path / "runs" / "bad", replace(config, data=str(tmp_path / "no.npz")), SHAPE)
    (failure,) = run(bad, good)
    assert failure.startswith("bad ended with code 2: ")
    assert "no.npz" in failure
    assert finished([bad, good]) == [good]
    assert [row["epoch"] for row in good.history()] == [1, 2, 3]
    written = (good.path / "history.jsonl").stat().st_mtime_ns
    assert run(good) == []
    assert (good.path / "history.jsonl").stat().st_mtime_ns == written


def test_a_run_of_other_options_is_not_taken_for_the_one_asked_for(tmp_path: Path, config: Config) -> None:
    case = Case(tmp_path / "runs" / "one", config, SHAPE)
    assert run(case) == []
    case.check()
    replace(case, config=replace(config, threads=2)).check()
    for name, value in (("hidden", (9, 9)), ("epochs", 4), ("workers", 2), ("seed", 1)):
        with pytest.raises(UserError, match=f"holds a run with {name} "):
            replace(case, config=Config.from_mapping({**config.to_mapping(), name: value})).check()
    assert not replace(case, config=replace(config, epochs=4)).is_finished()


def interrupt_after_a_row(case: Case) -> None:
    end = time.monotonic() + DEADLINE
    while case.epochs_done() < 1 and time.monotonic() < end:
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGINT)


def test_a_stopped_run_goes_on(tmp_path: Path, config: Config) -> None:
    case = Case(tmp_path / "runs" / "one", replace(config, epochs=600), SHAPE)
    waiting = Case(tmp_path / "runs" / "never", config, SHAPE, alone=True)
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
    case = Case(tmp_path / "runs" / "one", timed, SHAPE, alone=True)
    assert run(case) == []
    (case.path / "summary.json").unlink()
    assert run(case) == []
    assert [row["epoch"] for row in case.history()] == [1, 2]


def test_time_left_is_judged_by_this_session_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("pdadmm.experiments.meter.time.monotonic", lambda: now)
    meter = Meter({"a": 10.0, "b": 20.0, "c": 30.0}, quiet=True)
    meter.skip("a")
    meter.skip("b", 0.5)
    assert meter.seconds_left() is None
    now = 105.0
    meter.advance("b", 0.75)
    assert meter.seconds_left() == pytest.approx((5 + 30) * 5 / 5)
    meter.advance("b", 1.0)
    meter.advance("c", 1.0)
    assert meter.seconds_left() == 0.0


def test_progress_is_lines_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    meter = Meter({"a": 1.0, "b": 1.0}, quiet=False)
    meter.show("a epoch 1/3")
    meter.advance("a", 1.0)
    meter.show("a has ended", now=True)
    line = capsys.readouterr().err
    assert line.startswith("1 of 2 done; a has ended; about ")
    assert line.count("\n") == 1
