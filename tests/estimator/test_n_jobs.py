"""Layers on worker processes from Python: the same bits, no process and no folder left, and joblib outside."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from joblib import Parallel, delayed, parallel_config
from sklearn.datasets import load_iris

from pdadmm import PdADMMClassifier, PdADMMRegressor
from pdadmm.errors import DivergenceError, LostWorkerError
from pdadmm.estimator.cores import divide
from pdadmm.machine import usable_cores
from processes import processes_of

SECONDS = 120
IRIS: tuple[Any, Any] = load_iris(return_X_y=True)
pytestmark = pytest.mark.skipif(not Path("/proc").is_dir(), reason="processes are looked up in /proc")


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for temporary files, which must be empty again at the end, with no process that names it."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", None)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield folder
    torch.set_num_threads(threads)
    assert_clean(folder)


def workers_of(folder: Path) -> list[int]:
    """Processes whose command line names the folder."""
    return processes_of(f"{folder}{os.sep}")


def wait_for(what: Any) -> None:
    deadline = time.monotonic() + SECONDS
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def assert_clean(folder: Path) -> None:
    wait_for(lambda: not workers_of(folder))
    assert [path.name for path in folder.glob("pdadmm-*")] == []


def small(**options: Any) -> PdADMMClassifier:
    return PdADMMClassifier(**{"hidden_layer_sizes": (12, 12), "max_iter": 10, "random_state": 0, **options})


def same(one: Any, other: Any) -> bool:
    pairs = zip(one.coefs_ + one.intercepts_, other.coefs_ + other.intercepts_, strict=True)
    return all(np.array_equal(a, b) for a, b in pairs)


def test_two_processes_give_the_same_bits(capsys: pytest.CaptureFixture[str]) -> None:
    X, y = IRIS
    options = {"early_stopping": True, "n_iter_no_change": 2, "max_iter": 40}
    alone, both = (small(n_jobs=jobs, verbose=True, **options).fit(X, y, X[:, 0]) for jobs in (1, 2))
    assert same(alone, both)
    assert (alone.n_iter_, alone.loss_curve_) == (both.n_iter_, both.loss_curve_)
    assert alone.validation_scores_ == both.validation_scores_
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) % 2 == 0
    assert lines[: len(lines) // 2] == lines[len(lines) // 2 :]


def test_regression_and_a_warm_start_on_processes_give_the_same_bits() -> None:
    X, y = IRIS
    both, alone = (PdADMMRegressor((8,), max_iter=5, random_state=0, warm_start=True, n_jobs=jobs) for jobs in (2, 1))
    for estimator in (both, alone):
        estimator.fit(X, y).fit(X, y)
    assert same(both, alone)


def test_what_a_worker_ends_of_is_raised_here() -> None:
    X, y = IRIS
    with pytest.raises(DivergenceError, match=r"layer \d"):
        small(n_jobs=2, method={"scaling": "none"}).fit(X * 1e30, y)


ENDLESS = """
import signal, sys
from sklearn.datasets import load_iris
from pdadmm import PdADMMClassifier

signal.signal(signal.SIGINT, signal.default_int_handler)  # tests in the background inherit that it is ignored
X, y = load_iris(return_X_y=True)
PdADMMClassifier((12, 12), max_iter=10**6, tol=0, n_iter_no_change=10**6, n_jobs=2, verbose=True).fit(X, y)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_caller_that_is_stopped_leaves_no_process(number: signal.Signals, temporary: Path) -> None:
    """As in a notebook: the code has no file and no guard of `__main__`. The next fit clears what a killed one left."""
    with subprocess.Popen(
        [sys.executable, "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as caller:
        assert caller.stdin is not None
        assert caller.stdout is not None
        assert caller.stderr is not None
        caller.stdin.write(ENDLESS)
        caller.stdin.close()
        watchdog = threading.Timer(SECONDS, caller.kill)
        watchdog.start()
        assert any(line.startswith("Iteration 2,") for line in caller.stdout)
        assert len(workers_of(temporary)) == 2
        caller.send_signal(number)
        words = caller.stderr.read()
        watchdog.cancel()
    if number == signal.SIGINT:
        assert words.strip().endswith("KeyboardInterrupt")
        assert_clean(temporary)
        return
    wait_for(lambda: not workers_of(temporary))
    assert len(list(temporary.glob("pdadmm-*"))) == 1
    small(n_jobs=2, max_iter=2).fit(*IRIS)  # the next one clears away what a killed one left
    assert_clean(temporary)


def test_a_lost_worker_is_named_and_the_others_are_ended(temporary: Path) -> None:
    """Also from a thread that is not the first."""
    raised: list[BaseException] = []

    def fit() -> None:
        try:
            small(n_jobs=2, max_iter=10**6, tol=0, n_iter_no_change=10**6).fit(*IRIS)
        except LostWorkerError as error:
            raised.append(error)

    thread = threading.Thread(target=fit)
    thread.start()
    wait_for(lambda: any(path.stat().st_size for path in temporary.glob("pdadmm-*/history.jsonl")))
    os.kill(max(workers_of(temporary)), signal.SIGKILL)
    thread.join(SECONDS)
    assert not thread.is_alive()
    (error,) = raised
    assert "the process of rank 1 was killed by SIGKILL" in str(error)


def fit_in_worker(number: int) -> tuple[tuple[int, int], int, int, float]:
    """What a fit of two jobs uses inside a worker of joblib: planned, seen, and its score."""
    most, done = 0, threading.Event()
    children = Path(f"/proc/self/task/{threading.main_thread().native_id}/children")

    def watch() -> None:
        nonlocal most
        while not done.wait(0.02):
            most = max(most, len(children.read_text().split()))

    watcher = threading.Thread(target=watch)
    watcher.start()
    found = small(n_jobs=2, random_state=number).fit(*IRIS)
    done.set()
    watcher.join()
    return divide(2, 3), most, torch.get_num_threads(), found.score(*IRIS)


def test_joblib_outside_and_ours_inside_share_the_cores() -> None:
    with parallel_config(backend="loky", inner_max_num_threads=1):
        found = Parallel(n_jobs=2, timeout=SECONDS)(delayed(fit_in_worker)(number) for number in range(2))
    for cores, most, threads, score in found:
        assert (cores, most, threads) == ((1, 1), 0, 1)
        assert score > 0.8


def test_cores_are_divided() -> None:
    assert divide(None, 5) == (1, torch.get_num_threads())
    assert divide(2, 5) == (2, max(1, usable_cores() // 2))
    assert divide(64, 3)[0] == 3
    with parallel_config(n_jobs=2):
        assert divide(None, 5)[0] == 2
    with parallel_config(backend="threading"):
        inside = Parallel(n_jobs=2)(delayed(divide)(2, 5) for _ in range(2))
    assert inside == [(1, 1)] * 2
