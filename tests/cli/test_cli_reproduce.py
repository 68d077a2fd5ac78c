"""`pdadmm reproduce`: what it refuses, what it writes, and that it goes on."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from commands import Command, assert_refused, strict_json
from publishing import write_cifar100, write_idx

CURVES = Path(__file__).resolve().parents[2] / "benchmarks/accuracy/curves"
FILES = {"table.md", "result.json"}
DEADLINE = 120.0


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with noise for MNIST and CIFAR-100."""
    monkeypatch.setenv("PDADMM_DATA_HOME", str(tmp_path / "home"))
    write_idx(tmp_path / "home", "MNIST", (60, 40))
    write_cifar100(tmp_path / "home")
    return tmp_path / "home"


@pytest.mark.parametrize(
    ("arguments", "fragments"),
    [
        (["accuracies"], ["argument EXPERIMENT", "'speedup-layers'", "'all'", "'accuracies'"]),
        (["accuracy", "--data", "imagenet"], ["--data", "mnist, fashion", "imagenet"]),
        (["speedup-layers", "--data", "svhn"], ["--data of speedup-layers", "got svhn"]),
        (["convergence", "--methods", "adam"], ["--methods of convergence", "paper, theory", "got adam"]),
        (["all", "--methods", "exact"], ["--methods is for one experiment"]),
        (["accuracy", "--seeds", "-1"], ["seed must be at least 0", "-1"]),
        (["accuracy", "--threads", "0"], ["--threads must be from 1", "0"]),
        (["accuracy", "--scale", "huge"], ["--scale", "huge"]),
        (["accuracy", "--curves", "nowhere"], ["--curves must name a folder", "nowhere"]),
        (["accuracy", "--curves", str(CURVES)], ["--curves", "--scale paper", "small"]),
        (["accuracy", "--table-only", "--out", "new"], ["new/accuracy has no finished run"]),
    ],
)
def test_mistakes(pdadmm: Command, arguments: list[str], fragments: list[str]) -> None:
    assert_refused(pdadmm("reproduce", *arguments), *fragments)


def test_data_that_is_not_there_is_named_before_any_work(pdadmm: Command, home: Path, tmp_path: Path) -> None:
    refused = pdadmm("reproduce", "all", "--data", "mnist", "kmnist", "cifar10", "--out", "new")
    assert_refused(refused, "kmnist, cifar10 not in", "`pdadmm data fetch kmnist cifar10`", "--data")
    assert not (tmp_path / "new").exists()


def test_the_kept_curves_make_the_papers_table(pdadmm: Command, tmp_path: Path) -> None:
    options = ["--scale", "paper", "--table-only", "--curves", CURVES, "--data", "cifar100", "--out", "new"]
    found = pdadmm("reproduce", "accuracy", *options, "--json").json()
    (experiment,) = found["experiments"]
    assert (experiment["experiment"], found["failed"]) == ("accuracy", [])
    assert any("ten classes" in note for note in experiment["notes"])
    assert {path.name for path in (tmp_path / "new/accuracy").iterdir()} == FILES
    assert strict_json((tmp_path / "new/accuracy/result.json").read_text()) == experiment
    text = (tmp_path / "new/accuracy/table.md").read_text()
    assert "| pdadmm, defaults | " in text
    assert all(note in text for note in experiment["notes"])


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "pdadmm", "reproduce", *arguments]


@pytest.mark.slow
def test_convergence_stopped_and_given_again(home: Path, tmp_path: Path) -> None:
    options = command("convergence", "--scale", "tiny", "--data", "mnist", "--out", "new", "--json")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(options, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    end = time.monotonic() + DEADLINE
    while not list(tmp_path.glob("new/convergence/runs/*/history.jsonl")) and time.monotonic() < end:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    out, error = process.communicate(timeout=DEADLINE)
    assert process.returncode == 130, error
    assert out == b""
    assert b"interrupted" in error
    done = subprocess.run(options, cwd=tmp_path, env=environment, capture_output=True, timeout=DEADLINE, check=False)
    assert done.returncode == 0, done.stderr
    (experiment,) = strict_json(done.stdout.decode())["experiments"]
    by_run = {row[1]: row for row in experiment["tables"][0]["rows"]}
    assert list(by_run) == ["paper", "theory"]
    assert by_run["theory"][4:6] == ["0 of 12", 0]
    assert by_run["theory"][-1] is not None
    assert by_run["paper"][-1] is None
    assert {path.name for path in (tmp_path / "new/convergence").iterdir()} == {*FILES, "runs"}
    assert b"convergence: 100%" in done.stderr


def test_a_run_that_fails_is_named_and_the_others_count(pdadmm: Command, home: Path, tmp_path: Path) -> None:
    runs = tmp_path / "new/accuracy/runs"
    runs.mkdir(parents=True)
    (runs / "mnist-adam-0").touch()
    options = ["--scale", "tiny", "--data", "mnist", "--methods", "adam", "gd", "--out", "new", "--quiet"]
    ended = pdadmm("reproduce", "accuracy", *options)
    assert ended.code == 2
    assert ended.err.startswith("pdadmm: error: mnist-adam-0 ended with code 2: --out must name a directory")
    text = (tmp_path / "new/accuracy/table.md").read_text()
    assert "Failed: mnist-adam-0 ended with code 2" in text
    assert "| GD | 1 | " in text
    assert "| Adam | " not in text
    (runs / "mnist-adam-0").unlink()
    kept = (runs / "mnist-gd-0/history.jsonl").stat().st_mtime_ns
    assert pdadmm("reproduce", "accuracy", *options).code == 0
    assert "| Adam | 1 | " in (tmp_path / "new/accuracy/table.md").read_text()
    assert (runs / "mnist-gd-0/history.jsonl").stat().st_mtime_ns == kept


@pytest.mark.slow
def test_all_of_it_at_the_smallest_size(home: Path, tmp_path: Path) -> None:
    options = command("all", "--scale", "tiny", "--data", "cifar100", "mnist", "--out", "new", "--json", "--quiet")
    done = subprocess.run(options, cwd=tmp_path, capture_output=True, timeout=1800, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == b""
    found = strict_json(done.stdout.decode())
    assert [one["experiment"] for one in found["experiments"]] == [
        "speedup-layers",
        "speedup-neurons",
        "convergence",
        "accuracy",
    ]
    for one in found["experiments"]:
        folder = tmp_path / "new" / one["experiment"]
        assert {path.name for path in folder.iterdir()} >= FILES
        assert one["notes"]
        assert strict_json((folder / "result.json").read_text()) == one
    measured, *simulated = found["experiments"][0]["tables"]
    assert len(measured["rows"]) == 8
    for table in simulated:
        assert [row[0] for row in table["rows"]] == list(range(11, 20))
        assert all(float(cell) > 0 for row in table["rows"] for cell in row[3:])
    shutil.rmtree(tmp_path / "home")
    again = subprocess.run([*options, "--table-only"], cwd=tmp_path, capture_output=True, timeout=300, check=False)
    assert again.returncode == 0, again.stderr
    tables = [one["notes"] for one in strict_json(again.stdout.decode())["experiments"]]
    assert tables == [one["notes"] for one in found["experiments"]]


def test_the_command_knows_every_experiment_and_scale() -> None:
    from pdadmm.cli import reproduce
    from pdadmm.experiments.experiment import SCALES
    from pdadmm.experiments.reproduce import EXPERIMENTS

    assert tuple(EXPERIMENTS) == reproduce._NAMES
    assert tuple(SCALES) == reproduce._SCALES
