"""The memory of a run against its plan; the benchmark fails where they are more than a tenth apart."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.slow
def test_a_run_takes_what_was_planned() -> None:
    command = [sys.executable, "-m", "benchmarks.memory.main"]
    found = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False, cwd=ROOT)
    assert found.returncode == 0, found.stdout + found.stderr
