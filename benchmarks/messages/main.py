"""What do messages of lower precision save, and what do they cost?

A network whose messages are large against its work: 100,000 samples, 6 hidden layers of 64, two workers of one thread
each. The set-ups take turns; the table has medians over all epochs but each run's first.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from pdadmm.machine import format_bytes

SAMPLES, FEATURES, CLASSES, HIDDEN, EPOCHS = 100_000, 64, 10, "6x64", 6
SETUPS = {
    "exact": ["--messages", "exact"],
    "bfloat16": ["--messages", "bfloat16"],
    "int8": ["--messages", "int8"],
}


def run(data: Path, options: list[str]) -> tuple[list[float], float, float, float]:
    """Seconds of epochs; seconds an epoch of waiting and sending of the worker that waits less; bytes; objective."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        command = [sys.executable, "-m", "pdadmm", "train", "--data", str(data), "--test-fraction", "0", "--quiet"]
        command += ["--json", "--hidden", HIDDEN, "--grow", "off", "--epochs", str(EPOCHS), "--workers", "2"]
        command += ["--threads", "1", "--evaluate-every", str(EPOCHS), "--stationarity-every", "0", "--out", str(out)]
        found = subprocess.run([*command, *options], check=True, capture_output=True, text=True, timeout=600)
        rows = [json.loads(line) for line in (out / "history.jsonl").read_text().splitlines()]
    result = json.loads(found.stdout)
    workers = result["workers"]
    exposed = min(worker["wait_seconds"] + worker["send_seconds"] for worker in workers) / EPOCHS
    return [row["seconds"] for row in rows[1:]], exposed, workers[0]["bytes_sent"] / EPOCHS, result["objective"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    rng = np.random.default_rng(0)
    seconds: dict[str, list[float]] = {name: [] for name in SETUPS}
    exposed: dict[str, list[float]] = {name: [] for name in SETUPS}
    rest: dict[str, tuple[float, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "random.npz"
        X = rng.standard_normal((SAMPLES, FEATURES), dtype=np.float32)
        np.savez(data, X=X, y=rng.integers(CLASSES, size=SAMPLES))
        for _ in range(rounds):
            for name, options in SETUPS.items():
                found, waited, sent, objective = run(data, options)
                seconds[name] += found
                exposed[name].append(waited)
                rest[name] = (sent, objective)
    print(f"## messages, {SAMPLES} x {FEATURES}, hidden {HIDDEN}, 2 workers x 1 thread\n")
    print("| messages | s an epoch | to exact | wait + send, s an epoch | sent an epoch | objective |")
    print("|---|---|---|---|---|---|")
    base = statistics.median(seconds["exact"])
    for name in SETUPS:
        median = statistics.median(seconds[name])
        sent, objective = rest[name]
        waited = statistics.median(exposed[name])
        print(
            f"| {name} | {median:.3f} | {median / base:.3f} | {waited:.3f} | {format_bytes(sent)} | {objective:.6g} |"
        )


if __name__ == "__main__":
    main()
