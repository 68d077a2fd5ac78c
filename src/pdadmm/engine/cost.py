"""What the steps of an iteration cost: one model for placement, for `pdadmm plan` and for `pdadmm simulate`.

The work of a step is counted: flops of products with a row for each sample, of n × n systems, numbers that are walked
element by element, tiles. A `Speed` has seconds for each of them, by solver, kind of layer and phase, as
`pdadmm.calibration` measures them on real layers.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Self

import torch

from pdadmm.block import MEASURED
from pdadmm.engine.schedule import Action, Message, Step
from pdadmm.engine.timeline import Costs, Link, StepTime
from pdadmm.math.tiles import Tiling, default_tile_rows

Layer = Literal["first", "hidden", "output"]
Phase = Literal["p", "W", "z", "m"]
"""Of a block; "m" makes the message to the next layer."""

# Array passes of the rivals' element-wise work, each a read or a write of one array of the layer.
_RIVALS_PASSES = {"gradient": {"p": 4, "W": 0, "z": 4}, "dladmm": {"p": 24, "W": 0, "z": 50}}
_RIVALS_FLOPS = {"gradient": {"p": 1, "W": 1, "z": 1}, "dladmm": {"p": 4, "W": 4, "z": 0}}
_FLOAT, _DOUBLE = 4, 8
_CODING = {"exact": 0.0, "bfloat16": 1.0}  # what packing or unpacking costs, in makings of a message
_ON_WIRE = {"bfloat16": 2}  # bytes of a number


class Work(NamedTuple):
    """What there is to do, by what it is counted in."""

    products: float = 0.0
    """Flops of products with a row for each sample."""
    cubes: float = 0.0
    """n³ of the factorisations and inverses."""
    systems: float = 0.0
    """n² n' of the products of n × n systems."""
    inputs: float = 0.0
    """Numbers on the side of the layer's input: rows times n."""
    outputs: float = 0.0
    """Numbers on the side of its output: rows times n'."""
    rows: float = 0.0
    tiles: float = 0.0
    weights: float = 0.0
    """Numbers in W and in the Gram matrix."""
    steps: float = 0.0
    """1: what a step costs however small it is."""

    def times(self, share: float) -> Work:
        """A share of it."""
        return Work(*(share * count for count in self))


@dataclass(frozen=True)
class Speed:
    """How fast a worker is: seconds for each count of `Work`, by solver, kind of layer and phase.

    What is not in `seconds` is counted by flops and passes alone.
    """

    gflops: float
    """Gflop/s of a large product: the unit in which workers are compared."""
    seconds: Mapping[tuple[str, Layer, Phase], Work]
    bytes_per_second: float = 2e10
    """Of element-wise work where nothing better is known, and of sums."""

    def of(self, solver: str, layer: Layer, phase: Phase, work: Work) -> float:
        """Seconds of this work."""
        rates = self.seconds.get((solver, layer, phase)) or self._plain()
        return float(sum(map(operator.mul, work, rates)))

    def adding(self, numbers: float) -> float:
        """Seconds to add so many numbers to as many others."""
        return 3 * _FLOAT * numbers / self.bytes_per_second

    def scaled(self, gflops: float) -> Self:
        """A worker that is as much faster in everything as it is in products."""
        factor = self.gflops / gflops
        scaled = {key: rates.times(factor) for key, rates in self.seconds.items()}
        return dataclasses.replace(self, gflops=gflops, seconds=scaled, bytes_per_second=self.bytes_per_second / factor)

    def _plain(self) -> Work:
        flop, number = 1e-9 / self.gflops, _FLOAT / self.bytes_per_second
        return Work(products=flop, cubes=2 * flop, systems=2 * flop, inputs=number, outputs=number)


@dataclass(frozen=True)
class CostModel:
    """The work of each step of a network, for the samples of one shard."""

    solver: str  # or what a rival costs: "gradient", "dladmm"
    tiling: Tiling
    widths: tuple[int, ...]  # features, hidden widths, outputs
    one_step: bool = False
    """linearized and backtracking: one step size a layer, which needs a walk of its own."""
    messages: str = "exact"
    item: int = _FLOAT

    @classmethod
    def of(
        cls, solver: str, samples: int, widths: tuple[int, ...], shards: int = 1, tile_rows: int | None = None
    ) -> Self:
        """For so many samples, tiled as the engine tiles them; of several shards, the largest."""
        rows, width = tile_rows or default_tile_rows(max(widths)), max(widths[1:-1])
        tilings = (Tiling(samples, rows, shard, shards, width) for shard in range(shards))
        return cls(solver, max(tilings, key=lambda tiling: tiling.local_samples), widths, solver == "backtracking")

    @property
    def num_layers(self) -> int:
        """The output layer counted."""
        return len(self.widths) - 1

    def kind(self, layer: int) -> Layer:
        """Where a layer (counted from 0) stands."""
        return "first" if layer == 0 else "output" if layer == self.num_layers - 1 else "hidden"

    def fixed_work(self, step: Step) -> Work:
        """What a step does besides walking the samples."""
        n, n_out = self.widths[step.layer : step.layer + 2]
        if self.solver == "exact" and step.action in ("p", "W") and not (step.action == "p" and step.layer == 0):
            return Work(cubes=n**3, systems=n * n * n_out, weights=n * (n + n_out), steps=1)
        return Work(weights=n * n_out if step.action == "W" and self.solver not in _RIVALS_PASSES else 0, steps=1)

    def row_work(self, step: Step, rows: int, tiles: int) -> Work:
        """What a step does with so many samples."""
        n, n_out = self.widths[step.layer : step.layer + 2]
        product, square, is_first = 2.0 * rows * n * n_out, 2.0 * rows * n * n, step.layer == 0
        if self.solver in _RIVALS_PASSES:
            passes = 2 if is_first and step.action == "p" else _RIVALS_PASSES[self.solver][step.action]
            done = 0.0 if is_first and step.action == "p" else _RIVALS_FLOPS[self.solver][step.action] * product
            return Work(products=done, outputs=passes * rows * (n if step.action == "p" else n_out))
        if self.solver == "exact":
            flops = {"p": product if is_first else 2 * product + 1.6 * square, "W": 0.0, "z": product}[step.action]
            if step.action == "W":
                return Work()
        else:
            flops = {"p": product if is_first else 3 * product, "W": product, "z": 0.0}[step.action]
        return Work(flops, inputs=rows * n, outputs=rows * n_out, rows=rows, tiles=tiles)

    def message_work(self, layer: int, rows: int, tiles: int) -> Work:
        """To make m of a layer."""
        return Work(outputs=rows * self.widths[layer + 1], rows=rows, tiles=tiles)

    def chunk_bytes(self, message: Message) -> list[float]:
        """Bytes of each chunk of p or m."""
        width = self.widths[message.layer + (message.kind == "m")]
        row = _ON_WIRE.get(self.messages, self.item) * width
        return [float(row * (stop - start)) for start, stop in self.tiling.chunk_bounds()]

    def gathers(self, step: Step) -> tuple[int, float]:
        """Sums over the shards that a step takes, and their bytes."""
        n, n_out = self.widths[step.layer : step.layer + 2]
        if step.action == "z":
            return 1, _DOUBLE * len(MEASURED)
        if step.action == "p":
            return (0, 0.0) if step.layer == 0 else (1 + self.one_step, _DOUBLE * (1 + 2 * self.one_step))
        if self.solver == "exact":
            numbers = n * n_out + n_out + (0 if step.layer == 0 else n * n + n)
            return (2 if step.layer == 0 else 4), float(self.item * numbers)
        return 4, float(self.item * (n * n_out + 2 * n_out + n))


@dataclass(frozen=True)
class Timing:
    """Seconds of each step of a network, by the model and a worker's speed, or as they were measured."""

    model: CostModel
    speed: Speed
    measured: Callable[[Step, int], float] | None = None
    """Seconds of a step over so many rows with all it needs in the same process; spread as the model spreads it."""

    def step(self, step: Step) -> StepTime:
        """A step where it stands in the schedule: with a message to make, and one that need not be made."""
        model, chunks = self.model, self._chunks
        of_rows = tuple(self._seconds(step, model.row_work(step, *chunk)) for chunk in chunks)
        reads: tuple[float, ...] = ()
        time = StepTime(self._seconds(step, model.fixed_work(step)), of_rows)
        if step.action == "p" and model.one_step and step.layer > 0:
            reads = tuple(0.7 * seconds for seconds in of_rows)  # two of its three products
            time = StepTime(time.before, tuple(0.3 * seconds for seconds in of_rows), reads=reads)
        left = step.layer - 1
        makes_m = step.action == "p" and left >= 0 and model.solver not in _RIVALS_PASSES
        if makes_m and step.needs is None:
            time = _extended(time, [self._message(left, *chunk) for chunk in chunks])
        if self.measured is not None:
            time = _times(
                time, self.measured(step, model.tiling.local_samples), self._came_by_wire(step, chunks, makes_m)
            )
        coded = _CODING[model.messages]
        if step.sends is not None:
            makings = coded + (1 if step.sends.kind == "m" else 0)
            layer = step.sends.layer if step.sends.kind == "m" else step.sends.layer - 1
            time = _extended(time, [makings * self._message(layer, *chunk) for chunk in chunks])
        if step.needs is not None and coded:
            layer = step.needs.layer if step.needs.kind == "m" else step.needs.layer - 1
            time = _extended(time, [coded * self._message(layer, *chunk) for chunk in chunks])
        return self._gathered(step, time)

    @functools.cached_property
    def _chunks(self) -> list[tuple[int, int]]:
        """Rows and tiles of each chunk."""
        return [(chunk.rows.stop - chunk.rows.start, len(chunk.tiles)) for chunk in self.model.tiling.chunks()]

    def costs(self, link: Link) -> Costs:
        """For `play`."""
        known: dict[Step, StepTime] = {}

        def step_time(step: Step) -> StepTime:
            if step not in known:
                known[step] = self.step(step)
            return known[step]

        return Costs(step_time, self.model.chunk_bytes, link, self.model.tiling.num_shards)

    def layer_seconds(self) -> list[float]:
        """Seconds of each layer's iteration where all are in one process."""
        actions: tuple[Action, ...] = ("p", "W", "z")
        layers = range(self.model.num_layers)
        return [sum(self.step(Step(action, layer)).seconds for action in actions) for layer in layers]

    def _seconds(self, step: Step, work: Work) -> float:
        model = self.model
        return self.speed.of(model.solver, model.kind(step.layer), step.action, work) * model.item / _FLOAT

    def _message(self, layer: int, rows: int, tiles: int) -> float:
        model = self.model
        work = model.message_work(layer, rows, tiles)
        return self.speed.of(model.solver, "hidden", "m", work) * model.item / _FLOAT

    def _came_by_wire(self, step: Step, chunks: Sequence[tuple[int, int]], makes_m: bool) -> float:
        """Seconds of making m that a measured p-phase has, and one with m from another worker has not."""
        if not makes_m or step.needs is None:
            return 0.0
        return sum(self._message(step.layer - 1, *chunk) for chunk in chunks)

    def _gathered(self, step: Step, time: StepTime) -> StepTime:
        shards = self.model.tiling.num_shards
        if shards == 1:
            return time
        gathers, size = self.model.gathers(step)
        adding = self.speed.adding((shards - 1) * size / self.model.item)
        return dataclasses.replace(time, after=time.after + adding, gathers=gathers, gathered_bytes=size)


def _extended(time: StepTime, seconds: Sequence[float]) -> StepTime:
    """Each chunk longer by so much."""
    if time.reads:
        return dataclasses.replace(time, reads=tuple(map(sum, zip(time.reads, seconds, strict=True))))
    return dataclasses.replace(time, chunks=tuple(map(sum, zip(time.chunks, seconds, strict=True))))


def _times(time: StepTime, seconds: float, less: float) -> StepTime:
    """The same spread over `seconds`, of which `less` are left out."""
    factor = max(0.0, seconds - less) / time.seconds if time.seconds else 0.0
    return StepTime(
        factor * time.before,
        tuple(factor * chunk for chunk in time.chunks),
        factor * time.after,
        tuple(factor * chunk for chunk in time.reads),
    )


def measure_gflops(seconds: float = 0.2) -> float:
    """Gflop/s of a product of 1000 columns, with the present threads."""
    rows, width = 1024, 1000
    a, b = torch.randn(rows, width), torch.randn(width, width)
    out = torch.empty(rows, width)
    torch.mm(a, b, out=out)
    began, count = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        torch.mm(a, b, out=out)
        count += 1
    return count * 2e-9 * rows * width * width / (time.perf_counter() - began)
