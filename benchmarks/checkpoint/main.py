"""What does it cost to save a run once a minute?

A state of at least 2 GB: 36,000 samples, 10 hidden layers of 500, one process with all cores. The same epochs are run
with a checkpoint a minute and with none, in turn. What a checkpoint costs is what the run waits for it, and by how much
the epochs beside which it is written are longer than the others of the same run. The checkpoint at the end is not
counted: it is paid once, not once a minute. `--workers 2` has the layers on two processes of one thread.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from pdadmm.machine import format_bytes

SAMPLES, FEATURES, CLASSES, HIDDEN = 36_000, 196, 10, "10x500"
SETUPS = {"none": ["--set", "checkpoint_minutes=0"], "one a minute": ["--set", "checkpoint_minutes=1"]}


def run(data: Path, folder: Path, epochs: int, workers: int, options: list[str]) -> tuple[list[float], dict[str, Any]]:
    """Seconds of each epoch, with whatever lay between it and the next, and what saving cost."""
    with tempfile.TemporaryDirectory(dir=folder) as place:
        out = Path(place) / "run"
        command = [sys.executable, "-m", "pdadmm", "train", "--data", str(data), "--test-fraction", "0", "--quiet"]
        command += ["--json", "--hidden", HIDDEN, "--grow", "off", "--epochs", str(epochs), "--workers", str(workers)]
        command += ["--set", "evaluate_every=100000", "--set", "stationarity_every=0", "--out", str(out)]
        process = subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True)
        stamps = _stamps(process, out / "history.jsonl", epochs)
        output, _ = process.communicate(timeout=600)
        assert process.returncode == 0
    return [late - early for early, late in itertools.pairwise(stamps)], json.loads(output)["checkpoints"]


def _stamps(process: subprocess.Popen[str], history: Path, epochs: int) -> list[float]:
    """When each row appeared."""
    stamps: list[float] = []
    deadline = time.monotonic() + 1800
    while len(stamps) < epochs and process.poll() is None and time.monotonic() < deadline:
        rows = history.read_bytes().count(b"\n") if history.exists() else 0
        stamps += [time.monotonic()] * (rows - len(stamps))
        time.sleep(0.02)
    return stamps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--dir", type=Path, help="where the runs are written (default: the temporary directory)")
    given = parser.parse_args()
    rng = np.random.default_rng(0)
    seconds: dict[str, list[float]] = {name: [] for name in SETUPS}
    costs: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(dir=given.dir) as folder:
        data = Path(folder) / "random.npz"
        X = rng.standard_normal((SAMPLES, FEATURES), dtype=np.float32)
        np.savez(data, X=X, y=rng.integers(CLASSES, size=SAMPLES))
        for _ in range(given.rounds):
            for name, options in SETUPS.items():
                found, cost = run(data, Path(folder), given.epochs, given.workers, options)
                seconds[name] += found
                if name != "none":
                    costs.append(cost)
    _print(seconds, costs)


def _print(seconds: dict[str, list[float]], costs: list[dict[str, Any]]) -> None:
    plain, saved = seconds["none"], seconds["one a minute"]
    written = sum(cost["saved"] - 1 for cost in costs)  # without those at the end
    print("## checkpoint\n\n| checkpoints | epochs | s in all | to none | median s | longest s |\n" + "|---" * 6 + "|")
    for name, found in seconds.items():
        ratio = sum(found) / sum(plain)
        print(
            f"| {name} | {len(found)} | {sum(found):.1f} | {ratio:.3f} | {statistics.median(found):.3f} | "
            f"{max(found):.3f} |"
        )
    print()
    # Against the median of the same run: epochs differ more from run to run than checkpoints cost.
    extra = sum(saved) - statistics.median(saved) * len(saved)
    noise = sum(plain) - statistics.median(plain) * len(plain)
    blocked = sum(cost["blocked_seconds"] for cost in costs)
    writing = sum(cost["writing_seconds"] for cost in costs) / sum(cost["saved"] for cost in costs)
    final = statistics.mean(cost["final_seconds"] for cost in costs)
    print(
        f"{written} checkpoints of {format_bytes(costs[0]['bytes'])}; each took {writing:.2f} s to write and read back"
    )
    print(f"the run waited {blocked / written:.2f} s for each: {blocked / sum(saved):.2%} of its time")
    shares = f"{extra / sum(saved):.2%} (without checkpoints {noise / sum(plain):.2%})"
    print(f"epochs above the median, waiting included: {shares}")
    print(f"the checkpoint at the end: {final:.2f} s")


if __name__ == "__main__":
    main()
