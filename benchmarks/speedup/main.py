"""What do two workers gain, against one core and against equal cores?

13 hidden layers of 1000 (12 square ones, so that two stages balance), 8,000 samples, the exact solver. Four set-ups
take turns, several rounds in one run; the ratios are of the median seconds an epoch. Beside them the ceilings: what the
partition allows by its operations, and how this machine's own matrix products scale from one process to two.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from pdadmm.config import Config
from pdadmm.engine.flops import layer_flops
from pdadmm.engine.placement import balance

SAMPLES, FEATURES, CLASSES, DEPTH, WIDTH = 8000, 196, 10, 13, 1000
SETUPS = {
    "1 worker x 1 thread": (1, 1, 1),
    "1 worker x 2 threads": (1, 1, 2),
    "2 workers x 1 thread": (2, 1, 1),
    "2 shards x 1 thread": (1, 2, 1),
}


def epoch_seconds(data: Path, setup: tuple[int, int, int], epochs: int, solver: str) -> tuple[list[float], float]:
    """Seconds of each epoch but the first, and the largest idle share of a worker."""
    workers, shards, threads = setup
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        command = [
            sys.executable,
            "-m",
            "pdadmm",
            "train",
            "--data",
            str(data),
            "--test-fraction",
            "0",
            "--quiet",
            "--json",
        ]
        command += ["--hidden", f"{DEPTH}x{WIDTH}", "--solver", solver, "--grow", "off", "--epochs", str(epochs)]
        command += ["--workers", str(workers), "--shards", str(shards), "--threads", str(threads), "--out", str(out)]
        command += ["--set", f"evaluate_every={epochs}", "--set", "stationarity_every=0"]
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
        found = subprocess.run(command, check=True, capture_output=True, text=True, env=environment, timeout=1800)
        rows = [json.loads(line) for line in (out / "history.jsonl").read_text().splitlines()]
    idle = max(worker["idle_share"] for worker in json.loads(found.stdout)["workers"])
    return [row["seconds"] for row in rows[1:]], idle


_GEMM = """
import sys, time, torch
torch.set_num_threads(int(sys.argv[1]))
a, b = torch.randn(512, 1000), torch.randn(1000, 1000)
out = torch.empty(512, 1000)
for _ in range(20): torch.mm(a, b, out=out)
began, count = time.perf_counter(), 0
while time.perf_counter() - began < 3: torch.mm(a, b, out=out); count += 1
print(count / (time.perf_counter() - began))
"""


def gemm_rate(processes: int, threads: int) -> float:
    """Products a second of all processes together."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    running = [
        subprocess.Popen(
            [sys.executable, "-c", _GEMM, str(threads)], stdout=subprocess.PIPE, text=True, env=environment
        )
        for _ in range(processes)
    ]
    return sum(float(process.communicate(timeout=120)[0]) for process in running)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--solver", default="exact")
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    seconds: dict[str, list[float]] = {name: [] for name in SETUPS}
    idle: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "random.npz"
        X = rng.standard_normal((SAMPLES, FEATURES), dtype=np.float32)
        np.savez(data, X=X, y=rng.integers(CLASSES, size=SAMPLES))
        for _ in range(options.rounds):
            for name, setup in SETUPS.items():
                found, idle[name] = epoch_seconds(data, setup, options.epochs, options.solver)
                seconds[name] += found
    medians = {name: statistics.median(found) for name, found in seconds.items()}
    print(f"## speedup, {SAMPLES} x {FEATURES}, hidden {DEPTH}x{WIDTH}, {options.solver}\n")
    print("| set-up | seconds an epoch (median) | largest idle share |\n|---|---|---|")
    for name, median in medians.items():
        print(f"| {name} | {median:.2f} | {idle[name]:.1%} |")
    config = Config(hidden=(WIDTH,) * DEPTH, solver=options.solver).resolved()
    costs = layer_flops(config, SAMPLES, (FEATURES, *config.hidden, CLASSES))
    stages = balance(costs, 2).stages
    partition = sum(costs) / max(sum(costs[layer] for layer in stage) for stage in stages)
    one, two = gemm_rate(1, 1), gemm_rate(2, 1)
    equal = gemm_rate(1, 2)
    baselines = ("1 worker x 1 thread", "1 worker x 2 threads")
    a, b = (medians[name] / medians["2 workers x 1 thread"] for name in baselines)
    c = medians["1 worker x 1 thread"] / medians["2 shards x 1 thread"]
    print(f"\n| ratio | measured | goal | ceiling (partition {partition:.2f}) |\n|---|---|---|---|")
    print(f"| (a) 2 workers against 1 core | {a:.2f} | 1.85 | {partition / 2 * two / one:.2f} |")
    print(f"| (b) 2 workers against 1 process x 2 threads | {b:.2f} | 0.90 | {partition / 2 * two / equal:.2f} |")
    print(f"| (c) 2 shards against 1 core | {c:.2f} | | {two / one:.2f} |")
    print(f"\n{time.strftime('%Y-%m-%d')}, {os.cpu_count()} cores, {options.rounds} rounds of {options.epochs} epochs")


if __name__ == "__main__":
    main()
