"""How much memory does a run take, beside its auxiliary arrays and the data?

Trains two epochs at a size where it matters (at least 2 GiB of auxiliaries), each solver in a process of its own, and
compares the peak of resident memory, less what the process held before, with the arrays that the method keeps and
with what `pdadmm plan` predicts.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import warnings

import numpy as np

import pdadmm
from pdadmm import Config, Dataset, Part
from pdadmm.machine import format_bytes, resident_memory
from pdadmm.plan import Shape, plan_memory

SAMPLES, FEATURES, CLASSES, HIDDEN = 40_000, 196, 10, (500,) * 9
LIMIT = 1.25


def measure(solver: str) -> None:
    """Run in a fresh process; prints one JSON object."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((SAMPLES, FEATURES), dtype=np.float32)
    data = Dataset(
        "random", Part(X, rng.integers(CLASSES, size=SAMPLES)), None, tuple(f"x{i}" for i in range(FEATURES))
    )
    config = Config(hidden=HIDDEN, epochs=2, solver=solver, grow="off", stationarity_every=1).resolved()
    before = resident_memory()
    plan = plan_memory(config, Shape(SAMPLES, 0, FEATURES, CLASSES))
    with warnings.catch_warnings(action="ignore"):
        pdadmm.train(config, data)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"arrays": plan.auxiliaries + plan.data, "planned": plan.total, "peak": peak, "before": before}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--solver", help="measure this one in this process")
    solver = parser.parse_args().solver
    if solver:
        measure(solver)
        return
    print(f"## memory of {SAMPLES} x {FEATURES}, hidden 9x500, float32\n")
    print("| solver | auxiliaries and data | peak of the run | ratio (limit 1.25) | peak / plan |")
    print("|---|---|---|---|---|")
    worst = 0.0
    for name in ("exact", "linearized", "backtracking"):
        command = [sys.executable, __file__, "--solver", name]
        found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True, timeout=900).stdout)
        run = found["peak"] - found["before"]
        ratio = run / found["arrays"]
        worst = max(worst, ratio)
        print(
            f"| {name} | {format_bytes(found['arrays'])} | {format_bytes(run)} | {ratio:.3f} | "
            f"{found['peak'] / found['planned']:.3f} |",
            flush=True,
        )
    if worst > LIMIT:
        sys.exit(f"a run took {worst:.3f} times its arrays, more than {LIMIT}")


if __name__ == "__main__":
    main()
