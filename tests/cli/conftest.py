"""Commands run in this process, in an empty directory of their own."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from commands import TINY, Command, Outcome, samples
from pdadmm.cli.main import main


@pytest.fixture
def pdadmm(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Command:
    """Runs a command in `tmp_path`; without charts, which would take most of the time."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "pdadmm.charts", None)

    def command(*arguments: str | Path) -> Outcome:
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        return Outcome(code, *capsys.readouterr())

    return command


@pytest.fixture
def train(pdadmm: Command) -> Command:
    """`pdadmm train` of a tiny network."""
    return lambda *arguments: pdadmm("train", *TINY, "--quiet", *arguments)


@pytest.fixture
def npz(tmp_path: Path) -> Path:
    """A file of samples."""
    X, y = samples()
    np.savez(tmp_path / "samples.npz", X=X, y=y)
    return tmp_path / "samples.npz"


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on `samples()` that has learned; not to be changed."""
    folder = tmp_path_factory.mktemp("trained")
    X, y = samples()
    np.savez(folder / "samples.npz", X=X, y=y)
    options = ["--data", str(folder / "samples.npz"), "--epochs", "30", "--quiet"]
    assert main(["train", *TINY, *options, "--out", str(folder / "run")]) == 0
    return folder / "run"
