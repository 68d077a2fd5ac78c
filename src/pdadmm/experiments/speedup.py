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
import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pdadmm.config import Config
from pdadmm.data.published import VARIANTS
from pdadmm.errors import UserError
from pdadmm.experiments.experiment import Experiment, Settings
from pdadmm.experiments.parts import write_npz
from pdadmm.experiments.published import DATA, PAPER, published
from pdadmm.experiments.result import Cell, Figure, Result, Table, at, series
from pdadmm.experiments.runs import Case, progress
from pdadmm.machine import available_memory, keep_freed_memory
from pdadmm.plan import Shape, plan_memory
from pdadmm.rundir import make_directory, read_history, write_whole
from pdadmm.simulate.blocks import BlockTimes, measure_layers
from pdadmm.simulate.simulation import serial_seconds, simulate
from pdadmm.simulate.timeline import Link

LAYERS_FILE = "layers.json"
COMMON = PAPER["speedup"]
LINKS = {"no link cost": Link(), **{f"{g} Gbit/s": Link(g * 1e9 / 8, COMMON["latency"]) for g in COMMON["gigabits"]}}
MOST_EPOCH_SECONDS = 60.0
"""A whole network is timed where its layers need no longer."""
AT_REST = (0.75, 1.33)
"""Whole networks take about what their layers take one by one, if nothing else runs."""
MEMORY_SHARE = 0.6
"""Of the free memory, for a layer that is measured."""


@dataclass(frozen=True)
class Network:
    """A network of the paper at the scale of the experiment; `x` is the published number it stands for."""

    solver: str
    x: int
    depth: int
    width: int
    shape: Shape

    def config(self, workers: int = 1) -> Config:
        """Whole from the start, as a timed run has it."""
        return Config(hidden=(self.width,) * self.depth, solver=self.solver, grow="off", workers=workers)

    @property
    def workers(self) -> int:
        """One for each layer, the output counted."""
        return self.depth + 1

    @property
    def layers(self) -> str:
        """A name for its first, hidden and output layer, which tells all that their times depend on."""
        shape = self.shape
        return f"{self.solver} {shape.samples} samples, {shape.features} to {self.width} to {shape.outputs}, 1 thread"

    def speed(self, times: Sequence[BlockTimes], factor: float = 1.0) -> list[BlockTimes]:
        """For `simulate`: each layer as its kind was measured, all longer by `factor`."""
        first, hidden, output = (one.times(factor) for one in times)
        return [first, *[hidden] * (self.depth - 1), output]


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


class Speedup(Experiment):
    """An experiment over networks that differ in one number."""

    def __init__(self, settings: Settings, name: str) -> None:
        super().__init__(settings, name, COMMON | PAPER[name])
        self._folder = settings.out / "speedup"  # runs and layers that both experiments use
        self._times = read_times(self._folder)
        self._by_data = {
            (data, solver): [self._network(data, solver, x) for x in self.paper["values"]]
            for solver in self.methods
            for data in self.data
        }
        self._networks = list(dict.fromkeys(network for found in self._by_data.values() for network in found))

    def _network(self, data: str, solver: str, x: int) -> Network:
        variant, scale = VARIANTS[data], self.settings.scale
        samples = min(variant.samples[0], scale.speedup_samples or variant.samples[0])
        depth, width = self.paper.get("layers", x), self.paper.get("neurons", x)
        shape = Shape(samples, 0, variant.features, variant.num_classes)
        return Network(solver, x, depth, max(2, width // scale.narrower), shape)

    def prepare(self, quiet: bool) -> None:
        """Measure the layers that have not been, by this or the other experiment, and write the data of the runs."""
        self._times = read_times(self._folder)
        lacking = {network.layers: network for network in self._networks if network.layers not in self._times}
        with progress(len(lacking), "network", quiet, f"{self.name}, single layers") as bar:
            for name, network in lacking.items():
                self._times[name] = measure_kinds(network)
                kept = {name: [dataclasses.asdict(one) for one in kinds] for name, kinds in self._times.items()}
                make_directory(self._folder)
                write_whole(self._folder / LAYERS_FILE, (json.dumps(kept, indent=1) + "\n").encode())
                bar.update()
        for shape in {network.shape for network in self._timed()}:
            if not (path := self._random_data(shape)).exists():
                X = np.random.default_rng(0).standard_normal((shape.samples, shape.features), dtype=np.float32)
                write_npz(path, {"X": X, "y": np.arange(shape.samples) % shape.outputs})

    @property
    def cases(self) -> list[Case]:
        """The runs to time, each once, of networks whose layers were measured."""
        return [self._case(network, workers) for network in self._timed() for workers in (1, 2)]

    def _timed(self) -> list[Network]:
        """Networks that are timed whole, where memory and time suffice."""
        timed = [network for network in self._networks if network.x in self.paper["timed"]]
        return [network for network in timed if network.layers in self._times and self._can_be_timed(network)]

    def _can_be_timed(self, network: Network) -> bool:
        if self._case(network, 1).is_finished:
            return True
        free = available_memory()
        fits = free is None or plan_memory(network.config(2).resolved(), network.shape).total < free
        return fits and self._layers(network) < MOST_EPOCH_SECONDS

    def _case(self, network: Network, workers: int) -> Case:
        shape, epochs = network.shape, self.settings.scale.timed_epochs
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
        return self.settings.out / "data" / f"random-{shape.samples}-{shape.features}-{shape.outputs}.npz"

    def _layers(self, network: Network) -> float:
        """An epoch of one worker, by its layers."""
        speed = network.speed(self._times[network.layers])
        return serial_seconds(network.config().resolved(), network.shape, speed)

    def result(self) -> Result:
        """What is known of the networks whose layers were measured."""
        known = {network: self._found(network) for network in self._networks if network.layers in self._times}
        of_data = {key: [known[n] for n in networks if n in known] for key, networks in self._by_data.items()}
        of_data = {key: found for key, found in of_data.items() if found}
        more = at_rest_notes(known.values())
        if lacking := len(self._networks) - len(known):
            more.append(f"Layers not measured yet: those of {lacking} networks.")
        tables = [measured_table(of_data)] if any(one.two for one in known.values()) else []
        x = self.paper["x"]
        tables += [simulated_table(x, data, solver, found) for (data, solver), found in of_data.items()]
        figures = [speedup_figure(x, data, of_data) for data in dict.fromkeys(data for data, _ in of_data)]
        return self.made(more, tables, figures)

    def _found(self, network: Network) -> Found:
        """Whole networks of one shape and solver are slower than their layers by the same factor, their median."""
        alike = [n for n in self._networks if (n.shape, n.solver) == (network.shape, network.solver)]
        whole = {n: epoch_seconds(self._case(n, 1)) for n in alike if n.layers in self._times}
        factor = statistics.median([seconds / self._layers(n) for n, seconds in whole.items() if seconds] or [1.0])
        speed = network.speed(self._times[network.layers], factor)
        config = network.config(network.workers).resolved()
        speedups = {name: simulate(config, network.shape, speed, link).speedup for name, link in LINKS.items()}
        two = epoch_seconds(self._case(network, 2))
        return Found(network, self._layers(network), factor, whole[network], two, speedups)


def read_times(folder: Path) -> dict[str, list[BlockTimes]]:
    """The layers that were measured, by `Network.layers`."""
    path = folder / LAYERS_FILE
    if not path.exists():
        return {}
    try:
        found = json.loads(path.read_bytes())
        return {name: [BlockTimes(**times) for times in kinds] for name, kinds in found.items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise UserError(f"{path} does not hold times of layers ({error}); remove it to measure again") from None


def measure_kinds(network: Network) -> list[BlockTimes]:
    """Its first, a hidden and its output layer on one thread, at all its samples where the free memory holds them."""
    keep_freed_memory()
    config = dataclasses.replace(network.config(), hidden=(network.width,) * 2, threads=1).resolved()
    most_bytes = int(MEMORY_SHARE * (available_memory() or 4 * 2**30))
    return measure_layers(config, network.shape, repeats=1, max_bytes=most_bytes, most_rows=network.shape.samples)


def epoch_seconds(case: Case) -> float | None:
    """The median epoch of a timed run without the first."""
    return statistics.median(row["seconds"] for row in read_history(case.path)[1:]) if case.is_finished else None


def at_rest_notes(found: Iterable[Found]) -> list[str]:
    """What to tell where whole networks and their layers do not agree."""
    factors = [one.factor for one in found if not AT_REST[0] <= one.factor <= AT_REST[1]]
    return [COMMON["not_at_rest"].format(least=min(factors), most=max(factors))] if factors else []


OfData = Mapping[tuple[str, str], Sequence[Found]]
"""By data set and solver."""


def measured_table(of_data: OfData) -> Table:
    """Networks that were timed whole on one and on two workers, with the data sets of their shape."""
    rows: dict[Network, list[Cell]] = {}
    for (data, solver), found in of_data.items():
        for one in found:
            n = one.network
            if one.one is None or one.two is None:
                continue
            if (row := rows.get(n)) is not None:
                row[1] = f"{row[1]}, {DATA[data]}"
                continue
            name = f"{n.depth}x{n.width}, {n.shape.samples:,} × {n.shape.features} to {n.shape.outputs}"
            times = [f"{seconds:.3f}" for seconds in (one.layers, one.one, one.two)]
            rows[n] = [name, DATA[data], solver, *times, f"{one.measured_speedup:.2f}"]
    seconds = ["its layers one by one, s", "1 worker, s an epoch", "2 workers, s an epoch"]
    columns = ["network", "shape of", "solver", *seconds, "measured speedup"]
    return Table("Measured on this machine", columns, list(rows.values()))


def simulated_table(what: str, data: str, solver: str, found: Sequence[Found]) -> Table:
    """One data set and solver: the published speedup beside what each link would give."""
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


def speedup_figure(what: str, data: str, of_data: OfData) -> Figure:
    """One data set: simulated by link and solver, measured, and the published curve."""
    drawn = [series("published, about 20 machines", published(f"speedup_{what}", data, "speedup"))]
    for (name, solver), found in of_data.items():
        if name != data:
            continue
        for link in LINKS:
            curve = {one.network.x: one.speedups[link] for one in found}
            drawn.append(series(f"simulated, a worker a layer, {link}, {solver}", curve))
        timed = {one.network.x: speedup for one in found if (speedup := one.measured_speedup) is not None}
        drawn += [series(f"measured, 2 workers, {solver}", timed)] if timed else []
    return Figure(f"{DATA[data]}: speedup by the number of {what}", what, "speedup", drawn)
