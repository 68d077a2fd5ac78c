"""How much memory does a run take, and does `pdadmm plan` say so beforehand?

Trains two epochs by the command line, for every solver, with arrays in memory and on the disk, with and without
checkpoints, on one process and on two workers. The peak of all processes of a run together is compared with what
`pdadmm plan` predicts for the same flags: resident memory, or with storage on the disk the memory that no file backs.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from benchmarks.common import folder_on_disk

from pdadmm.machine import format_bytes

SAMPLES, FEATURES, CLASSES, HIDDEN = 10_000, 200, 10, "4x1000"
TOLERANCE = 0.10
EVERY_SECONDS = 0.005
COUNTED = {"memory": "VmRSS", "disk": "RssAnon"}
CASES = [(solver, 1) for solver in ("exact", "linearized", "backtracking")] + [("exact", 2)]
SAVING = {"no": ("--set", "checkpoint_minutes=0"), "yes": ("--set", "checkpoint_minutes=0", "--checkpoint-every", "1")}


def processes(pid: int) -> list[int]:
    """A process and all that it has started, and they."""
    found = [pid]
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in task.read_text().split():
            found += processes(int(child))
    return found


def held(pid: int, counted: str) -> int:
    """Bytes that these processes have now, in the system's own count."""
    total = 0
    for one in processes(pid):
        for line in Path(f"/proc/{one}/status").read_text().splitlines():
            if line.startswith(f"{counted}:"):
                total += int(line.split()[1]) * 1024
    return total


def peak(command: list[str], counted: str) -> int:
    """The most that a command and its processes held at any one time."""
    highest = 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        while run.poll() is None:
            with contextlib.suppress(OSError):  # a process ended while we looked
                highest = max(highest, held(run.pid, counted))
            time.sleep(EVERY_SECONDS)
        if run.returncode:
            assert run.stderr is not None
            sys.exit(f"{' '.join(command)} ended with {run.returncode}: {run.stderr.read()}")
    return highest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.parse_args()
    program = [sys.executable, "-W", "ignore", "-m", "pdadmm"]
    print(f"## peak memory of {SAMPLES} x {FEATURES}, hidden {HIDDEN}, float32\n")
    print("| solver | workers | storage | checkpoints | plan | measured | measured / plan |")
    print("|---|---|---|---|---|---|---|")
    wrong = []
    with folder_on_disk() as folder:
        data = Path(folder) / "data.npz"
        rng = np.random.default_rng(0)
        X, y = rng.standard_normal((SAMPLES, FEATURES), dtype=np.float32), rng.integers(CLASSES, size=SAMPLES)
        np.savez(data, X=X, y=y)
        for solver, workers in CASES:
            for storage, counted in COUNTED.items():
                for saves, flags in SAVING.items():
                    options = ["--data", str(data), "--hidden", HIDDEN, "--solver", solver, "--workers", str(workers)]
                    options += ["--storage", storage, "--grow", "off", "--epochs", "2", "--threads", "1", *flags]
                    plan = subprocess.run([*program, "plan", "--json", *options], check=True, capture_output=True)
                    planned = json.loads(plan.stdout)["memory"]["total"]
                    out = ["--quiet", "--overwrite", "--out", str(Path(folder) / "run")]
                    measured = peak([*program, "train", *options, *out], counted)
                    ratio = measured / planned
                    print(
                        f"| {solver} | {workers} | {storage} | {saves} | {format_bytes(planned)} | "
                        f"{format_bytes(measured)} | {ratio:.3f} |",
                        flush=True,
                    )
                    if abs(ratio - 1) > TOLERANCE:
                        wrong.append(f"{solver}, {workers} workers, {storage}, checkpoints {saves}: {ratio:.3f}")
    if wrong:
        sys.exit(f"outside {TOLERANCE:.0%} of the plan: {'; '.join(wrong)}")


if __name__ == "__main__":
    main()
