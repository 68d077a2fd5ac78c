"""Does the simulator tell the truth? Epochs as `pdadmm simulate` has them, beside epochs as they are.

Three networks, even and uneven, on one worker and on two of one thread each on this machine. Before each run, its
layers are measured with as many side by side as there are workers; so both see the machine in the same state.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from benchmarks.common import Row, report

from pdadmm.config import Config
from pdadmm.machine import keep_freed_memory
from pdadmm.notation import parse_hidden
from pdadmm.plan import Shape
from pdadmm.simulate.blocks import measure_layers
from pdadmm.simulate.simulation import CLUSTER, simulate

FEATURES, CLASSES, EPOCHS, SKIPPED = 196, 10, 6, 2
NETWORKS = {"8x500": 4096, "800,400,200,100": 8192, "2000,4x300": 4096}
LOOPBACK = dataclasses.replace(CLUSTER, bytes_per_second=2e9, latency=1e-4)
COLUMNS = {"hidden": "", "samples": ",", "workers": "", "placement": "", "measured": ".4f", "simulated": ".4f"}
COLUMNS |= {"ratio": ".2f"}
TIMEOUT = 900.0


def measured(config: Config, folder: Path) -> float:
    """Median seconds an epoch of a run, without its first ones."""
    out = folder / "run"
    command = [sys.executable, "-m", "pdadmm", "train", "--data", config.data, "--test-fraction", "0", "--quiet"]
    command += ["--overwrite", "--out", str(out), "--grow", "off", "--hidden", ",".join(map(str, config.hidden))]
    command += ["--solver", config.solver, "--epochs", str(EPOCHS), "--threads", "1", "--workers", str(config.workers)]
    command += ["--set", "evaluate_every=1000", "--set", "stationarity_every=0", "--set", "checkpoint_minutes=0"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run(command, check=True, capture_output=True, env=environment, timeout=TIMEOUT)
    rows = [json.loads(line) for line in (out / "history.jsonl").read_text().splitlines()]
    return float(statistics.median(row["seconds"] for row in rows[SKIPPED:]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--solver", default="exact")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    keep_freed_memory()  # as the runs do
    found: dict[tuple[str, int], list[tuple[float, float, str]]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for samples in set(NETWORKS.values()):
            rng = np.random.default_rng(0)
            X = rng.standard_normal((samples, FEATURES), dtype=np.float32)
            np.savez(folder / f"{samples}.npz", X=X, y=np.arange(samples) % CLASSES)
        for _ in range(given.rounds):
            for hidden, samples in NETWORKS.items():
                for workers in (1, 2):
                    config = Config(hidden=parse_hidden(hidden), solver=given.solver, grow="off", threads=1)
                    config = dataclasses.replace(config, data=str(folder / f"{samples}.npz"), workers=workers)
                    shape = Shape(samples, 0, FEATURES, CLASSES)
                    speed = measure_layers(config.resolved(), shape, beside=workers)
                    simulated = simulate(config.resolved(), shape, speed, LOOPBACK)
                    times = (measured(config, folder), simulated.epoch_seconds, str(simulated.placement))
                    found.setdefault((hidden, workers), []).append(times)
    rows: list[Row] = []
    for (hidden, workers), many in found.items():
        ratio = statistics.median(simulated / real for real, simulated, _ in many)
        real, simulated = (statistics.median(values) for values in list(zip(*many, strict=True))[:2])
        row = {"hidden": hidden, "samples": NETWORKS[hidden], "workers": workers, "placement": many[0][2]}
        rows.append({**row, "measured": real, "simulated": simulated, "ratio": ratio})
    title = f"simulator, {given.solver}, {FEATURES} features, seconds an epoch"
    report(given, title, COLUMNS, rows)


if __name__ == "__main__":
    main()
