"""What is known of the networks whose speedup is asked, and the tables of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pdadmm.config import Config
from pdadmm.engine.timeline import Link
from pdadmm.experiments.published import DATA, published
from pdadmm.experiments.results import Cell, Table
from pdadmm.plan import Shape

LINKS = {"no link cost": Link(), **{f"{g} Gbit/s": Link(g * 1e9 / 8, 50e-6) for g in (25, 10, 1)}}
AT_REST = (0.75, 1.33)
"""Whole networks take about what their layers take one by one, if nothing else runs."""
_SERIES = ("serial_seconds", "parallel_seconds", "speedup")  # as Table I has them


@dataclass(frozen=True)
class Network:
    """A network of the paper at the scale of the experiment; `x` is the published number it stands for."""

    data: str
    solver: str
    x: int
    depth: int
    width: int
    shape: Shape

    def config(self, workers: int) -> Config:
        """Whole from the start, as a timed run has it."""
        return Config(hidden=(self.width,) * self.depth, solver=self.solver, grow="off", workers=workers)

    @property
    def workers(self) -> int:
        """One for each layer, the output counted."""
        return self.depth + 1


@dataclass(frozen=True)
class Found:
    """What is known of a network; times in seconds an epoch."""

    network: Network
    added_up: float
    """One worker, from its layers as they were measured one by one."""
    factor: float
    """What whole networks of this shape take against that; 1 where none was timed."""
    measured_serial: float | None
    """The whole network on one worker of one thread."""
    measured: float | None
    """On two."""
    simulated: dict[str, tuple[float, float]]
    """By link: speedup and epoch seconds."""

    @property
    def serial(self) -> float:
        """One worker, as the simulation has it."""
        return self.factor * self.added_up

    @property
    def measured_speedup(self) -> float | None:
        """Two workers against one."""
        return self.measured_serial / self.measured if self.measured and self.measured_serial else None


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
    """Networks that were timed whole on one and on two workers."""
    alike: dict[tuple[str, str], list[Found]] = {}
    for one in found:
        n = one.network
        if one.measured is not None and one.measured_serial is not None:
            name = f"{n.depth}x{n.width}, {n.shape.samples:,} × {n.shape.features} to {n.shape.outputs}"
            alike.setdefault((name, n.solver), []).append(one)
    rows: list[list[Cell]] = []
    for (name, solver), ones in alike.items():
        times = [
            f"{seconds:.3f}" for seconds in (ones[0].added_up, ones[0].measured_serial, ones[0].measured) if seconds
        ]
        sets = ", ".join(DATA[one.network.data] for one in ones)
        rows.append([name, sets, solver, *times, f"{ones[0].measured_speedup:.2f}"])
    seconds = ["its layers one by one, s", "1 worker, s an epoch", "2 workers, s an epoch"]
    return Table(["network", "shape of", "solver", *seconds, "measured speedup"], rows)


def simulated_table(figure: str, found: Sequence[Found]) -> Table:
    """One data set and solver: the published speedup beside what each link would give."""
    data = found[0].network.data
    what = figure.removeprefix("speedup_")
    ours = published(figure, data, "speedup")
    columns = [what, "network here", "workers", "published speedup", "serial s an epoch"]
    rows: list[list[Cell]] = []
    for one in found:
        network = one.network
        other = f"{ours[network.x]:.2f}" if network.x in ours else None
        name = f"{network.depth}x{network.width}, {network.shape.samples:,}"
        simulated = [f"{speedup:.2f}" for speedup, _ in one.simulated.values()]
        rows.append([network.x, name, network.workers, other, f"{one.serial:.3g}", *simulated])
    return Table([*columns, *(f"simulated, {link}" for link in LINKS)], rows)


def numbers(figure: str, one: Found) -> dict[str, Any]:
    """Of one network, for experiment.json."""
    network = one.network
    return {
        "data": network.data,
        "solver": network.solver,
        figure.removeprefix("speedup_"): network.x,
        "hidden": f"{network.depth}x{network.width}",
        "samples": network.shape.samples,
        "published_speedup": published(figure, network.data, "speedup").get(network.x),
        "serial_seconds": one.serial,
        "layers_added_up_seconds": one.added_up,
        "whole_to_layers": one.factor,
        "measured": {
            "workers": 2,
            "serial_seconds": one.measured_serial,
            "seconds": one.measured,
            "speedup": one.measured_speedup,
        },
        "simulated": {
            "workers": network.workers,
            **{link: {"speedup": s, "epoch_seconds": seconds} for link, (s, seconds) in one.simulated.items()},
        },
    }


def long_table(figure: str, found: Sequence[Found]) -> Table:
    """One row for each speedup, with how it was come by."""
    rows: list[list[Cell]] = []
    for one in found:
        n = one.network
        head: list[Cell] = [n.data, n.solver, n.x, n.depth, n.width, n.shape.samples]
        serial, parallel, speedup = (published(figure, n.data, series).get(n.x) for series in _SERIES)
        if speedup is not None:
            rows.append([*head, "published", None, None, serial, parallel, speedup])
        if one.measured is not None:
            rows.append([*head, "measured", 2, "this machine", one.measured_serial, one.measured, one.measured_speedup])
        for link, (gain, seconds) in one.simulated.items():
            rows.append([*head, "simulated", n.workers, link, one.serial, seconds, gain])
    columns = ("data", "solver", figure.removeprefix("speedup_"), "depth", "width", "samples", "how", "workers", "link")
    return Table((*columns, *_SERIES), rows)
