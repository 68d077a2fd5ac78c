"""How much faster are many workers? Measured where there are cores, simulated beyond, beside the published speedups.

Two experiments over networks that differ in one number: 11 to 19 hidden layers of 2,400, and Table I's 19 hidden
layers of 1,500 to 2,400. *Measured*: `pdadmm train` with one and with two workers of one thread each on this machine,
on random data of the data set's shape; what is computed does not depend on what can be learned. *Simulated*: one worker
for each layer, joined by links of 1, 10 and 25 Gbit/s, by `pdadmm.simulate`. Its compute times are those of single
layers measured at the same number of samples and widths; where whole networks were timed on one worker, they are
brought to the time of those.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import numpy as np

from pdadmm.data.published import VARIANTS
from pdadmm.experiments.networks import KINDS, LayerTimes, Network
from pdadmm.experiments.published import DATA, PAPER, published
from pdadmm.experiments.result import Cell, Figure, Result, Table, at, series
from pdadmm.experiments.runs import Case, progress
from pdadmm.experiments.settings import Settings, write_npz
from pdadmm.machine import available_memory
from pdadmm.plan import Shape, plan_memory
from pdadmm.rundir import read_history
from pdadmm.simulate.simulation import serial_seconds, simulate
from pdadmm.simulate.timeline import Link

COMMON = PAPER["speedup"]
LINKS = {"no link cost": Link(), **{f"{g} Gbit/s": Link(g * 1e9 / 8, COMMON["latency"]) for g in COMMON["gigabits"]}}
MOST_EPOCH_SECONDS = 60.0
"""A whole network is timed where its layers need no longer."""
AT_REST = (0.75, 1.33)
"""Whole networks take about what their layers take one by one, if nothing else runs."""


@dataclass(frozen=True)
class Found:
    """What is known of a network; times in seconds an epoch."""

    network: Network
    layers: float
    """One worker, from its layers as they were measured one by one."""
    factor: float
    """What whole networks of this shape take against that; 1 where none was timed."""
    one: float | None
    """The whole network, measured on one worker of one thread."""
    two: float | None
    """On two."""
    speedups: dict[str, float]
    """Of a worker a layer, simulated, by link."""

    @property
    def measured_speedup(self) -> float | None:
        """Two workers against one."""
        return self.one / self.two if self.one and self.two else None


class Speedup:
    """An experiment over networks that differ in one number."""

    def __init__(self, settings: Settings, name: str) -> None:
        self._settings, self._name, self._paper = settings, name, COMMON | PAPER[name]
        self._folder = settings.out / "speedup"  # runs and layers that both experiments use
        repeats = 1 if settings.scale.speedup_samples is None else 5
        self._times = LayerTimes(self._folder / "blocks.json", repeats)
        data = settings.chosen_data(COMMON["data"], name)
        solvers = settings.chosen_methods(COMMON["solvers"], name)
        xs = self._paper["values"]
        self._networks = [self._network(one, solver, x) for solver in solvers for one in data for x in xs]

    def _network(self, data: str, solver: str, x: int) -> Network:
        variant, scale = VARIANTS[data], self._settings.scale
        samples = min(variant.samples[0], scale.speedup_samples or variant.samples[0])
        depth, width = self._paper.get("layers", x), self._paper.get("neurons", x)
        shape = Shape(samples, 0, variant.features, variant.num_classes)
        return Network(data, solver, x, depth, max(2, width // scale.narrower), shape)

    def prepare(self, quiet: bool) -> None:
        """Measure the layers that have not been, by this or the other experiment, and write the data of the runs."""
        lacking = {n.layer(kind): (n, kind) for n in self._networks if not self._times.has(n) for kind in KINDS}
        with progress(len(lacking), "layer", quiet, f"{self._name}, single layers") as bar:
            for network, kind in lacking.values():
                self._times.measure(network, kind)
                bar.update()
        for shape in {network.shape for network in self._timed()}:
            if not (path := self._random_data(shape)).exists():
                X = np.random.default_rng(0).standard_normal((shape.samples, shape.features), dtype=np.float32)
                write_npz(path, {"X": X, "y": np.arange(shape.samples) % shape.outputs})

    @property
    def cases(self) -> list[Case]:
        """The runs to time, each once, of networks whose layers were measured."""
        return list(dict.fromkeys(self._case(network, workers) for network in self._timed() for workers in (1, 2)))

    def _timed(self) -> list[Network]:
        """Networks that are timed whole, where memory and time suffice."""
        return [
            network for network in self._networks if network.x in self._paper["timed"] and self._can_be_timed(network)
        ]

    def _can_be_timed(self, network: Network) -> bool:
        if not self._times.has(network) or self._case(network, 1).is_finished:
            return self._times.has(network)
        free = available_memory()
        fits = free is None or plan_memory(network.config(2).resolved(), network.shape).total < free
        return fits and self._layers(network) < MOST_EPOCH_SECONDS

    def _case(self, network: Network, workers: int) -> Case:
        shape, epochs = network.shape, self._settings.scale.timed_epochs
        config = dataclasses.replace(
            network.config(workers),
            data=str(self._random_data(shape)),
            test_fraction=0.0,
            epochs=epochs,
            evaluate_every=epochs,
            stationarity_every=0,
            checkpoint_minutes=0.0,
        )
        size = f"{shape.samples}-{shape.features}-{shape.outputs}"
        name = f"{network.solver}-{size}-{network.depth}x{network.width}-{workers}"
        return Case(self._folder / "runs" / name, config, is_timed=True)

    def _random_data(self, shape: Shape) -> Path:
        """Normal features, and each class equally often."""
        return self._settings.out / "data" / f"random-{shape.samples}-{shape.features}-{shape.outputs}.npz"

    def _layers(self, network: Network) -> float:
        """An epoch of one worker, by its layers."""
        return serial_seconds(network.config(1).resolved(), network.shape, self._times.speed(network))

    def result(self) -> Result:
        """What is known of the networks whose layers were measured."""
        measured = [network for network in self._networks if self._times.has(network)]
        found: list[Found] = []
        for network in measured:  # data sets of one shape are simulated once
            twin = next((one for one in found if _size(one.network) == _size(network)), None)
            found.append(dataclasses.replace(twin, network=network) if twin else self._found(network, measured))
        more = at_rest_notes(found)
        if len(measured) < len(self._networks):
            more.append(f"Layers not measured yet: those of {len(self._networks) - len(measured)} networks.")
        of_data = [list(group) for _, group in groupby(found, lambda one: (one.network.solver, one.network.data))]
        tables = [measured_table(found)] if any(one.two for one in found) else []
        tables += [simulated_table(self._paper["x"], group) for group in of_data]
        return Result(
            self._name,
            self._paper["title"],
            self._settings.notes(self._paper, more),
            tables,
            [speedup_figure(self._paper["x"], data, found) for data in {one.network.data: None for one in found}],
        )

    def _found(self, network: Network, measured: Sequence[Network]) -> Found:
        """Whole networks of one shape and solver are slower than their layers by the same factor, their median."""
        alike = [n for n in measured if (n.shape, n.solver) == (network.shape, network.solver)]
        whole = {n: epoch_seconds(self._case(n, 1)) for n in alike}
        factor = statistics.median([seconds / self._layers(n) for n, seconds in whole.items() if seconds] or [1.0])
        speed = self._times.speed(network, factor)
        config = network.config(network.workers).resolved()
        speedups = {name: simulate(config, network.shape, speed, link).speedup for name, link in LINKS.items()}
        two = epoch_seconds(self._case(network, 2))
        return Found(network, self._layers(network), factor, whole[network], two, speedups)


def _size(network: Network) -> Network:
    return dataclasses.replace(network, data="")


def epoch_seconds(case: Case) -> float | None:
    """The median epoch of a timed run without the first."""
    return statistics.median(row["seconds"] for row in read_history(case.path)[1:]) if case.is_finished else None


def at_rest_notes(found: Sequence[Found]) -> list[str]:
    """What to tell where whole networks and their layers do not agree."""
    factors = [one.factor for one in found if not AT_REST[0] <= one.factor <= AT_REST[1]]
    if not factors:
        return []
    return [
        f"**Whole networks took {min(factors):.2g} to {max(factors):.2g} times the sum of their layers, so the machine "
        f"was not at rest while they were measured: do not use these times; remove the folder "
        f"speedup and measure again.**"
    ]


def measured_table(found: Sequence[Found]) -> Table:
    """Networks that were timed whole on one and on two workers, with the data sets of their shape."""
    rows: dict[Network, list[Cell]] = {}
    for one in found:
        n = one.network
        if one.one is None or one.two is None:
            continue
        if (row := rows.get(_size(n))) is not None:
            row[1] = f"{row[1]}, {DATA[n.data]}"
            continue
        name = f"{n.depth}x{n.width}, {n.shape.samples:,} × {n.shape.features} to {n.shape.outputs}"
        times = [f"{seconds:.3f}" for seconds in (one.layers, one.one, one.two)]
        rows[_size(n)] = [name, DATA[n.data], n.solver, *times, f"{one.measured_speedup:.2f}"]
    seconds = ["its layers one by one, s", "1 worker, s an epoch", "2 workers, s an epoch"]
    columns = ["network", "shape of", "solver", *seconds, "measured speedup"]
    return Table("Measured on this machine", columns, list(rows.values()))


def simulated_table(what: str, found: Sequence[Found]) -> Table:
    """One data set and solver: the published speedup beside what each link would give."""
    data, solver = found[0].network.data, found[0].network.solver
    values = published(f"speedup_{what}", data, "speedup")
    rows: list[list[Cell]] = []
    for one in found:
        n = one.network
        name = f"{n.depth}x{n.width}, {n.shape.samples:,}"
        serial = f"{one.factor * one.layers:.3g}"
        speedups = [f"{speedup:.2f}" for speedup in one.speedups.values()]
        rows.append([n.x, name, n.workers, at(values, n.x, ".2f"), serial, *speedups])
    columns = [what, "network here", "workers", "published speedup", "serial s an epoch"]
    columns += [f"simulated, {link}" for link in LINKS]
    return Table(f"{DATA[data]}, {solver}: published and simulated", columns, rows)


def speedup_figure(what: str, data: str, found: Sequence[Found]) -> Figure:
    """One data set: simulated by link and solver, measured, and the published curve."""
    drawn = [series("published, about 20 machines", published(f"speedup_{what}", data, "speedup"))]
    for solver in COMMON["solvers"]:
        own = {one.network.x: one for one in found if (one.network.data, one.network.solver) == (data, solver)}
        for link in LINKS if own else ():
            curve = {x: one.speedups[link] for x, one in own.items()}
            drawn.append(series(f"simulated, a worker a layer, {link}, {solver}", curve))
        timed = {x: speedup for x, one in own.items() if (speedup := one.measured_speedup) is not None}
        drawn += [series(f"measured, 2 workers, {solver}", timed)] if timed else []
    return Figure(f"{DATA[data]}: speedup by the number of {what}", what, "speedup", drawn)
