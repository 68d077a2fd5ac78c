"""What a cluster would give that one does not have: an iteration of any network on any workers and links.

The placement, the schedules and the chunks are the engine's own, the seconds of the layers those of
`pdadmm.simulate.blocks`. `pdadmm.simulate.timeline` plays it.

The whole network is simulated; where a run grows, its first epochs have fewer layers and are shorter.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from pdadmm.config import Config
from pdadmm.engine.flops import ACTIONS, PASS, Flops, step_flops
from pdadmm.engine.placement import Placement
from pdadmm.engine.schedule import Action, Message, Step, make_schedules
from pdadmm.errors import UserError
from pdadmm.math.tiles import Tiling
from pdadmm.plan import Shape, place
from pdadmm.simulate.blocks import BlockTimes
from pdadmm.simulate.timeline import Link, StepTime, Timeline, play

CLUSTER = Link(1.25e9, 5e-5, byte_cpu=2.5e-10, chunk_cpu=5e-5)
"""10 Gbit/s and 50 us."""
LITTLE = 0.01
"""A share of the epoch that is not worth naming."""
MOST_WORKERS, MOST_COUNTS = 1000, 40  # of a sweep


@dataclass(frozen=True)
class Timing:
    """Seconds of each step of a network, of the shard that has most samples, by what its layers take."""

    config: Config
    shape: Shape
    layers: Sequence[BlockTimes]

    @functools.cached_property
    def chunk_rows(self) -> list[int]:
        """Samples of each chunk."""
        shards = self.config.shards
        tiling = Tiling(self.shape.samples, 1, shards - 1, shards, max(self.config.hidden))
        return [stop - start for start, stop in tiling.chunk_bounds()]

    def step(self, step: Step) -> StepTime:
        """A step where it stands in the schedule: with a message to make, and one that need not be made."""
        config, others = self.config, self.config.shards - 1
        flops, rate = self.flops_and_rate(step.action, step.layer)
        made = self._message(step.layer) if step.sends and step.sends.kind == "m" else 0.0
        made -= self._message(step.layer - 1) if step.needs and step.needs.kind == "m" else 0.0
        chunks = tuple(max(0.0, flops.sample / rate + made) * rows for rows in self.chunk_rows)
        reads: tuple[float, ...] = ()
        has_one_step = config.solver == "backtracking" or (config.solver, config.step_size) == ("linearized", "one")
        sums, numbers = 1, 0
        if step.action == "p":
            sums = 1 + has_one_step if step.layer else 0
            if has_one_step and step.layer:  # two of its three products come before anything can be sent
                reads = tuple(seconds * 2 / 3 for seconds in chunks)
                chunks = tuple(seconds / 3 for seconds in chunks)
        elif step.action == "W":
            n, n_out = self.shape.widths(config)[step.layer : step.layer + 2]
            of_p = n * n + n if config.solver == "exact" else n + n_out
            sums, numbers = 2, n * n_out + n_out
            if step.layer or config.solver != "exact":  # the data's own were taken once
                sums, numbers = 4, numbers + of_p
        size = numbers * getattr(torch, config.dtype).itemsize
        return StepTime((flops.fixed + PASS * others * numbers) / rate, chunks, reads, sums, float(size))

    def flops_and_rate(self, action: Action, layer: int) -> tuple[Flops, float]:
        """Operations of a step, and how many it does a second."""
        flops = step_flops(self.config, self.shape.widths(self.config), action, layer)
        times = self.layers[layer]
        return flops, flops.of(times.rows) / times.of(action)

    def _message(self, layer: int) -> float:
        """Seconds of making m of a layer, for one sample."""
        return self.layers[layer].m / self.layers[layer].rows

    def chunk_bytes(self, message: Message) -> list[float]:
        """The size of a message, chunk by chunk."""
        width = self.shape.widths(self.config)[message.layer + (message.kind == "m")]
        item = 2 if self.config.messages == "bfloat16" else getattr(torch, self.config.dtype).itemsize
        return [float(item * width * rows) for rows in self.chunk_rows]


@dataclass(frozen=True)
class Simulation:
    """What a steady iteration amounts to."""

    workers: int
    """Of each shard."""
    shards: int
    placement: Placement
    epoch_seconds: float
    serial_seconds: float
    """One worker of the same speed with all layers and samples."""
    speedup: float
    efficiency: float
    """Speedup by the number of workers, those of all shards."""
    losses: dict[str, float]
    """What keeps an epoch from its ideal, the serial time by the number of workers: shares of the epoch."""
    bottleneck: str
    """What costs most: "compute" of one worker, "repeated" work of all shards, or a "link"."""
    why: str
    timeline: Timeline

    def to_mapping(self) -> dict[str, Any]:
        """All but the timeline, as plain values for JSON."""
        values = vars(self) | {"placement": str(self.placement)}
        return {name: value for name, value in values.items() if name != "timeline"}

    def each(self) -> list[dict[str, Any]]:
        """What the worker of each stage does, in every shard. Layers count from 1."""
        return [
            {
                "layers": [layer + 1 for layer in layers],
                "busy_seconds": self.timeline.busy(stage),
                "idle_share": max(0.0, 1 - self.timeline.busy(stage) / self.epoch_seconds),
                "bytes_sent": self.timeline.bytes_sent(stage),
            }
            for stage, layers in enumerate(self.placement.stages)
        ]


def check_can_simulate(config: Config, shape: Shape) -> None:
    """Refuse a run that is none of several workers."""
    if config.method != "pdadmm":
        raise UserError(f"only pdadmm runs on several workers and can be simulated; got method {config.method}")
    if config.batches > 1:
        raise UserError(f"mini-batches run on one worker and are not simulated; got batches {config.batches}")
    if config.shards > shape.samples:
        raise UserError(f"shards must not be more than the samples, which are {shape.samples}; got {config.shards}")
    place(config, shape)


def simulate(config: Config, shape: Shape, layers: Sequence[BlockTimes], link: Link = CLUSTER) -> Simulation:
    """A steady iteration of this resolved configuration, whose layers take this on one worker."""
    check_can_simulate(config, shape)
    placement, timing, workers = place(config, shape), Timing(config, shape, layers), config.workers
    schedules = make_schedules(placement.stages)
    timeline, free = (play(schedules, timing.step, timing.chunk_bytes, one, config.shards) for one in (link, Link()))
    seconds, serial = timeline.seconds, serial_seconds(config, shape, layers)
    efficiency = serial / seconds / (workers * config.shards)
    mean, longest = math.fsum(map(free.busy, range(workers))) / workers, max(range(workers), key=timeline.busy)
    losses = {
        "link": 1 - free.seconds / seconds,
        "imbalance": (free.seconds - mean) / seconds,
        "repeated": mean / seconds - efficiency,
    }
    reasons = {
        "link": f"communication makes the epoch {seconds / free.seconds:.2f} times as long",
        "repeated": f"{losses['repeated']:.0%} of the epoch is work that every shard does alike: n × n systems, sums",
        "compute": f"worker {longest + 1} computes {timeline.busy(longest) / seconds:.0%} of the epoch",
    }
    most = max(losses, key=losses.__getitem__)
    kind = most if most in reasons and losses[most] > LITTLE else "compute"
    speeds = (seconds, serial, serial / seconds, efficiency)
    return Simulation(workers, config.shards, placement, *speeds, losses, kind, reasons[kind], timeline)


def serial_seconds(config: Config, shape: Shape, layers: Sequence[BlockTimes]) -> float:
    """An iteration of all layers and samples on one worker."""
    alone = Timing(dataclasses.replace(config, workers=1, shards=1, placement=None), shape, layers)
    steps = [alone.flops_and_rate(action, layer) for layer in range(len(layers)) for action in ACTIONS]
    return math.fsum(flops.of(shape.samples) / rate for flops, rate in steps)


def sweep(kind: str, config: Config, shape: Shape, layers: Sequence[BlockTimes], link: Link) -> list[Simulation]:
    """From one worker to one a layer, each number balanced anew; or as many workers in 1, 2, 4, … shards."""
    if kind == "workers":
        apart = -(-len(layers) // MOST_COUNTS)
        counts = [*range(1, len(layers), apart), len(layers)]
        many = [dataclasses.replace(config, workers=workers, placement=None) for workers in counts]
    else:
        most = min(shape.samples, max(1, MOST_WORKERS // config.workers))
        many = [dataclasses.replace(config, shards=1 << power) for power in range(most.bit_length())]
    return [simulate(one, shape, layers, link) for one in many]
