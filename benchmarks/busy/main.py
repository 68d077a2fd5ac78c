"""How much slower is training while other programs take all cores?

The same run (digits, two threads) takes turns under several settings of the matrix library's threads, on an otherwise
idle machine and beside one busy process for each core. What counts is the median epoch, so that start-up is left out.
A fair share of a machine with as many others as cores is half of it: 2 times the idle time.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE

from benchmarks.common import Row, make_parser, parse, report

from pdadmm import openmp
from pdadmm.machine import usable_cores

COLUMNS = {
    "setting": "",
    "ms an epoch, idle": ".1f",
    "busy": ".1f",
    "busy to idle": ".2f",
    "idle to the default": ".3f",
}
GOAL = "busy at most 3 times idle; at most 1.03 times the library's own setting when idle"
SETTINGS = {
    "the library's own": {"GOMP_SPINCOUNT": "300000"},
    "as pdadmm sets it": openmp.settings(),
    "30,000 rounds": {"GOMP_SPINCOUNT": "30000"},
    "OMP_WAIT_POLICY=passive": {"OMP_WAIT_POLICY": "passive"},
    "one thread": {"OMP_NUM_THREADS": "1"},
}
BURN = "while True: pass"
LIMIT = 600  # seconds of one run


@contextmanager
def busy(processes: int) -> Iterator[None]:
    """Keep so many cores busy."""
    others = [subprocess.Popen([sys.executable, "-c", BURN]) for _ in range(processes)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def epoch(hidden: str, epochs: int, threads: int, setting: dict[str, str]) -> float:
    """The median seconds of an epoch of a run with this setting."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        command = [
            sys.executable,
            "-m",
            "pdadmm",
            "train",
            "--hidden",
            hidden,
            "--epochs",
            str(epochs),
            "--grow",
            "off",
        ]
        env = {name: value for name, value in os.environ.items() if name not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
        env |= {"OMP_NUM_THREADS": str(threads)} | setting
        subprocess.run(
            [*command, "--quiet", "--json", "--out", str(out)], env=env, check=True, timeout=LIMIT, stdout=PIPE
        )
        rows = [json.loads(line) for line in (out / "history.jsonl").read_text().splitlines()]
        return float(statistics.median(row["seconds"] for row in rows))


def main() -> None:
    """Measure and print."""
    parser = make_parser(__doc__, rounds=3)
    parser.add_argument("--hidden", default="9x100", help="hidden widths")
    parser.add_argument("--epochs", type=int, default=30, help="epochs of each run")
    given = parse(parser)
    idle: dict[str, list[float]] = {name: [] for name in SETTINGS}
    loaded: dict[str, list[float]] = {name: [] for name in SETTINGS}
    for _ in range(given.rounds):
        for name, setting in SETTINGS.items():
            idle[name].append(epoch(given.hidden, given.epochs, given.threads, setting))
            with busy(usable_cores()):
                loaded[name].append(epoch(given.hidden, given.epochs, given.threads, setting))
    first = next(iter(SETTINGS))
    rows: list[Row] = [
        {
            "setting": name,
            "ms an epoch, idle": 1000 * statistics.median(idle[name]),
            "busy": 1000 * statistics.median(loaded[name]),
            "busy to idle": statistics.median(b / i for b, i in zip(loaded[name], idle[name], strict=True)),
            "idle to the default": statistics.median(i / d for i, d in zip(idle[name], idle[first], strict=True)),
        }
        for name in SETTINGS
    ]
    report(given, f"digits, {given.hidden}, {given.threads} threads; goal: {GOAL}", COLUMNS, rows)


if __name__ == "__main__":
    main()
