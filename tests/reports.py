"""Runs to make reports of: real ones, small ones."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from commands import samples
from pdadmm.cli.main import main

EPOCHS = 12
SECONDS = 120.0


def make_runs(folder: Path) -> Path:
    """Two seeds of pdadmm and one of Adam on one data set, a run where the theory holds on another."""
    X, y = samples(60)
    for name in ("blobs", "other"):
        np.savez(folder / f"{name}.npz", X=X, y=y)
    shared = ["--hidden", "4x8", "--epochs", str(EPOCHS), "--threads", "1", "--quiet", "--set", "checkpoint_minutes=0"]
    blobs, other = ["--data", str(folder / "blobs.npz")], ["--data", str(folder / "other.npz")]
    runs = folder / "runs"
    theory = ["--solver", "linearized", "--nu", "0.1", "--rho", "0.41", "--dtype", "float64"]
    for name, options in {
        "first": [*blobs, "--grow", "0:2,4:all"],
        "second": [*blobs, "--grow", "0:2,4:all", "--seed", "1"],
        "adam": [*blobs, "--method", "adam"],
        "theory": [*other, *theory],
    }.items():
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(sys.modules, "pdadmm.charts", None)  # figures would take most of the time
            assert main(["train", *shared, *options, "--out", str(runs / name)]) == 0
    return runs


def make_run_of_two_workers(out: Path) -> Path:
    """A run that waits and sends."""
    command = [
        sys.executable,
        "-m",
        "pdadmm",
        "train",
        "--workers",
        "2",
        "--hidden",
        "3x12",
        "--grow",
        "off",
        "--quiet",
    ]
    command += ["--epochs", "5", "--threads", "1", "--out", str(out)]
    env = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    subprocess.run(command, check=True, capture_output=True, timeout=SECONDS, env=env)
    return out
