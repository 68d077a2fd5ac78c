"""The benchmarks run, at sizes where they measure nothing; and the authors' way is checked against our solver."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SMALL = ("--size", "600x2x40", "--rounds", "1", "--threads", "1")


def run(module: str, *options: str) -> str:
    command = [sys.executable, "-m", f"benchmarks.{module}", *options]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert found.returncode == 0, found.stdout + found.stderr
    return found.stdout


def test_the_authors_way_takes_the_steps_of_the_backtracking_solver() -> None:
    assert "differ by" in run("authors.main", "--check", "--threads", "1")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "options", "column"),
    [
        ("roofline.main", ("--set", "damping=0.02"), "share, median"),
        ("adam.main", (), "to Adam"),
        ("authors.main", (), "authors' way to it"),
        ("scaling.main", ("--times", "1"), "cost per unit"),
    ],
)
def test_a_benchmark_runs(module: str, options: tuple[str, ...], column: str) -> None:
    rows = json.loads(run(module, *SMALL, *options, "--json"))["rows"]
    assert all(row[column] > 0 for row in rows)


@pytest.mark.slow
@pytest.mark.parametrize("solver", ["exact", "linearized"])
def test_the_profile_knows_the_role_of_every_product(solver: str) -> None:
    rows = json.loads(run("profile.main", *SMALL, "--solver", solver, "--json"))["rows"]
    products = [row for row in rows if "flop/s" in row.get("rate", "")]
    assert not [row for row in products if row["what"].startswith("other")]
    assert len([row for row in products if "n × n" not in row["what"]]) == 3
