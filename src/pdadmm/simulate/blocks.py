"""What the layers of a network take: run and timed on this machine, or for a worker of a stated speed.

A layer is made as the engine makes it, by `pdadmm.engine.layers.Layers`, with arbitrary numbers in its arrays. But for
the layer before, whose m it needs, it is the only one, so a layer of a network can be measured that would not fit.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass
from functools import partial

import torch

from pdadmm.config import Config
from pdadmm.engine.flops import ACTIONS, PASS, step_flops
from pdadmm.engine.layers import Layers
from pdadmm.engine.placement import Placement
from pdadmm.engine.problem import Problem, Samples
from pdadmm.engine.schedule import Action
from pdadmm.engine.world import World
from pdadmm.errors import UserError
from pdadmm.machine import last_level_cache
from pdadmm.math.activations import get_activations
from pdadmm.math.losses import is_regression
from pdadmm.math.threads import with_threads
from pdadmm.plan import Shape, Unfilled

MOST_BYTES = 2**29
"""What a measurement may take; with more samples than fit, a part of them is measured."""
MOST_ROWS, FEWEST_ROWS = 8192, 512
LEAST_SECONDS, MOST_REPEATS = 0.3, 15  # small layers are measured more often


@dataclass(frozen=True)
class BlockTimes:
    """Seconds of a layer's phases in an iteration over so many samples."""

    p: float
    """With m of the layer before, made in the same process."""
    W: float
    z: float
    m: float
    """Of making m for the layer after, which is part of that one's p; 0 for the output layer."""
    rows: int

    def of(self, action: Action) -> float:
        """Of a step of the schedule."""
        return {"p": self.p, "W": self.W, "z": self.z}[action]

    def times(self, factor: float) -> BlockTimes:
        """All of it longer by this factor."""
        return BlockTimes(factor * self.p, factor * self.W, factor * self.z, factor * self.m, self.rows)


def stated_layers(config: Config, shape: Shape, gflops: float) -> list[BlockTimes]:
    """Every layer, on a worker that does so many operations a second."""
    widths, rows = shape.widths(config), shape.samples
    found = []
    for layer, n_out in enumerate(widths[1:]):
        flops = [step_flops(config, widths, action, layer).of(rows) for action in ACTIONS]
        flops.append(PASS * n_out * rows if layer < len(config.hidden) else 0.0)
        p, W, z, m = (one / (1e9 * gflops) for one in flops)
        found.append(BlockTimes(p, W, z, m, rows))
    return found


def measure_layers(
    config: Config,
    shape: Shape,
    beside: int = 1,
    tell: Callable[[str], None] | None = None,
    repeats: int = 3,
    max_bytes: int = MOST_BYTES,
    most_rows: int = MOST_ROWS,
) -> list[BlockTimes]:
    """Every layer of this resolved configuration, those that are alike once, with so many measured at a time.

    Each as `measure_block` does it.
    """
    widths, last = shape.widths(config), len(config.hidden)
    names = get_activations(config.activation, last).names
    known: dict[tuple[object, ...], BlockTimes] = {}
    found = []
    for layer in range(last + 1):
        key = (layer == 0, layer == last, *widths[layer : layer + 2], *names[max(0, layer - 1) : layer + 1])
        if key not in known:
            if tell is not None:
                tell(f"measuring layer {layer + 1}, {widths[layer]} to {widths[layer + 1]}")
            with ThreadPoolExecutor(beside) as pool:
                measure = partial(measure_block, config, shape, layer, repeats, max_bytes, most_rows)
                many = [astuple(one.result()) for one in [pool.submit(measure) for _ in range(beside)]]
            p, W, z, m, _ = map(statistics.fmean, zip(*many, strict=True))
            known[key] = BlockTimes(p, W, z, m, many[0][-1])
        found.append(known[key])
    return found


def measure_block(
    config: Config, shape: Shape, layer: int, repeats: int = 3, max_bytes: int = MOST_BYTES, most_rows: int = MOST_ROWS
) -> BlockTimes:
    """Median seconds of each phase of one layer (counted from 0, the output layer last) of this resolved configuration.

    At least `repeats` times after a first one that does not count; the cache is emptied before each, as the other
    layers of a network would.
    """
    widths, dtype = shape.widths(config), getattr(torch, config.dtype)
    n_in, n_out = widths[layer : layer + 2]
    fitting = max_bytes // (dtype.itemsize * ((widths[layer - 1] if layer else 0) + 3 * n_in + 5 * n_out))
    wished = min(-(-shape.samples // config.shards), most_rows)
    rows = min(wished, fitting)
    if rows < min(wished, FEWEST_ROWS):
        raise UserError(
            f"a layer of {n_in} and {n_out} neurons needs more than {max_bytes} bytes to be measured; state the speed "
            f"of a worker by --gflops instead"
        )
    with with_threads(config.threads or 1):
        phases = _phases(config, shape, layer, rows)
        found: list[list[float]] = []
        flush = torch.zeros(2 * last_level_cache() // 4)
        while len(found) <= repeats or (sum(map(sum, found)) < LEAST_SECONDS and len(found) < MOST_REPEATS):
            flush.add_(1)
            found.append([_seconds(phase) for phase in phases])
    p, W, z, *m = (statistics.median(times) for times in zip(*found[1:], strict=True))
    return BlockTimes(p, W, z, sum(m), rows)


def _phases(config: Config, shape: Shape, layer: int, rows: int) -> list[Callable[[], object]]:
    """p, W, z and, but for the output layer, m: of one layer with what its neighbours would give it."""
    dtype, device, output = getattr(torch, config.dtype), torch.device(config.device), len(config.hidden)
    own = (layer,) if layer == 0 else (layer - 1, layer)
    others = tuple(other for other in range(output + 1) if other not in own)
    x = torch.randn(rows, shape.features, dtype=dtype, device=device) if own[0] == 0 else None
    y = torch.randint(shape.outputs, (rows,), device=device)
    y = torch.randn(rows, shape.outputs, dtype=dtype, device=device) if is_regression(config) else y
    weight = torch.ones(rows, dtype=dtype, device=device)
    problem = Problem(rows, shape.features, shape.outputs, dtype, device, Samples(x, y), weight)
    layers = Layers(config, problem, range(output), World(), Placement((own, others)))
    layers.restore(Unfilled(dtype, device), 0)
    for state in (block.state for block in layers.blocks.values()):
        for array in (state.p, state.z, state.q, state.a, state.b, state.W):
            if array is not None:
                array.normal_()
        state.W.div_(state.W.shape[1] ** 0.5)  # so that a is of the size of p
    block, ws, ridge = layers.blocks[layer], layers.workspace, config.ridge or 0.0
    block.begin_stage()
    left = layers.blocks[layer - 1].message if layer else None
    before: list[Callable[[], object]] = [lambda: block.p_phase(left), lambda: block.W_phase(ridge)]
    if layer == output:
        return [*before, lambda: block.z_phase(None, ridge)]
    p_next = torch.randn(rows, config.hidden[layer], dtype=dtype, device=device)

    def make_messages() -> None:
        for part in ws.tiling.tiles():
            block.message(part, ws.tile(4, part.stop - part.start, len(block.state.b)))

    return [*before, lambda: block.z_phase(lambda part, _: p_next[part], ridge), make_messages]


def _seconds(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began
