"""What a run will take, before any work: its memory, term by term, and its time.

The three arrays a layer (p, z, q; a as well for the solvers that carry it) dominate. The rest is the data, the
weights with the sums that the W-step needs, the tiles and scratch that layers share, and the program itself.
"""

from __future__ import annotations

from dataclasses import asdict, astuple, dataclass
from itertools import pairwise

import torch

from pdadmm.config import Config
from pdadmm.engine.cost import TYPICAL, CostModel, layer_seconds, measure_rate
from pdadmm.engine.estimate import estimate
from pdadmm.engine.placement import Placement, balance, parse_placement
from pdadmm.engine.problem import method_weights
from pdadmm.engine.schedule import Timeline
from pdadmm.errors import UserError
from pdadmm.machine import available_memory, resident_memory, usable_cores
from pdadmm.math.solvers import get_solver
from pdadmm.math.tiles import Tiling, default_tile_rows
from pdadmm.network import FORWARD_ROWS

LOOPBACK_BYTES_PER_SECOND = 2e9  # between two processes of one machine
TILE_SLOTS = 7  # five of the workspace, and the temporaries of a z-step


@dataclass(frozen=True)
class Shape:
    """The shape of the whole problem."""

    samples: int
    tests: int
    features: int
    outputs: int


@dataclass(frozen=True)
class MemoryPlan:
    """Bytes a run takes at its peak."""

    auxiliaries: int
    data: int
    weights: int
    work: int
    program: int

    @property
    def total(self) -> int:
        """All of it."""
        return self.auxiliaries + self.data + self.weights + self.work + self.program

    def to_mapping(self) -> dict[str, int]:
        """Plain values, with the total."""
        return {**asdict(self), "total": self.total}


def place(config: Config, shape: Shape) -> Placement:
    """By hand, or balanced by the cost model."""
    widths = (shape.features, *config.hidden, shape.outputs)
    if config.placement is not None:
        return parse_placement(config.placement, len(widths) - 1, config.workers)
    model = CostModel(config.solver, -(-shape.samples // config.shards), widths)
    return balance(layer_seconds(model, TYPICAL), config.workers)


def plan_memory(config: Config, shape: Shape) -> MemoryPlan:
    """The peak of a run of this resolved configuration on data of this shape, all its processes together."""
    samples, test_samples, features, outputs = astuple(shape)
    item = torch.finfo(getattr(torch, config.dtype)).bits // 8
    widths = (features, *config.hidden, outputs)
    solver = get_solver(config, method_weights(config))
    arrays = sum(2 * width for width in config.hidden) + outputs  # z and q; z of the output
    arrays += sum(config.hidden)  # p of every layer but the first, whose p is the data
    if solver.carries_a:
        arrays += sum(config.hidden) + outputs
    processes = config.workers * config.shards
    if config.workers > 1:
        # Every boundary has m and p where they arrive, and m where it leaves; p leaves from where it is.
        arrays += sum(3 * widths[stage[-1] + 1] for stage in place(config, shape).stages[:-1])
    tiling = Tiling(samples, config.tile_rows or default_tile_rows(max(widths)), width=max(config.hidden))
    parameters = sum(n_in * n_out + n_out for n_in, n_out in pairwise(widths))
    scratch = samples * max(solver.scratch_width(n_in, n_out) for n_in, n_out in pairwise(widths))
    tiles = TILE_SLOTS * tiling.largest_tile * max(widths)
    forward = 2 * FORWARD_ROWS * max(widths) + (samples + test_samples) * outputs
    # Partial sums wait at each level of the tree; pᵀp and (z or e)ᵀp of every distinct shape are kept.
    levels = tiling.num_chunks.bit_length()
    shapes = {n_in * n_out for n_in, n_out in pairwise(widths)} | (
        {n * n for n in config.hidden} if config.solver == "exact" else set()
    )
    factors = 4 * max(widths) ** 2  # matrices, their factors and the new W while a W-step runs
    return MemoryPlan(
        auxiliaries=item * samples * arrays,
        data=item * (samples + test_samples) * features + (samples + test_samples) * (8 + item),
        weights=item * parameters,
        work=item * (scratch * config.workers + processes * (tiles + levels * sum(shapes) + factors) + forward),
        program=resident_memory() * processes,
    )


def plan_time(config: Config, shape: Shape) -> Timeline:
    """The timeline of a few epochs, at the rate that this machine shows in a short trial."""
    widths = (shape.features, *config.hidden, shape.outputs)
    before = torch.get_num_threads()
    torch.set_num_threads(config.threads or max(1, usable_cores() // (config.workers * config.shards)))
    try:
        rate = measure_rate(max(config.hidden))
    finally:
        torch.set_num_threads(before)
    model = CostModel(config.solver, -(-shape.samples // config.shards), widths)
    return estimate(model, place(config, shape), rate, LOOPBACK_BYTES_PER_SECOND)


def check_memory(plan: MemoryPlan) -> None:
    """Refuse a run that cannot fit, with the numbers."""
    free = available_memory()
    needed = plan.total - resident_memory()
    if free is not None and needed > free:
        raise UserError(
            f"the run needs {format_bytes(needed)} more memory ({format_bytes(plan.auxiliaries)} of it for the "
            f"auxiliary arrays), but only {format_bytes(free)} are free; use fewer samples or layers, narrower "
            f"ones, or float32"
        )


def format_bytes(count: float) -> str:
    """1536 -> 1.5 KiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
