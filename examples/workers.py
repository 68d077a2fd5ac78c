"""Layers on two processes, stopped halfway and resumed on one: the bits are those of a run that nothing happened to.

    python examples/workers.py

Processes are started by the command line, which can be called from Python too.
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from pdadmm.cli.main import main

OPTIONS = ["--hidden", "5x30", "--set", "ridge_epochs=12", "--grow", "0:2,6:all", "--quiet"]


def pdadmm(*arguments: str) -> None:
    """Run a command of the program; an error ends this script with its exit code."""
    if code := main(arguments):
        sys.exit(code)


with TemporaryDirectory() as folder:
    split, whole = Path(folder) / "split", Path(folder) / "whole"

    # The layers are dealt to two workers; the run ends after ten epochs, with a checkpoint.
    pdadmm("train", *OPTIONS, "--workers", "2", "--epochs", "10", "--out", str(split))
    # It goes on in one process, to twenty.
    pdadmm("train", "--resume", str(split), "--workers", "1", "--epochs", "20", "--quiet")
    # And the same in one go.
    pdadmm("train", *OPTIONS, "--epochs", "20", "--out", str(whole))

    same = (split / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    print("the same bits" if same else "different bits")
    sys.exit(not same)
