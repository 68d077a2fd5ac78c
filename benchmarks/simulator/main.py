"""Does the simulator tell the truth? Epochs as it predicts them, beside epochs as they are.

Four networks, two of them uneven, on one worker and on two, the two joined by the link of two network namespaces, free
and limited. Each round measures a calibration and then runs all in turn; a figure is the median of all epochs but the
first two of each run, a prediction the mean over the rounds' calibrations, because the machine's own speed changes.
What other programs disturbed by more than a tenth of a core does not count and is measured again. Needs root and
iproute2 for the namespaces.

With `--work DIR` what was measured is kept there, and a run that was stopped, or that `--seconds` ended, goes on.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks import hosts
from benchmarks.common import report

from pdadmm.calibration import Calibration, load_calibration
from pdadmm.config import Config
from pdadmm.notation import parse_hidden
from pdadmm.plan import Shape
from pdadmm.simulate import Machine, simulate

FEATURES, CLASSES, EPOCHS, SKIPPED = 196, 10, 6, 2
NETWORKS = {"8x500": 4096, "800,400,200,100": 8192, "3x1000,6x200": 4096, "2000,4x300": 4096}
"""Hidden widths, and the samples they are trained on."""
TIMEOUT = 300.0
DISTURBED = 0.1  # cores that other programs may take
COLUMNS = {
    "hidden": "",
    "samples": ",",
    "workers": "",
    "link": "",
    "placement": "",
    "measured": ".4f",
    "predicted": ".4f",
    "error": "+.1%",
}


@dataclass(frozen=True)
class Case:
    """A network on so many workers; `megabits` limits the link, None leaves it free."""

    hidden: str
    workers: int
    megabits: int | None

    @property
    def link(self) -> str:
        """In words; also the name of the link's calibration."""
        return "" if self.workers == 1 else "free" if self.megabits is None else f"{self.megabits} Mbit/s"

    @property
    def samples(self) -> int:
        return NETWORKS[self.hidden]

    def arguments(self, data: Path, out: Path, solver: str) -> list[str]:
        """Of `pdadmm`."""
        run = ["train", "--data", str(data), "--test-fraction", "0", "--quiet", "--out", str(out), "--grow", "off"]
        run += ["--hidden", self.hidden, "--solver", solver, "--epochs", str(EPOCHS), "--threads", "1"]
        run += ["--workers", str(self.workers), "--set", "evaluate_every=1000", "--set", "stationarity_every=0"]
        return [*run, "--set", "checkpoint_minutes=0"]


class Bench:
    """What is measured, kept in a folder."""

    def __init__(self, folder: Path, given: argparse.Namespace, names: tuple[str, str]) -> None:
        self._folder, self._given, self._names = folder, given, names
        self._runs = folder / f"runs-{given.solver}.jsonl"
        limits = (None, given.megabits)
        self.cases = [Case(hidden, 1, None) for hidden in NETWORKS]
        self.cases += [Case(hidden, 2, limit) for hidden in NETWORKS for limit in limits]

    def measure(self, until: float) -> bool:
        """Calibrate and run what has not been yet; False where time ran out."""
        while (work := next(self._missing(), None)) is not None:
            if time.monotonic() > until:
                return False
            began, busy, own = time.monotonic(), busy_seconds(), own_seconds()
            keep = work()
            others = (busy_seconds() - busy - own_seconds() + own) / (time.monotonic() - began)
            if others < DISTURBED:
                keep()
            else:
                print(f"measured again: others took {others:.2f} cores meanwhile", file=sys.stderr, flush=True)
        return True

    def _missing(self) -> Iterator[Callable[[], Callable[[], object]]]:
        """What is still to be measured; each gives what is to be called for it to count."""
        done = [(run["hidden"], run["workers"], run["megabits"], run["round"]) for run in self.runs()]
        for number in range(self._given.rounds):
            for megabits in (None, self._given.megabits):
                if not self._calibration(megabits, number).exists():
                    yield partial(self._calibrate, megabits, number)
                    return  # that of the limited link is made of that of the free one
            for case in self.cases:
                if (case.hidden, case.workers, case.megabits, number) not in done:
                    yield partial(self._run, case, number)

    def runs(self) -> list[dict[str, Any]]:
        """What has been run so far."""
        return [json.loads(line) for line in self._runs.read_text().splitlines()] if self._runs.exists() else []

    def _calibration(self, megabits: int | None, number: int) -> Path:
        return self._folder / f"calibration-{self._given.solver}-{megabits or 'free'}-{number}.json"

    def _calibrate(self, megabits: int | None, number: int) -> Callable[[], object]:
        """Of the machine once, of the link each time."""
        path, first = self._calibration(megabits, number), self._calibration(None, number)
        self._limit(megabits)
        new = path.with_suffix(".new")
        if megabits is not None:
            new.write_bytes(first.read_bytes())
        what = "all" if megabits is None else "link"
        options = ["--calibrate", what, "--solver", self._given.solver, "--calibration", str(new), "--json"]
        hosts.run_on_both(self._names, ["simulate", *options], TIMEOUT)
        return lambda: new.replace(path)

    def _limit(self, megabits: int | None) -> None:
        hosts.unlimit(self._names)
        if megabits is not None:
            hosts.limit(self._names, megabits)

    def _run(self, case: Case, number: int) -> Callable[[], object]:
        data = self._folder / f"{case.samples}.npz"
        if not data.exists():
            rng = np.random.default_rng(0)
            X = rng.standard_normal((case.samples, FEATURES), dtype=np.float32)
            np.savez(data, X=X, y=rng.integers(CLASSES, size=case.samples))
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "run"
            arguments = case.arguments(data, out, self._given.solver)
            if case.workers == 1:
                environment = {**os.environ, "OMP_NUM_THREADS": "1"}
                command = [sys.executable, "-m", "pdadmm", *arguments]
                subprocess.run(command, check=True, capture_output=True, env=environment, timeout=TIMEOUT)
            else:
                self._limit(case.megabits)
                hosts.run_on_both(self._names, arguments, TIMEOUT)
            rows = [json.loads(line) for line in (out / "history.jsonl").read_text().splitlines()]
        seconds = [row["seconds"] for row in rows[SKIPPED:]]
        found = {"hidden": case.hidden, "workers": case.workers, "megabits": case.megabits, "round": number}

        def keep() -> None:
            with self._runs.open("a") as file:
                file.write(json.dumps({**found, "seconds": seconds}) + "\n")

        return keep

    def rows(self) -> list[dict[str, Any]]:
        """Measured and predicted, case by case."""
        found = []
        for case in self.cases:
            key = (case.hidden, case.workers, case.megabits)
            seconds = [
                s for r in self.runs() if (r["hidden"], r["workers"], r["megabits"]) == key for s in r["seconds"]
            ]
            if not seconds:
                continue
            measured = statistics.median(seconds)
            paths = [self._calibration(case.megabits, number) for number in range(self._given.rounds)]
            known = [load_calibration(path) for path in paths if path.exists()]
            predictions = [predict(case, self._given.solver, one) for one in known]
            predicted, placement = statistics.fmean(seconds for seconds, _ in predictions), predictions[0][1]
            figures = {"measured": measured, "predicted": predicted, "error": predicted / measured - 1}
            about = {"hidden": case.hidden, "samples": case.samples, "workers": case.workers, "link": case.link}
            found.append({**about, "placement": placement, **figures})
        return found


def predict(case: Case, solver: str, calibration: Calibration) -> tuple[float, str]:
    """Seconds of a steady epoch, and the placement."""
    config = Config(hidden=parse_hidden(case.hidden), solver=solver, workers=case.workers, threads=1, grow="off")
    slowdown = calibration.slowdown if case.workers > 1 else 1.0
    worker = Machine(calibration.speed, slowdown)
    found = simulate(config.resolved(), Shape(case.samples, 0, FEATURES, CLASSES), worker, calibration.link)
    return found.epoch_seconds, str(found.placement)


def busy_seconds() -> float:
    """Processor time that all programs have taken, since the system began."""
    user, nice, system, _, _, irq, soft, steal = map(int, Path("/proc/stat").read_text().split()[1:9])
    return (user + nice + system + irq + soft + steal) / os.sysconf("SC_CLK_TCK")


def own_seconds() -> float:
    """Processor time of this process and of those it has started."""
    parts = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(part.ru_utime + part.ru_stime for part in parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--solver", default="exact")
    parser.add_argument("--megabits", type=int, default=300, help="of the limited link")
    parser.add_argument("--work", type=Path, help="where to keep what was measured")
    parser.add_argument("--seconds", type=float, default=3600.0, help="stop after so long, to be called again")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    until = time.monotonic() + given.seconds
    if (reason := hosts.why_not()) is not None:
        sys.exit(reason)
    with tempfile.TemporaryDirectory() as folder, hosts.two_hosts() as names:
        work = given.work or Path(folder)
        work.mkdir(parents=True, exist_ok=True)
        bench = Bench(work, given, names)
        done = bench.measure(until)
        rows = bench.rows()
    torch.set_num_threads(1)  # as the runs do
    report(given, f"simulator, {given.solver}, {FEATURES} features, seconds an epoch", COLUMNS, rows)
    if not given.json:
        worst = max((abs(row["error"]) for row in rows), default=0.0)
        print(f"\nlargest error {worst:.1%}; goal 10 %{'' if done else '; not all has been measured yet'}")


if __name__ == "__main__":
    main()
