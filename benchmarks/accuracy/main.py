"""How accurate are the networks, epoch by epoch, against the paper's curves and five rivals on its six data sets?

Every run is a `pdadmm train` into a directory of its own: one that has ended is read, one that was stopped goes on,
so the command may be stopped and given again. What the runs came to is kept beside this file in `curves/`, from which
`--table` makes the tables again without running anything.
"""

from __future__ import annotations

import argparse
import csv
import json
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
CURVES, TABLES, PUBLISHED = HERE / "curves", HERE / "tables", HERE / "published.csv"
HIDDEN, EPOCHS, EVERY = "9x500", 95, 5
SHOWN = (5, 10, 20, 50, 95)

METHODS: dict[str, list[str]] = {
    "pdadmm": [],
    "authors": ["--preset", "paper"],
    "gd": ["--method", "gd"],
    "adadelta": ["--method", "adadelta"],
    "adagrad": ["--method", "adagrad"],
    "adam": ["--method", "adam"],
    "dladmm": ["--method", "dladmm"],
    "adam-128": ["--method", "adam", "--batch-size", "128"],
}
NAMES = {
    "pdadmm": "pdadmm, defaults",
    "authors": "the authors' scheme",
    "gd": "GD",
    "adadelta": "Adadelta",
    "adagrad": "Adagrad",
    "adam": "Adam",
    "dladmm": "dlADMM",
    "adam-128": "Adam, batches of 128",
}
DATA = {
    "mnist": "MNIST",
    "fashion": "Fashion-MNIST",
    "kmnist": "KMNIST",
    "svhn": "SVHN",
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100, fine 0 and 2",
}
Curve = dict[int, dict[str, float]]


@dataclass(frozen=True)
class Case:
    """One run."""

    data: str
    method: str
    seed: int

    @property
    def name(self) -> str:
        return f"{self.data}-{self.method}-{self.seed}"

    def curve(self) -> Curve | None:
        """What is kept of it."""
        path = CURVES / f"{self.name}.csv"
        if not path.exists():
            return None
        with path.open() as file:
            rows = [{key: float(value) for key, value in row.items()} for row in csv.DictReader(file)]
        return {int(row["epoch"]): row for row in rows}

    def run(self, runs: Path, threads: int) -> None:
        """Train it, or go on with it, and keep its curve."""
        out = runs / self.name
        if not (out / "summary.json").exists():
            resumes = (out / "config.toml").exists()
            command = ["--resume", str(out)] if resumes else [*self._options(), "--out", str(out)]
            program = [sys.executable, "-m", "pdadmm", "train", "--threads", str(threads), "--quiet"]
            subprocess.run([*program, *command], check=True)
        rows = [json.loads(line) for line in (out / "history.jsonl").read_text().splitlines()]
        CURVES.mkdir(exist_ok=True)
        with (CURVES / f"{self.name}.csv").open("w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(("epoch", "train_accuracy", "test_accuracy", "seconds"))
            seconds = 0.0
            for row in rows:
                seconds += row["seconds"]
                if "test_accuracy" in row:
                    writer.writerow((row["epoch"], row["train_accuracy"], row["test_accuracy"], round(seconds, 2)))

    def _options(self) -> list[str]:
        options = ["--data", self.data, "--hidden", HIDDEN, "--epochs", str(EPOCHS), "--seed", str(self.seed)]
        measuring = ["--evaluate-every", str(EVERY), "--stationarity-every", "0", "--checkpoint-minutes", "3"]
        return [*options, *measuring, *METHODS[self.method]]


def published() -> dict[tuple[str, str], dict[int, float]]:
    """The paper's test accuracies, by data set and method."""
    curves: dict[tuple[str, str], dict[int, float]] = defaultdict(dict)
    with PUBLISHED.open() as file:
        for row in csv.DictReader(file):
            curves[row["data"], row["method"]][int(row["epoch"])] = float(row["test_accuracy"])
    return curves


def table(data: str, curves: dict[str, list[Curve]]) -> str:
    """Test accuracy at the shown epochs; several seeds as mean and half their range."""
    lines = [f"| {DATA[data]} | seeds | " + " | ".join(map(str, SHOWN)) + " | train, last |"]
    lines.append("|---" * (len(SHOWN) + 3) + "|")
    for method in METHODS:
        runs = curves.get(method, [])
        if not runs:
            continue
        cells = [_mean([run[epoch]["test_accuracy"] for run in runs]) for epoch in SHOWN]
        train = _mean([run[EPOCHS]["train_accuracy"] for run in runs])
        lines.append(f"| {NAMES[method]} | {len(runs)} | " + " | ".join(cells) + f" | {train} |")
    paper = published()
    for method in ("pdADMM", "Adam", "dlADMM"):
        cells = [f"{paper[data, method][epoch]:.4f}" for epoch in SHOWN]
        lines.append(f"| *published: {method}* | | " + " | ".join(cells) + " | |")
    return "\n".join(lines) + "\n"


def _mean(values: Sequence[float]) -> str:
    mean = f"{statistics.fmean(values):.4f}"
    return mean if len(values) == 1 else f"{mean} ± {(max(values) - min(values)) / 2:.4f}"


def goals(data: str, curves: dict[str, list[Curve]]) -> dict[str, object]:
    """When the published accuracy of epoch 95 was passed, and where full-batch Adam was ahead."""
    target = published()[data, "pdADMM"][95]
    ours = {epoch: statistics.fmean(run[epoch]["test_accuracy"] for run in curves["pdadmm"]) for epoch in SHOWN}
    found: dict[str, object] = {
        "published_95": target,
        "passed_by_epoch": next((epoch for epoch in sorted(ours) if ours[epoch] >= target), None),
        "last": ours[95],
    }
    if "adam" in curves:
        adam = {epoch: statistics.fmean(run[epoch]["test_accuracy"] for run in curves["adam"]) for epoch in SHOWN}
        found["ahead_of_adam_by"] = {epoch: round(ours[epoch] - adam[epoch], 4) for epoch in SHOWN}
    return found


def write_tables(names: Iterable[str]) -> None:
    """The tables of what is kept."""
    TABLES.mkdir(exist_ok=True)
    for data in names:
        curves: dict[str, list[Curve]] = defaultdict(list)
        for path in sorted(CURVES.glob(f"{data}-*.csv")):
            method, _, seed = path.stem.removeprefix(f"{data}-").rpartition("-")
            curve = Case(data, method, int(seed)).curve()
            assert curve is not None
            curves[method].append(curve)
        if "pdadmm" in curves:
            text = table(data, curves)
            (TABLES / f"{data}.md").write_text(text)
            print(f"{text}\n{json.dumps(goals(data, curves))}\n", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", nargs="+", choices=tuple(DATA), default=list(DATA))
    parser.add_argument("--methods", nargs="+", choices=tuple(METHODS), default=list(METHODS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=Path, default=Path("runs/accuracy"), help="where the runs live")
    parser.add_argument("--again", action="store_true", help="also what is kept in curves/ already")
    parser.add_argument("--table", action="store_true", help="run nothing, only make the tables")
    arguments = parser.parse_args()
    for data in () if arguments.table else arguments.data:
        for method in arguments.methods:
            for seed in arguments.seeds:
                case = Case(data, method, seed)
                if arguments.again or case.curve() is None:
                    print(f"{case.name} …", file=sys.stderr, flush=True)
                    case.run(arguments.runs, arguments.threads)
    write_tables(arguments.data)


if __name__ == "__main__":
    main()
