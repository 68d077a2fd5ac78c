"""What a cluster would give that one does not have: an iteration of any network on any workers and links.

The placement, the schedules and the chunks are the engine's own. What steps cost is either measured of the layers at
hand or, for workers of a stated speed, what their operations take. `pdadmm.simulate.timeline` plays it.

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

from pdadmm.block import MEASURED
from pdadmm.config import Config
from pdadmm.engine.flops import ACTIONS, PASS, step_flops
from pdadmm.engine.placement import Placement, balance
from pdadmm.engine.schedule import Action, Message, Step, make_schedules
from pdadmm.errors import UserError
from pdadmm.math.tiles import Tiling
from pdadmm.plan import Shape, place, worker_memory
from pdadmm.simulate.blocks import BlockTimes
from pdadmm.simulate.timeline import Costs, Link, StepTime, Timeline, play

Speed = float | Sequence[BlockTimes]
"""Of a worker: Gflop/s, or what each layer took, the output layer last."""

CLUSTER = Link(1.25e9, 5e-5, byte_cpu=2.5e-10, chunk_cpu=5e-5)
"""10 Gbit/s and 50 us."""
LITTLE = 0.01
"""A share of the epoch that is not worth naming."""
MOST_WORKERS, MOST_COUNTS = 1000, 40  # of a sweep
_DOUBLE = 8
NOT_MODELLED = (
    "congestion in switches, and several links through one",
    "stragglers: all workers are equally fast, and always",
    "the time for evaluation, checkpoints and reading the data",
    "growth: the whole network is simulated, while early epochs of a growing one are shorter",
)


@dataclass(frozen=True)
class Timing:
    """Seconds of each step of a network, of the shard that has most samples."""

    config: Config
    shape: Shape
    speed: Speed

    @functools.cached_property
    def widths(self) -> tuple[int, ...]:
        """Of the features, the hidden layers and the outputs."""
        return (self.shape.features, *self.config.hidden, self.shape.outputs)

    @functools.cached_property
    def chunk_rows(self) -> list[int]:
        """Samples of each chunk."""
        shards, width = self.config.shards, max(self.config.hidden)
        tilings = (Tiling(self.shape.samples, 1, shard, shards, width) for shard in range(shards))
        largest = max(tilings, key=lambda tiling: tiling.local_samples)
        return [stop - start for start, stop in largest.chunk_bounds()]

    def seconds(self, action: Action, layer: int) -> float:
        """A step with all it needs in the same process."""
        return step_flops(self.config, self.widths, action, layer).of(sum(self.chunk_rows)) / self._rate(action, layer)

    def layer_seconds(self) -> list[float]:
        """Each layer's iteration, likewise."""
        return [sum(self.seconds(action, layer) for action in ACTIONS) for layer in range(len(self.widths) - 1)]

    def step(self, step: Step) -> StepTime:
        """A step where it stands in the schedule: with a message to make, and one that need not be made."""
        config, shards = self.config, self.config.shards
        flops, rate = step_flops(config, self.widths, step.action, step.layer), self._rate(step.action, step.layer)
        made = self._message(step.layer) if step.sends and step.sends.kind == "m" else 0.0
        made -= self._message(step.layer - 1) if step.needs and step.needs.kind == "m" else 0.0
        chunks = [max(0.0, flops.sample / rate + made) * rows for rows in self.chunk_rows]
        time = StepTime(flops.fixed / rate, tuple(chunks))
        if step.action == "p" and step.layer and self._has_one_step:  # two of its three products come before
            reads = tuple(seconds * 2 / 3 for seconds in chunks)
            time = dataclasses.replace(time, chunks=tuple(seconds / 3 for seconds in chunks), reads=reads)
        if shards == 1:
            return time
        sums, size = self._sums(step)
        adding = (shards - 1) * size / self._item * PASS / rate
        return dataclasses.replace(time, after=adding, sums=sums, sum_bytes=size)

    def costs(self, link: Link) -> Costs:
        """For `play`."""
        return Costs(self.step, self._chunk_bytes, link, self.config.shards)

    @property
    def _has_one_step(self) -> bool:
        solver = self.config.solver
        return solver == "backtracking" or (solver == "linearized" and self.config.step_size == "one")

    @property
    def _item(self) -> int:
        return torch.finfo(getattr(torch, self.config.dtype)).bits // 8

    def _rate(self, action: Action, layer: int) -> float:
        """Operations a second of a step."""
        if isinstance(self.speed, int | float):
            return 1e9 * self.speed
        times = self.speed[layer]
        return step_flops(self.config, self.widths, action, layer).of(times.rows) / times.of(action)

    def _message(self, layer: int) -> float:
        """Seconds of making m of a layer, for one sample."""
        if isinstance(self.speed, int | float):
            return PASS * self.widths[layer + 1] / (1e9 * self.speed)
        return self.speed[layer].m / self.speed[layer].rows

    def _chunk_bytes(self, message: Message) -> list[float]:
        width = self.widths[message.layer + (message.kind == "m")]
        item = 2 if self.config.messages == "bfloat16" else self._item
        return [float(item * width * rows) for rows in self.chunk_rows]

    def _sums(self, step: Step) -> tuple[int, float]:
        """Sums over the shards that a step takes, and their bytes."""
        n, n_out = self.widths[step.layer : step.layer + 2]
        if step.action == "z":
            return 1, _DOUBLE * len(MEASURED)
        if step.action == "p":
            return (0, 0.0) if step.layer == 0 else (1 + self._has_one_step, _DOUBLE * (1 + 2 * self._has_one_step))
        if self.config.solver == "exact":
            of_p = n * n + n if step.layer else 0
            return (4 if step.layer else 2), float(self._item * (n * n_out + n_out + of_p))
        return 4, float(self._item * (n * n_out + 2 * n_out + n))


@dataclass(frozen=True)
class Simulation:
    """A steady iteration, and what it amounts to."""

    config: Config
    shape: Shape
    speed: Speed
    link: Link
    placement: Placement
    serial_seconds: float
    """One worker of the same speed with all layers and samples."""
    timeline: Timeline
    free: Timeline
    """The same workers and placement with links that cost nothing."""

    @property
    def epoch_seconds(self) -> float:
        """A steady iteration."""
        return self.timeline.seconds

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

    def losses(self) -> dict[str, float]:
        """What keeps an epoch from its ideal, the serial time by the number of workers: shares of the epoch."""
        ideal, stages = self.serial_seconds / self.processes, range(self.config.workers)
        mean = math.fsum(self.free.busy(stage) for stage in stages) / self.config.workers
        return {
            "link": 1 - self.free.seconds / self.epoch_seconds,
            "imbalance": (self.free.seconds - mean) / self.epoch_seconds,
            "repeated": (mean - ideal) / self.epoch_seconds,
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

    def workers(self) -> list[dict[str, Any]]:
        """What the worker of each stage does; all shards do the same. Layers count from 1."""
        timeline, memory = self.timeline, worker_memory(self.config, self.shape, self.placement)
        return [
            {
                "layers": [layer + 1 for layer in layers],
                "busy_seconds": timeline.busy(stage),
                "wait_seconds": timeline.seconds - timeline.busy(stage),
                "idle_share": timeline.idle_share(stage),
                "bytes_sent": timeline.bytes_sent(stage),
                "memory_bytes": memory[stage],
            }
            for stage, layers in enumerate(self.placement.stages)
        ]

    def to_mapping(self) -> dict[str, Any]:
        """Plain values for JSON."""
        kind, why = self.bottleneck()
        rate, workers = self.link.bytes_per_second, self.workers()
        return {
            "speedup": self.speedup,
            "efficiency": self.efficiency,
            "epoch_seconds": self.epoch_seconds,
            "serial_seconds": self.serial_seconds,
            "ceiling_seconds": self.free.seconds,
            "losses": self.losses(),
            "idle_share": math.fsum(worker["idle_share"] for worker in workers) / len(workers),
            "bytes_sent": self.config.shards * math.fsum(worker["bytes_sent"] for worker in workers),
            "memory_bytes": max(worker["memory_bytes"] for worker in workers),
            "bottleneck": {"kind": kind, "why": why},
            "workers": workers,
            "placement": str(self.placement),
            "processes": self.processes,
            "link": {"bytes_per_second": rate if math.isfinite(rate) else None, "latency": self.link.latency},
        }


def simulate(config: Config, shape: Shape, speed: Speed, link: Link = CLUSTER) -> Simulation:
    """A steady iteration of this resolved configuration on workers of this speed."""
    if config.method != "pdadmm":
        raise UserError(f"only pdadmm runs on several workers and can be simulated; got method {config.method}")
    if config.batches > 1:
        raise UserError(f"mini-batches run on one worker and are not simulated; got batches {config.batches}")
    if config.shards > shape.samples:
        raise UserError(f"shards must not be more than the samples, which are {shape.samples}; got {config.shards}")
    placement, timing = place(config, shape), Timing(config, shape, speed)
    schedules = make_schedules(placement.stages)
    timeline, free = (play(schedules, timing.costs(one)) for one in (link, Link()))
    return Simulation(config, shape, speed, link, placement, serial_seconds(config, shape, speed), timeline, free)


def serial_seconds(config: Config, shape: Shape, speed: Speed) -> float:
    """An iteration of all layers and samples on one worker."""
    alone = dataclasses.replace(config, workers=1, shards=1, placement=None)
    return math.fsum(Timing(alone, shape, speed).layer_seconds())


def better_placement(found: Simulation) -> Simulation | None:
    """The same balanced by the seconds of the layers, where an epoch is shorter so by more than 1 %."""
    seconds = Timing(found.config, found.shape, found.speed).layer_seconds()
    balanced = dataclasses.replace(found.config, placement=str(balance(seconds, found.config.workers)))
    other = simulate(balanced, found.shape, found.speed, found.link)
    return other if other.epoch_seconds * (1 + LITTLE) < found.epoch_seconds else None


def sweep(kind: str, found: Simulation) -> list[Simulation]:
    """From one worker to one a layer, each number balanced anew; or as many workers in 1, 2, 4, … shards."""
    config, layers = found.config, len(found.config.hidden) + 1
    if kind == "workers":
        counts = sorted({round(1 + i * (layers - 1) / (MOST_COUNTS - 1)) for i in range(MOST_COUNTS)})
        many = [dataclasses.replace(config, workers=count, placement=None) for count in counts]
    else:
        most = min(found.shape.samples, max(1, MOST_WORKERS // config.workers))
        many = [dataclasses.replace(config, shards=1 << power) for power in range(most.bit_length())]
    return [simulate(one, found.shape, found.speed, found.link) for one in many]
