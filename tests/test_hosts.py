"""Two hosts: the bits of one process, and epochs as long as compute and the link's bandwidth make them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from benchmarks import hosts

SECONDS = 400
SAMPLES, WIDTH = 4000, 200

pytestmark = [pytest.mark.slow, pytest.mark.skipif(hosts.why_not() is not None, reason=str(hosts.why_not()))]


def arguments(data: Path, out: Path, epochs: int) -> list[str]:
    shape = ["--hidden", f"5x{WIDTH}", "--epochs", str(epochs), "--grow", "off", "--threads", "1"]
    return ["train", "--data", str(data), "--out", str(out), "--quiet", *shape, "--set", "stationarity_every=0"]


def run_on_both(names: tuple[str, str], data: Path, out: Path, epochs: int) -> list[dict[str, float]]:
    """The rows of a run with a worker on each host."""
    hosts.run_on_both(names, [*arguments(data, out, epochs), "--workers", "2", "--set", "evaluate_every=1000"], SECONDS)
    return [json.loads(line) for line in (out / "history.jsonl").read_text().splitlines()]


def test_two_hosts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    data = tmp_path / "data.npz"
    np.savez(data, X=rng.normal(size=(SAMPLES, 50)).astype(np.float32), y=rng.integers(4, size=SAMPLES))
    train_samples = SAMPLES * 8 // 10
    serial = tmp_path / "serial"
    command = [sys.executable, "-m", "pdadmm", *arguments(data, serial, 10), "--set", "evaluate_every=1000"]
    subprocess.run(command, check=True, timeout=SECONDS)
    lines = []
    with hosts.two_hosts() as names:
        rows = run_on_both(names, data, tmp_path / "free", 10)
        assert (tmp_path / "free" / "model.safetensors").read_bytes() == (serial / "model.safetensors").read_bytes()
        compute = float(np.median([row["seconds"] for row in rows[1:]]))
        lines.append(f"no limit: {compute:.3f} s an epoch")
        message = 4 * train_samples * WIDTH
        for megabits in (1000, 100):
            hosts.limit(names, megabits)
            out = tmp_path / str(megabits)
            rows = run_on_both(names, data, out, 10)
            assert (out / "model.safetensors").read_bytes() == (serial / "model.safetensors").read_bytes()
            measured = float(np.median([row["seconds"] for row in rows[1:]]))
            # p and m go in opposite directions and mostly at different times.
            travel = 2 * message / (megabits * 1e6 / 8)
            lines.append(
                f"{megabits} Mbit/s: {measured:.3f} s an epoch; compute + bytes/bandwidth = {compute + travel:.3f} s"
            )
            assert measured < 1.15 * (compute + travel)
    with capsys.disabled():
        print("\n" + "\n".join(lines))
