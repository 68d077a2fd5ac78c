"""How much faster are many workers? Measured where there are cores, simulated beyond, beside the published speedups.

*Measured*: `pdadmm train` with one and with two workers of one thread each on this machine, on random data of the
data set's shape; what is computed does not depend on what can be learned. *Simulated*: one worker for each layer,
joined by links of 1, 10 and 25 Gbit/s, by `pdadmm.simulate`. Its compute times are those of single layers measured at
the same number of samples and widths; where the whole network was timed on one worker, they are brought to its time.
"""

from __future__ import annotations

import io
import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from pdadmm.engine.schedule import Step
from pdadmm.experiments.blocks import KINDS, Block, BlockStore, step_seconds
from pdadmm.experiments.cases import Case
from pdadmm.experiments.meter import Meter
from pdadmm.experiments.published import DATA, defects
from pdadmm.experiments.results import Results
from pdadmm.experiments.settings import Settings, shape_of
from pdadmm.experiments.speedup_tables import (
    LINKS,
    Found,
    Network,
    at_rest_notes,
    long_table,
    measured_table,
    numbers,
    simulated_table,
)
from pdadmm.machine import available_memory
from pdadmm.plan import Shape, plan_memory
from pdadmm.rundir import make_directory, write_whole
from pdadmm.simulate import Machine, serial_seconds, simulate

SHARED = "speedup"  # the folder of runs and blocks that both experiments use
SOLVERS = ("exact", "linearized")
SETS = ("mnist", "fashion", "kmnist", "cifar10", "cifar100")
MOST_EPOCH_SECONDS = 60.0  # a whole network is timed where a typical core would need no longer


class Speedup:
    """An experiment over networks that differ in one number; `timed` are those of its values that are also measured."""

    def __init__(
        self, settings: Settings, name: str, title: str, networks: Sequence[Network], timed: Sequence[int]
    ) -> None:
        self.name, self.title = name, title
        self._settings, self._networks = settings, networks
        self._store = BlockStore(settings.folder(SHARED) / "blocks.json")
        by_key = {block.key: block for network in networks for block in self._blocks(network).values()}
        self.blocks = list(by_key.values())
        """The layers to measure, each once."""
        cases = [self._case(n, workers) for n in networks if n.x in timed for workers in (1, 2)]
        self.cases = list({case.path: case for case in cases if case.is_finished() or _can_be_timed(case)}.values())
        """The runs to time, each once."""

    def check(self) -> None:
        """Nothing that was asked for can be refused here: no data set is needed."""

    def make_data(self) -> None:
        """Write the data that is run on."""
        for case in self.cases:
            _write_random(case.config.data, case.shape)

    def measure(self, meter: Meter) -> None:
        """Measure the layers that have not been, by this or the other experiment."""
        self._store.read()
        for block in self.blocks:
            if block not in self._store:
                meter.show(f"measuring a layer: {block.key}")
                self._store.add(block)
            meter.advance(block.key, 1.0)
        meter.close()

    def is_measured(self, block: Block) -> bool:
        """Whether its time is known."""
        return block in self._store

    def results(self) -> Results:
        """What is known of the networks whose layers were measured."""
        from pdadmm.experiments.speedup_figure import speedup_figure

        ready = [n for n in self._networks if all(block in self._store for block in self._blocks(n).values())]
        found = self._all_found(ready)
        groups: dict[tuple[str, str], list[Found]] = {}
        for one in found:
            groups.setdefault((one.network.data, one.network.solver), []).append(one)
        figure = self.name.replace("-", "_")
        tables = {"Measured on this machine": measured_table(found)} if any(one.measured for one in found) else {}
        tables |= {
            f"{DATA[data]}, {solver}: published and simulated": simulated_table(figure, ones)
            for (data, solver), ones in groups.items()
        }
        return Results(
            self.name,
            self.title,
            self._settings.scale.name,
            self._settings.command,
            defects("machines", "disagree", "seconds", "cifar100", "cifar10"),
            [*self._notes(), *at_rest_notes(found)],
            long_table(figure, found),
            tables,
            {"networks": [numbers(figure, one) for one in found]},
            {"figure": speedup_figure(figure, found)} if found else {},
        )

    def _blocks(self, network: Network) -> dict[str, Block]:
        repeats = 1 if self._settings.scale.speedup_samples is None else 5
        return {kind: Block(network.solver, network.shape, network.width, kind, 1, repeats) for kind in KINDS}

    def _case(self, network: Network, workers: int) -> Case:
        shape, scale = network.shape, self._settings.scale
        size = f"{shape.samples}-{shape.features}-{shape.outputs}"
        config = replace(
            network.config(workers),
            data=str(self._settings.out / "data" / f"random-{size}.npz"),
            test_fraction=0.0,
            epochs=scale.timed_epochs,
            evaluate_every=scale.timed_epochs,
            stationarity_every=0,
            checkpoint_minutes=0.0,
        )
        name = f"{network.solver}-{size}-{network.depth}x{network.width}-{workers}"
        return Case(self._settings.folder(SHARED) / "runs" / name, config, shape, alone=True)

    def _added_up(self, network: Network) -> float:
        config = network.config(network.workers).resolved()
        return serial_seconds(config, network.shape, Machine(), self._seconds(network))

    def _seconds(self, network: Network, factor: float = 1.0) -> Callable[[Step, int], float]:
        times = {kind: self._store[block] for kind, block in self._blocks(network).items()}
        return step_seconds(times, network.workers, factor)

    def _factor(self, network: Network, others: Sequence[Network]) -> float:
        """What whole networks of the same shape and solver take against their layers one by one."""
        alike = [n for n in others if (n.shape, n.solver) == (network.shape, network.solver)]
        whole = {n: _epoch_seconds(self._case(n, 1)) for n in alike}
        return statistics.median([time / self._added_up(n) for n, time in whole.items() if time] or [1.0])

    def _all_found(self, networks: Sequence[Network]) -> list[Found]:
        """Data sets of one shape are simulated once."""
        known: dict[Network, Found] = {}
        for network in networks:
            first = next((n for n in known if replace(n, data=network.data) == network), None)
            known[network] = (
                replace(known[first], network=network)
                if first is not None
                else self._found(network, self._factor(network, networks))
            )
        return list(known.values())

    def _found(self, network: Network, factor: float) -> Found:
        one, two = (_epoch_seconds(self._case(network, workers)) for workers in (1, 2))
        config, seconds = network.config(network.workers).resolved(), self._seconds(network, factor)
        simulated = {}
        for name, link in LINKS.items():
            simulation = simulate(config, network.shape, Machine(), link, seconds)
            simulated[name] = (simulation.speedup, simulation.epoch_seconds)
        return Found(network, self._added_up(network), factor, one, two, simulated)

    def _notes(self) -> list[str]:
        scale = self._settings.scale
        notes = [
            "*Measured*: one and two workers of one thread each on this machine, random data of the data set's shape, "
            "median epoch without the first, no other run beside them. *Simulated*: one worker (one core as fast as "
            "this machine's) for each layer, the output layer counted, 50 µs latency; compute times are of single "
            "layers measured here at these samples and widths.",
            "Speedup is against one worker with all layers. Where whole networks of a shape were timed, the times of "
            "its layers are multiplied by what the whole took against their sum. `exact` is this program's default "
            "solver, `linearized` the paper's steps with step sizes in closed form.",
        ]
        if scale.speedup_samples is not None:
            notes.append(
                f"Scaled down: at most {scale.speedup_samples:,} samples and widths divided by {scale.narrower}, so "
                f"links weigh about {scale.narrower} times as much against computing as at full size; the published "
                f"values are for the full size. --scale paper has the published sizes."
            )
        else:
            notes.append("Whole networks were timed where they fit in memory and a core needs about a minute an epoch.")
        lacking = [block.key for block in self.blocks if block not in self._store]
        return [*notes, f"Not measured yet: {len(lacking)} layers."] if lacking else notes


def networks(settings: Settings, name: str, xs: Sequence[int], sizes: dict[int, tuple[int, int]]) -> list[Network]:
    """The networks of the experiment: `sizes` has depth and width for each x, before the scale narrows them."""
    scale, found = settings.scale, []
    data = settings.chosen_data(SETS, name)
    for solver in settings.chosen_methods(SOLVERS, SOLVERS, name):
        for one in data:
            shape = shape_of(one)
            samples = min(shape.samples, scale.speedup_samples or shape.samples)
            shape = Shape(samples, 0, shape.features, shape.outputs)
            found += [Network(one, solver, x, sizes[x][0], max(2, sizes[x][1] // scale.narrower), shape) for x in xs]
    return found


def _can_be_timed(case: Case) -> bool:
    """Whether a run fits in memory and in the time."""
    free = available_memory()
    fits = free is None or plan_memory(case.config.resolved(), case.shape).total < free
    epochs, processes = case.config.epochs, case.config.workers
    return fits and case.work * processes / epochs < MOST_EPOCH_SECONDS


def _epoch_seconds(case: Case) -> float | None:
    return statistics.median(row["seconds"] for row in case.history()[1:]) if case.is_finished() else None


def _write_random(path: str, shape: Shape) -> None:
    """Normal features, and each class equally often."""
    target = Path(path)
    if target.exists():
        return
    X = np.random.default_rng(0).standard_normal((shape.samples, shape.features), dtype=np.float32)
    buffer = io.BytesIO()
    np.savez(buffer, X=X, y=np.arange(shape.samples) % shape.outputs)
    make_directory(target.parent)
    write_whole(target, buffer.getvalue())
