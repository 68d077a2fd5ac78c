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
from pdadmm.engine.placement import Placement, balance
from pdadmm.engine.schedule import Action, Message, Step, make_schedules
from pdadmm.errors import UserError
from pdadmm.math.tiles import Tiling
from pdadmm.plan import Shape, place, plan_memory
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

    def layer_seconds(self) -> list[float]:
        """Each layer's iteration, with all it needs in the same process."""
        seconds = []
        for layer in range(len(self.layers)):
            steps = [self._flops_and_rate(action, layer) for action in ACTIONS]
            seconds.append(math.fsum(flops.of(sum(self.chunk_rows)) / rate for flops, rate in steps))
        return seconds

    def step(self, step: Step) -> StepTime:
        """A step where it stands in the schedule: with a message to make, and one that need not be made."""
        config, others = self.config, self.config.shards - 1
        flops, rate = self._flops_and_rate(step.action, step.layer)
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

    def _flops_and_rate(self, action: Action, layer: int) -> tuple[Flops, float]:
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
    """A steady iteration, and what it amounts to."""

    config: Config
    shape: Shape
    placement: Placement
    serial_seconds: float
    """One worker with all layers and samples."""
    timeline: Timeline
    free: Timeline
    """The same workers and placement with links that cost nothing."""

    @property
    def epoch_seconds(self) -> float:
        """A steady iteration."""
        return self.timeline.seconds

    @property
    def speedup(self) -> float:
        """Against one worker of the same speed."""
        return self.serial_seconds / self.epoch_seconds

    @property
    def efficiency(self) -> float:
        """Speedup by the number of workers, those of all shards."""
        return self.speedup / (self.config.workers * self.config.shards)

    def losses(self) -> dict[str, float]:
        """What keeps an epoch from its ideal, the serial time by the number of workers: shares of the epoch."""
        workers = self.config.workers
        mean = math.fsum(map(self.free.busy, range(workers))) / workers
        return {
            "link": 1 - self.free.seconds / self.epoch_seconds,
            "imbalance": (self.free.seconds - mean) / self.epoch_seconds,
            "repeated": mean / self.epoch_seconds - self.efficiency,
        }

    def bottleneck(self) -> tuple[str, str]:
        """What costs most: "compute" of one worker, "repeated" work of all shards, or a "link"; and a sentence why."""
        losses = self.losses()
        kind = max(losses, key=losses.__getitem__)
        if kind == "link" and losses[kind] > LITTLE:
            longer = self.epoch_seconds / self.free.seconds
            return kind, f"communication makes the epoch {longer:.2f} times as long"
        if kind == "repeated" and losses[kind] > LITTLE:
            every = "work that every shard does alike: n × n systems, adding up the shards' sums"
            return kind, f"{losses[kind]:.0%} of the epoch is {every}"
        longest = max(range(self.config.workers), key=self.timeline.busy)
        share = self.timeline.busy(longest) / self.epoch_seconds
        return "compute", f"worker {longest + 1} computes {share:.0%} of the epoch"

    def to_mapping(self) -> dict[str, Any]:
        """Plain values for JSON; `workers` says what the worker of each stage does, in every shard. Layers from 1."""
        timeline, memory, (kind, why) = self.timeline, plan_memory(self.config, self.shape).workers, self.bottleneck()
        return {
            "speedup": self.speedup,
            "efficiency": self.efficiency,
            "epoch_seconds": self.epoch_seconds,
            "serial_seconds": self.serial_seconds,
            "losses": self.losses(),
            "bottleneck": {"kind": kind, "why": why},
            "placement": str(self.placement),
            "workers": [
                {
                    "layers": [layer + 1 for layer in layers],
                    "busy_seconds": timeline.busy(stage),
                    "idle_share": max(0.0, 1 - timeline.busy(stage) / timeline.seconds),
                    "bytes_sent": timeline.bytes_sent(stage),
                    "memory_bytes": memory[stage],
                }
                for stage, layers in enumerate(self.placement.stages)
            ],
        }


def simulate(config: Config, shape: Shape, layers: Sequence[BlockTimes], link: Link = CLUSTER) -> Simulation:
    """A steady iteration of this resolved configuration, whose layers take this on one worker."""
    check_can_simulate(config, shape)
    placement, timing = place(config, shape), Timing(config, shape, layers)
    schedules = make_schedules(placement.stages)
    timeline, free = (play(schedules, timing.step, timing.chunk_bytes, one, config.shards) for one in (link, Link()))
    return Simulation(config, shape, placement, serial_seconds(config, shape, layers), timeline, free)


def check_can_simulate(config: Config, shape: Shape) -> None:
    """Refuse a run that is none of several workers."""
    if config.method != "pdadmm":
        raise UserError(f"only pdadmm runs on several workers and can be simulated; got method {config.method}")
    if config.batches > 1:
        raise UserError(f"mini-batches run on one worker and are not simulated; got batches {config.batches}")
    if config.shards > shape.samples:
        raise UserError(f"shards must not be more than the samples, which are {shape.samples}; got {config.shards}")
    place(config, shape)


def serial_seconds(config: Config, shape: Shape, layers: Sequence[BlockTimes]) -> float:
    """An iteration of all layers and samples on one worker."""
    alone = dataclasses.replace(config, workers=1, shards=1, placement=None)
    return math.fsum(Timing(alone, shape, layers).layer_seconds())


def better_placement(found: Simulation, layers: Sequence[BlockTimes], link: Link) -> Simulation | None:
    """The same balanced by the seconds of the layers, where an epoch is shorter so by more than 1 %."""
    seconds = Timing(found.config, found.shape, layers).layer_seconds()
    balanced = dataclasses.replace(found.config, placement=str(balance(seconds, found.config.workers)))
    other = simulate(balanced, found.shape, layers, link)
    return other if other.epoch_seconds * (1 + LITTLE) < found.epoch_seconds else None


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
