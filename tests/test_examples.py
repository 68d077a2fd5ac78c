"""Every script in examples/ runs, and says what it should."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
SAYS = {
    "arrays.py": "epoch 80: R² on test samples 0.9",
    "activation.py": "every epoch certified",
    "hand_over.py": "60 of Adam alone",
    "workers.py": "the same bits",
}


@pytest.mark.parametrize("name", sorted(SAYS))
def test_an_example_runs(name: str, tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLES / name)]
    environment = {**os.environ, "PYTHONUTF8": "1"}
    found = subprocess.run(
        command,
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=240,
        check=False,
    )
    assert found.returncode == 0, found.stdout + found.stderr
    assert SAYS[name] in found.stdout
    assert list(tmp_path.iterdir()) == []


def test_all_are_listed() -> None:
    listed = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(SAYS)
    assert all(f"[{name}]({name})" in listed for name in SAYS)
