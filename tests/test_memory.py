"""The memory of a run against its plan; the benchmark fails where they are more than a tenth apart."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parent.parent / "benchmarks" / "memory" / "main.py"


@pytest.mark.slow
def test_a_run_takes_what_was_planned() -> None:
    found = subprocess.run([sys.executable, BENCHMARK], capture_output=True, text=True, timeout=1800, check=False)
    assert found.returncode == 0, found.stdout + found.stderr
