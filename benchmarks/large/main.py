"""Can the network that the paper left out for lack of memory be trained here, and in how little memory?

SVHN's shape (24,446 x 768, two classes; random data), 19 x 2400, exact solver: `pdadmm train` with its arrays in
memory and with its arrays in mapped files, one after the other. Prints the seconds of an epoch, the peak of resident
memory, the peak of anonymous memory (RssAnon, sampled twice a second) and what `pdadmm plan` says.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.common import folder_on_disk, table

from pdadmm.machine import format_bytes

GOALS = {"memory": ("resident", 22e9), "disk": ("anonymous", 4e9)}


def write_data(path: Path, samples: int, features: int) -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((samples, features), dtype=np.float32)
    np.savez(path, X=X, y=rng.integers(2, size=samples))


def status(process: int, key: str) -> int:
    """A figure of /proc/PID/status in bytes, or 0 once the process is gone."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(key + ":")), 0)


def run(storage: str, data: Path, folder: Path, hidden: str, epochs: int) -> dict[str, Any]:
    out = folder / storage
    network = ["--data", str(data), "--hidden", hidden, "--grow", "off", "--storage", storage, "--test-fraction", "0"]
    shorter = ["--set", f"evaluate_every={epochs}", "--set", "stationarity_every=0", "--set", "checkpoint_minutes=0"]
    command = [sys.executable, "-m", "pdadmm", "train", *network, *shorter, "--epochs", str(epochs), "--out", str(out)]
    process = subprocess.Popen([*command, "--quiet"], stdout=subprocess.DEVNULL)
    peak = {"resident": 0, "anonymous": 0}
    while process.poll() is None:
        peak["resident"] = max(peak["resident"], status(process.pid, "VmHWM"))
        peak["anonymous"] = max(peak["anonymous"], status(process.pid, "RssAnon"))
        time.sleep(0.5)
    if process.returncode:
        sys.exit(f"{' '.join(command)} ended with {process.returncode}")
    rows = [json.loads(line) for line in (out / "history.jsonl").read_text().splitlines()]
    return {"seconds": [round(row["seconds"], 1) for row in rows], "objective": rows[-1]["objective"], **peak}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=24_446)
    parser.add_argument("--features", type=int, default=768)
    parser.add_argument("--hidden", default="19x2400")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = parser.parse_args()
    with folder_on_disk() as folder:
        data = Path(folder) / "random.npz"
        write_data(data, options.samples, options.features)
        found = {name: run(name, data, Path(folder), options.hidden, options.epochs) for name in GOALS}
    if options.json:
        print(json.dumps(found))
        return
    print(f"## large: {options.samples} x {options.features}, {options.hidden}, exact, {options.epochs} epoch\n")
    rows: list[dict[str, object]] = [
        {
            "storage": name,
            "s an epoch": ", ".join(map(str, figures["seconds"])),
            "peak resident": format_bytes(figures["resident"]),
            "peak anonymous": format_bytes(figures["anonymous"]),
            "goal": f"{GOALS[name][0]} at most {GOALS[name][1] / 1e9:.0f} GB",
            "objective": repr(figures["objective"]),
        }
        for name, figures in found.items()
    ]
    print(table(dict.fromkeys(rows[0], ""), rows))


if __name__ == "__main__":
    main()
