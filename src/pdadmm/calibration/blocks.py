"""What this machine can do, measured on real layers: the seconds of a block's phases, and a speed made of many.

A block is made as the engine makes it, by `pdadmm.engine.layers.Layers`, with arbitrary numbers in its arrays. But for
the layer before, whose m it needs, it is the only one, so a layer of a network can be measured that would not fit.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from pdadmm.block import Block
from pdadmm.config import Config
from pdadmm.engine.layers import Layers, Shapes
from pdadmm.engine.placement import Placement
from pdadmm.engine.problem import Problem, Samples
from pdadmm.engine.world import World
from pdadmm.errors import UserError
from pdadmm.machine import last_level_cache
from pdadmm.plan import Shape
from pdadmm.storage import Storage

MOST_BYTES = 2**29
"""What a measurement may take; with more rows than fit, two smaller numbers of rows are measured and extended."""
FEWEST_ROWS = 512
LEAST_SECONDS, MOST_REPEATS = 0.15, 15  # small layers are measured more often


@dataclass(frozen=True)
class BlockTimes:
    """Seconds of a layer's phases in an iteration."""

    p: float
    """With m of the layer before, made in the same process."""
    W: float
    z: float
    m: float
    """Of making m for the layer after, which is part of that one's p; 0 for the output layer."""
    rows: int

    @property
    def seconds(self) -> float:
        """The whole iteration of the layer."""
        return self.p + self.W + self.z

    def of(self, action: str) -> float:
        """Of a step of the schedule."""
        return {"p": self.p, "W": self.W, "z": self.z}[action]


def measure_block(
    config: Config,
    shape: Shape,
    layer: int,
    repeats: int = 5,
    max_bytes: int = MOST_BYTES,
) -> BlockTimes:
    """Median seconds of each phase of one layer (counted from 0, the output layer last) of this resolved configuration.

    At least `repeats` times after a first one that does not count; the cache is emptied before each, as the other
    layers of a network would.
    Where all rows would take more than `max_bytes`, two smaller numbers are measured and extended in proportion.
    """
    rows = shape.samples // config.shards
    widths = (shape.features, *config.hidden, shape.outputs)
    n_in, n_out = widths[layer : layer + 2]
    item = torch.finfo(getattr(torch, config.dtype)).bits // 8
    fitting = max_bytes // (item * ((widths[layer - 1] if layer else 0) + 3 * n_in + 5 * n_out))
    if fitting < min(rows, FEWEST_ROWS):
        raise UserError(f"a layer of {n_in} and {n_out} neurons needs more than {max_bytes} bytes to be measured")
    with with_threads(config.threads):
        if rows <= fitting:
            return _measure(config, shape, layer, rows, repeats)
        some, half = (_measure(config, shape, layer, count, repeats) for count in (fitting, fitting // 2))
    return _extended(some, half, rows)


def _measure(config: Config, shape: Shape, layer: int, rows: int, repeats: int) -> BlockTimes:
    part = _Part(config, shape, layer, rows)
    found: list[tuple[float, ...]] = []
    flush = torch.zeros(2 * last_level_cache() // 4)
    while len(found) <= repeats or (sum(map(sum, found)) < LEAST_SECONDS and len(found) < MOST_REPEATS):
        flush.add_(1)
        found.append(part.iterate())
    p, W, z, m = (statistics.median(times) for times in zip(*found[1:], strict=True))
    return BlockTimes(p, W, z, m, rows)


def _extended(some: BlockTimes, half: BlockTimes, rows: int) -> BlockTimes:
    """Along the line through both; noise must not make time shrink with the rows."""

    def line(more: float, less: float) -> float:
        slope = max(0.0, (more - less) / (some.rows - half.rows))
        return more + slope * (rows - some.rows)

    return BlockTimes(line(some.p, half.p), line(some.W, half.W), line(some.z, half.z), line(some.m, half.m), rows=rows)


class _RandomLayers:
    """Stands in for a checkpoint: any numbers do."""

    def __init__(self, dtype: torch.dtype, device: torch.device) -> None:
        self._dtype, self._device = dtype, device
        self._generator = torch.Generator().manual_seed(0)

    def layer(self, layer: int, shapes: Shapes, storage: Storage) -> dict[str, Tensor]:
        """Normal values, W scaled so that a is of the size of p."""
        found = {
            name: torch.randn(shape, generator=self._generator).to(self._device, self._dtype)
            for name, shape in shapes.items()
        }
        found["W"].div_(found["W"].shape[1] ** 0.5)
        found["gram_scale"] = torch.tensor(float(len(found["z"])))
        return found

    def extra(self, layer: int, name: str) -> Tensor | None:
        """Nothing."""
        return None


class _Part:
    """One block of a network, and what its neighbours would give it."""

    def __init__(self, config: Config, shape: Shape, layer: int, rows: int) -> None:
        dtype, device = getattr(torch, config.dtype), torch.device(config.device)
        count, own = len(config.hidden) + 1, (layer,) if layer == 0 else (layer - 1, layer)
        others = tuple(other for other in range(count) if other not in own)
        x = torch.randn(rows, shape.features, dtype=dtype, device=device) if own[0] == 0 else None
        y = torch.randint(shape.outputs, (rows,), device=device) if layer == count - 1 else None
        weight = None if y is None else torch.ones(rows, dtype=dtype, device=device)
        problem = Problem(rows, shape.features, shape.outputs, dtype, device, Samples(x, y), weight)
        self._layers = Layers(config, problem, range(count - 1), World(), Placement((own, others)))
        self._layers.restore(_RandomLayers(dtype, device), 0)
        self._block: Block = self._layers.blocks[layer]
        self._left = None if layer == 0 else self._layers.blocks[layer - 1].message
        self._right = None
        if y is None:
            self._right = torch.randn(rows, config.hidden[layer], dtype=dtype, device=device)
        self._ridge = config.ridge or 0.0
        self._block.begin_stage()

    def iterate(self) -> tuple[float, float, float, float]:
        """Seconds of p, W, z and m."""
        block, right = self._block, self._right
        p_next = None if right is None else lambda rows, out: right[rows]
        return (
            _seconds(lambda: block.p_phase(self._left)),
            _seconds(lambda: block.W_phase(self._ridge)),
            _seconds(lambda: block.z_phase(p_next, self._ridge)),
            0.0 if right is None else _seconds(self._make_messages),
        )

    def _make_messages(self) -> None:
        ws = self._layers.workspace
        for rows in ws.tiling.tiles():
            self._block.message(rows, ws.tile(4, rows.stop - rows.start, len(self._block.state.b)))


def _seconds(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


@contextmanager
def with_threads(count: int | None) -> Iterator[None]:
    """So many threads in the body; None leaves them as they are."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
