"""What would the paper's cluster give? Its networks, simulated, beside what it published.

A worker a layer, the output layer counted, as the paper seems to have had; links of 1, 10 and 25 Gbit/s and 50 us. All
is simulated: nothing here was measured but the speed of a worker, which `--gflops` scales.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.common import Row, report

from pdadmm.calibration import load_calibration
from pdadmm.config import Config
from pdadmm.engine.timeline import Link
from pdadmm.engine.typical import TYPICAL
from pdadmm.notation import format_hidden
from pdadmm.plan import Shape
from pdadmm.simulate import TYPICAL_LINK, Machine, free_bandwidth, simulate
from pdadmm.sweep import sweep_shards
from pdadmm.units import format_bandwidth

SHAPES = {
    "MNIST": Shape(55_000, 0, 196, 10),
    "Fashion-MNIST": Shape(60_000, 0, 196, 10),
    "KMNIST": Shape(60_000, 0, 196, 10),
    "CIFAR-10": Shape(10_000, 0, 768, 2),
    "CIFAR-100": Shape(1_000, 0, 768, 2),
}
GIGABITS = (1, 10, 25)
# Read off the figure (11 to 19 layers of 2400) and from Table I (19 layers of 1500, 2000 and, where it has it, 2400).
BY_LAYERS = {
    "MNIST": {11: 5.38, 13: 6.35, 15: 7.89, 17: 9.63, 19: 10.38},
    "Fashion-MNIST": {11: 4.75, 13: 5.78, 15: 6.91, 17: 8.26, 19: 8.92},
    "KMNIST": {11: 5.80, 13: 6.71, 15: 7.88, 17: 9.26, 19: 9.90},
    "CIFAR-10": {11: 6.34, 13: 7.24, 15: 8.38, 17: 10.12, 19: 11.34},
    "CIFAR-100": {11: 6.58, 13: 7.69, 15: 8.80, 17: 10.13, 19: 12.16},
}
BY_NEURONS = {
    "MNIST": {1500: 8.87, 2000: 11.26, 2400: 12.27},
    "Fashion-MNIST": {1500: 10.99, 2000: 11.01, 2200: 11.03},
    "KMNIST": {1500: 10.87, 2000: 11.78, 2200: 10.59},
    "CIFAR-10": {1500: 13.06, 2000: 12.20, 2400: 13.54},
    "CIFAR-100": {1500: 13.18, 2000: 13.56, 2400: 13.76},
}
SPEEDUPS = {f"{rate} Gbit/s": ".1f" for rate in GIGABITS}


def networks(question: str) -> Iterator[tuple[str, tuple[int, ...], float]]:
    """Data set, hidden widths and the published speedup."""
    if question == "layers":
        for name, published in BY_LAYERS.items():
            yield from ((name, (2400,) * depth, speedup) for depth, speedup in published.items())
    else:
        for name, published in BY_NEURONS.items():
            yield from ((name, (width,) * 19, speedup) for width, speedup in published.items())


def link_of(gigabits: int, machine: Machine) -> Link:
    """So fast, between such workers."""
    link = TYPICAL_LINK.with_workers(machine.speed.gflops / TYPICAL.gflops)
    return dataclasses.replace(link, bytes_per_second=gigabits * 1e9 / 8)


def speedups(machine: Machine, solver: str, question: str) -> Iterator[Row]:
    """A row a network."""
    for name, hidden, published in networks(question):
        config = Config(hidden=hidden, solver=solver, workers=len(hidden) + 1, grow="off").resolved()
        row: Row = {"data set": name, "hidden": format_hidden(hidden), "workers": config.workers}
        for rate in GIGABITS:
            link = link_of(rate, machine)
            found = simulate(config, SHAPES[name], machine, link)
            row[f"{rate} Gbit/s"] = found.speedup
        row["s an epoch"] = found.epoch_seconds
        row["free links"] = found.serial_seconds / found.ceiling_seconds
        row["enough"] = format_bandwidth(free_bandwidth(found))
        yield {**row, "published": published}


def scaling(machine: Machine, solver: str) -> Iterator[Row]:
    """MNIST, 19 x 2400 on 20 workers a shard: up to 1,000 workers."""
    config = Config(hidden=(2400,) * 19, solver=solver, workers=20, grow="off").resolved()
    for rate in GIGABITS:
        link = link_of(rate, machine)
        for one in sweep_shards(config, SHAPES["MNIST"], machine, link):
            losses = {name: one.losses()[name] for name in ("link", "repeated", "imbalance")}
            about = {"link of": f"{rate} Gbit/s", "shards": one.config.shards, "workers": one.processes}
            yield {**about, "speedup": one.speedup, "efficiency": one.efficiency, **losses}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gflops", type=float, action="append", help="speed of a worker; repeatable; default 80, 1000")
    parser.add_argument("--solver", action="append", help="repeatable; default exact, linearized")
    parser.add_argument("--calibration", type=Path, help="of a worker (default: a typical core)")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    given.rounds = 0
    speed = TYPICAL if given.calibration is None else load_calibration(given.calibration).speed
    columns = {"data set": "", "hidden": "", "workers": "", **SPEEDUPS, "free links": ".1f", "enough": ""}
    columns |= {"s an epoch": ".3g", "published": ".1f"}
    shares = {"efficiency": ".0%", "link": ".0%", "repeated": ".0%", "imbalance": ".0%"}
    for solver, gflops in itertools.product(given.solver or ["exact", "linearized"], given.gflops or [80.0, 1000.0]):
        machine, title = Machine(speed.scaled(gflops)), f"{solver}, workers of {gflops:g} Gflop/s"
        for question in ("layers", "neurons"):
            report(given, f"speedup by {question}, {title}", columns, list(speedups(machine, solver, question)))
        shards = {"link of": "", "shards": "", "workers": ",", "speedup": ".1f", **shares}
        report(given, f"shards, MNIST, 19x2400, {title}", shards, list(scaling(machine, solver)))
        print(file=sys.stdout)


if __name__ == "__main__":
    main()
