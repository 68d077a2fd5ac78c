"""What only a process of its own can show: a full disk, Ctrl-C, and output that nobody takes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from commands import TINY, Command, Outcome, assert_refused, rows_of, strict_json
from pdadmm.model import load_model

DEADLINE = 60.0  # seconds, on a machine that is busy with other things

# One process for all sizes, because most of its time is the start. Python ignores SIGXFSZ, so writes fail by EFBIG.
FULL_DISK = """
import contextlib, io, json, resource, sys
from pathlib import Path
from pdadmm.cli.main import main

FILES = ("config.toml", "history.jsonl", "model.safetensors", "plot.png")
train = ["train", *sys.argv[1:], "--out"]
main([*train, "whole", "--json"])
sizes = [Path("whole", name).stat().st_size for name in FILES if Path("whole", name).exists()]
assert sizes == sorted(sizes), sizes
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
for name, below, size in zip(FILES, [0, *sizes], sizes):
    error = io.StringIO()
    resource.setrlimit(resource.RLIMIT_FSIZE, ((below + size) // 2, hard))
    with contextlib.redirect_stderr(error):
        code = main([*train, name])
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    print(json.dumps([name, code, error.getvalue()]))
"""


def left_in(run: Path) -> list[str]:
    return sorted(path.name for path in run.iterdir())


def test_a_full_disk(tmp_path: Path) -> None:
    options = (
        *TINY,
        "--hidden",
        "2x64",
        "--epochs",
        "14",
        "--dtype",
        "float64",
        "--set",
        "stationarity_every=0",
        "--quiet",
    )
    command = [sys.executable, "-c", FULL_DISK, *options]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert done.returncode == 0, done.stderr
    _, *lines = done.stdout.splitlines()
    # Each run lacked the room for the file that its directory is named after.
    for name, code, error in map(json.loads, lines):
        *warnings, last = error.splitlines(keepends=True)
        assert_refused(Outcome(code, "", last), f"cannot write {name}/{name}: File too large", code=4)
        assert all("checkpoint of epoch 14 could not be written: File too large" in line for line in warnings)
    assert not (tmp_path / "config.toml").exists()
    assert left_in(tmp_path / "history.jsonl") == ["config.toml", "history.jsonl"]
    assert 1 <= len(rows_of(tmp_path / "history.jsonl")) < 14
    assert left_in(tmp_path / "model.safetensors") == ["config.toml", "history.jsonl"]
    assert len(rows_of(tmp_path / "model.safetensors")) == 14
    if len(lines) == 4:  # the extra `report` is installed
        assert left_in(tmp_path / "plot.png") == ["config.toml", "history.jsonl", "model.safetensors", "summary.json"]
        assert load_model(tmp_path / "plot.png").network.hidden == (64, 64)


def test_output_that_the_disk_refuses(
    pdadmm: Command, trained: Path, npz: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for arguments in (("evaluate", trained), ("predict", trained, "--data", npz), ("plan", "--data", npz)):
        with Path("/dev/full").open("w") as full, monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", full)
            assert_refused(pdadmm(*arguments), "cannot use the output: No space left on device", code=4)


@pytest.fixture
def environment() -> dict[str, str]:
    """As a shell has it: output is buffered."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}


def test_a_reader_that_has_seen_enough(trained: Path, npz: Path, environment: dict[str, str]) -> None:
    command = [sys.executable, "-m", "pdadmm", "predict", str(trained), "--data", str(npz)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(DEADLINE) == 0


def start(run: Path, data: Path) -> subprocess.Popen[str]:
    options = [*TINY, "--data", str(data), "--epochs", "1000000", "--set", "evaluate_every=1000", "--json"]
    return subprocess.Popen(
        [sys.executable, "-m", "pdadmm", "train", *options, "--out", str(run)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def wait_for_rows(run: Path, process: subprocess.Popen[str]) -> None:
    until = time.monotonic() + DEADLINE
    while not (run / "history.jsonl").exists() or (run / "history.jsonl").stat().st_size < 2000:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.02)


def test_interrupted(npz: Path, tmp_path: Path) -> None:
    signals = {"int": signal.SIGINT, "term": signal.SIGTERM}
    processes = {name: start(tmp_path / name, npz) for name in signals}
    try:
        for name, process in processes.items():
            run = tmp_path / name
            wait_for_rows(run, process)
            process.send_signal(signals[name])
            out, err = process.communicate(timeout=DEADLINE)
            assert process.returncode == 128 + signals[name], err
            assert "Traceback" not in err
            check_interrupted(run, strict_json(out))
            with pytest.raises(ProcessLookupError):
                os.killpg(process.pid, 0)
    finally:
        for process in processes.values():
            if process.poll() is None:
                process.kill()
                process.communicate()


def check_interrupted(run: Path, summary: dict[str, Any]) -> None:
    rows = rows_of(run)
    assert summary["status"] == "interrupted"
    assert "after a whole iteration" in summary["advice"]
    assert summary["epochs"] == len(rows) == rows[-1]["epoch"]
    assert summary["scores"] == {name: rows[-1][name] for name in ("train_accuracy", "test_accuracy")}
    assert load_model(run).network.hidden == (8, 8)
    assert {"config.toml", "history.jsonl", "model.safetensors", "summary.json"} <= set(left_in(run))
    assert not [name for name in left_in(run) if name.startswith(".")]
