"""What a cluster would give that one does not have: an iteration of any network on any workers and links.

The plan is the engine's own: its placement, its schedules, its chunks and tiles. What steps cost is the cost model's,
at the speed of a calibrated or a typical worker, or what was measured of single layers. `pdadmm.engine.timeline` plays
it.

The whole network is simulated; where a run grows, its first epochs have fewer layers and are shorter.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pdadmm.config import Config
from pdadmm.engine.cost import Speed, Timing
from pdadmm.engine.estimate import estimate
from pdadmm.engine.placement import Placement, balance, from_counts
from pdadmm.engine.schedule import Step
from pdadmm.engine.timeline import Entry, Link, Timeline
from pdadmm.engine.typical import TYPICAL
from pdadmm.errors import UserError
from pdadmm.plan import Shape, cost_model, place, worker_memory

StepSeconds = Callable[[Step, int], float]
"""Seconds of a step over so many rows, measured on a layer whose neighbours are in the same process."""

TYPICAL_LINK = Link(1.25e9, 5e-5, 2.5e-10, 2.5e-10, 5e-5, 5e-5)
"""10 Gbit/s; processor time as gloo takes it on a present core."""
LITTLE = 0.01
"""A share of the epoch that is not worth naming."""
FREE = 1.01
"""Bandwidth counts as free where more would make an epoch shorter by no more than this factor."""
NOT_MODELLED = (
    "congestion in switches, and several links through one",
    "stragglers: all workers are equally fast, and always",
    "NUMA, caches and clocks that change when more cores are busy",
    "the time for evaluation, checkpoints and reading the data",
    "growth: the whole network is simulated, while early epochs of a growing one are shorter",
)


@dataclass(frozen=True)
class Machine:
    """A worker: its speed, and how much slower it is with others at work on the same machine."""

    speed: Speed = TYPICAL
    slowdown: float = 1.0
    source: str = "a typical core"

    @property
    def effective(self) -> Speed:
        """The speed beside the others."""
        return self.speed.scaled(self.speed.gflops / self.slowdown)


@dataclass(frozen=True)
class Worker:
    """What one worker does in a steady iteration; all shards of a stage do the same."""

    layers: list[int]
    """Counted from 1."""
    busy_seconds: float
    wait_seconds: float
    idle_share: float
    bytes_sent: float
    link_share: float
    """The share of the time that its way out is in use."""
    memory_bytes: int


@dataclass(frozen=True)
class Simulation:
    """A steady iteration, and what it amounts to."""

    config: Config
    shape: Shape
    machine: Machine
    link: Link
    placement: Placement
    epoch_seconds: float
    serial_seconds: float
    """One worker of the same speed with all layers and samples."""
    ceiling_seconds: float
    """The same workers and placement with links that cost nothing."""
    free_busy_seconds: list[float]
    """What each stage computes there."""
    workers: list[Worker]
    timeline: Timeline

    @property
    def processes(self) -> int:
        """Workers of all shards."""
        return self.config.workers * self.config.shards

    @property
    def speedup(self) -> float:
        """Against one worker of the same speed."""
        return self.serial_seconds / self.epoch_seconds

    @property
    def efficiency(self) -> float:
        """Speedup by the number of workers."""
        return self.speedup / self.processes

    @property
    def idle_share(self) -> float:
        """Of all workers together."""
        return math.fsum(worker.idle_share for worker in self.workers) / len(self.workers)

    @property
    def bytes_sent(self) -> float:
        """By all workers in an epoch."""
        return self.config.shards * math.fsum(worker.bytes_sent for worker in self.workers)

    def entries(self) -> list[Entry]:
        """What every stage does in the steady iteration, from its beginning on."""
        begins = self.timeline.begins
        return [
            dataclasses.replace(entry, start=entry.start - begins, end=entry.end - begins)
            for entry in self.timeline.steady()
        ]

    def losses(self) -> dict[str, float]:
        """What keeps an epoch from its ideal, the serial time by the number of workers: shares of the epoch."""
        ideal = self.serial_seconds / self.processes
        mean = math.fsum(self.free_busy_seconds) / len(self.workers)
        return {
            "link": 1 - self.ceiling_seconds / self.epoch_seconds,
            "imbalance": (self.ceiling_seconds - mean) / self.epoch_seconds,
            "repeated": (mean - ideal) / self.epoch_seconds,
        }

    def bottleneck(self) -> tuple[str, str]:
        """What costs most: "compute" of one worker, "repeated" work of all shards, or a "link"; and a sentence why."""
        losses = self.losses()
        kind = max(losses, key=losses.__getitem__)
        longest = max(range(len(self.workers)), key=lambda stage: self.workers[stage].busy_seconds)
        if self.processes == 1 or kind == "imbalance" or losses[kind] < LITTLE:
            share, layers = self.workers[longest].busy_seconds / self.epoch_seconds, self.workers[longest].layers
            which = f"layer {layers[0]}" if len(layers) == 1 else f"layers {layers[0]} to {layers[-1]}"
            rest = ", and the others wait for it" if len(self.workers) > 1 else ""
            return "compute", f"worker {longest + 1} ({which}) computes {share:.0%} of the epoch{rest}"
        if kind == "repeated":
            return "repeated", (
                f"{losses[kind]:.0%} of the epoch is work that every shard does alike: n × n systems, adding up the "
                f"shards' sums, or workers that slow each other"
            )
        busiest = max(range(len(self.workers)), key=lambda stage: self.workers[stage].link_share)
        return "link", (
            f"communication makes the epoch {self.epoch_seconds / self.ceiling_seconds:.2f} times as long; the way "
            f"out of worker {busiest + 1} is in use {self.workers[busiest].link_share:.0%} of the time"
        )

    def to_mapping(self) -> dict[str, Any]:
        """Plain values for JSON."""
        kind, why = self.bottleneck()
        return {
            "speedup": self.speedup,
            "efficiency": self.efficiency,
            "epoch_seconds": self.epoch_seconds,
            "serial_seconds": self.serial_seconds,
            "ceiling_seconds": self.ceiling_seconds,
            "losses": self.losses(),
            "idle_share": self.idle_share,
            "bytes_sent": self.bytes_sent,
            "memory_bytes": max(worker.memory_bytes for worker in self.workers),
            "bottleneck": {"kind": kind, "why": why},
            "workers": [dataclasses.asdict(worker) for worker in self.workers],
            "placement": str(self.placement),
            "processes": self.processes,
            "gflops": self.machine.speed.gflops,
            "link": {"bytes_per_second": _finite(self.link.bytes_per_second), "latency": self.link.latency},
        }


def simulate(
    config: Config,
    shape: Shape,
    machine: Machine | None = None,
    link: Link | None = None,
    step_seconds: StepSeconds | None = None,
) -> Simulation:
    """A steady iteration of this resolved configuration.

    `step_seconds` takes the place of the cost model where layers were measured (`pdadmm.calibration`); the model then
    only says how a step's time is spread over its chunks.
    """
    machine, link = machine or Machine(), link or Link()
    _check(config, shape)
    timing = Timing(cost_model(config, shape), machine.effective, step_seconds)
    placement = place(config, shape)
    timeline, free = estimate(timing, placement, link), estimate(timing, placement, Link())
    return Simulation(
        config=config,
        shape=shape,
        machine=machine,
        link=link,
        placement=placement,
        epoch_seconds=timeline.seconds,
        serial_seconds=serial_seconds(config, shape, machine, step_seconds),
        ceiling_seconds=free.seconds,
        free_busy_seconds=[free.busy(stage) for stage in range(config.workers)],
        workers=_workers(config, shape, placement, timeline),
        timeline=timeline,
    )


def serial_seconds(config: Config, shape: Shape, machine: Machine, step_seconds: StepSeconds | None = None) -> float:
    """An iteration of all layers and samples on one worker, alone on its machine."""
    alone = dataclasses.replace(config, workers=1, shards=1, placement=None, messages="exact")
    timing = Timing(cost_model(alone, shape), machine.speed, step_seconds)
    return estimate(timing, from_counts([len(config.hidden) + 1]), Link()).seconds


def better_placement(simulation: Simulation, step_seconds: StepSeconds | None = None) -> Simulation | None:
    """The same balanced by these workers' own speed, where an epoch is shorter so by more than 1 %."""
    config, shape = simulation.config, simulation.shape
    timing = Timing(cost_model(config, shape), simulation.machine.effective, step_seconds)
    balanced = dataclasses.replace(config, placement=str(balance(timing.layer_seconds(), config.workers)))
    other = simulate(balanced, shape, simulation.machine, simulation.link, step_seconds)
    return other if other.epoch_seconds * FREE < simulation.epoch_seconds else None


def free_bandwidth(simulation: Simulation, step_seconds: StepSeconds | None = None) -> float:
    """Bytes a second from which on more would not help, by bisection."""

    def seconds(bandwidth: float) -> float:
        link = dataclasses.replace(simulation.link, bytes_per_second=bandwidth)
        return estimate(timing, simulation.placement, link).seconds

    config, shape = simulation.config, simulation.shape
    timing = Timing(cost_model(config, shape), simulation.machine.effective, step_seconds)
    least = seconds(math.inf)
    low, high = 1.0, 1e15
    while high / low > FREE:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if seconds(middle) <= FREE * least else (middle, high)
    return high


def _check(config: Config, shape: Shape) -> None:
    if config.method != "pdadmm":
        raise UserError(f"only pdadmm runs on several workers and can be simulated; got method {config.method}")
    if config.batches > 1:
        raise UserError(f"mini-batches run on one worker and are not simulated; got batches {config.batches}")
    if config.shards > shape.samples:
        raise UserError(f"shards must not be more than the samples, which are {shape.samples}; got {config.shards}")


def _workers(config: Config, shape: Shape, placement: Placement, timeline: Timeline) -> list[Worker]:
    memory = worker_memory(config, shape, placement)
    return [
        Worker(
            layers=[layer + 1 for layer in layers],
            busy_seconds=timeline.busy(stage),
            wait_seconds=timeline.sum(stage, "wait", "gather", "share"),
            idle_share=timeline.idle_share(stage),
            bytes_sent=timeline.sent(stage),
            link_share=timeline.link_share(stage),
            memory_bytes=memory[stage],
        )
        for stage, layers in enumerate(placement.stages)
    ]


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
