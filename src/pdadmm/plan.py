"""What a run will take, before any work: its memory, term by term, its disk, and its time.

The three arrays a layer (p, z, q; a as well for the solvers that carry it) dominate; dlADMM has z, q and a, and the
gradient methods hold what a layer gives out for as many samples as they pass backward at once. The rest is the data,
what the output layer is fitted to, the weights with the sums that the W-step needs, the tiles and scratch that layers
share, the copy of the arrays that a checkpoint is written from, and the program itself. With storage on the disk, all
that has a row for each sample is in files; only what is left counts as memory.
"""

from __future__ import annotations

from dataclasses import asdict, astuple, dataclass, replace
from itertools import pairwise
from pathlib import Path

import torch

from pdadmm.checkpoint.saver import has_room
from pdadmm.config import LEARNING_RATES, OPTIONS_OF, Config
from pdadmm.data import Dataset
from pdadmm.engine.cost import CostModel, Timing, measure_gflops
from pdadmm.engine.estimate import estimate
from pdadmm.engine.flops import layer_flops
from pdadmm.engine.placement import Placement, balance, parse_placement
from pdadmm.engine.problem import method_weights
from pdadmm.engine.timeline import Link, Timeline
from pdadmm.engine.typical import TYPICAL
from pdadmm.errors import UserError
from pdadmm.machine import anonymous_memory, available_memory, format_bytes, resident_memory, usable_cores
from pdadmm.math.solvers import get_solver
from pdadmm.math.tiles import SUM_ROWS, Tiling, default_tile_rows
from pdadmm.network import BACKWARD_ROWS, FORWARD_ROWS
from pdadmm.storage import Disk, Storage

LOOPBACK = Link(bytes_per_second=2e9, latency=1e-4)  # between two processes of one machine
TILE_SLOTS = 7  # five of the workspace, and the temporaries of a z-step
FILE_BUFFERS = 16 * 2**20  # what a checkpoint must be and what the disk has of it are compared in two pieces


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
    checkpoint: int
    """The copy that checkpoints are written from, unless the run waits for them instead, and buffers."""
    program: int
    disk: int
    """Beside the memory: in mapped files."""

    @property
    def total(self) -> int:
        """All the memory."""
        return self.auxiliaries + self.data + self.weights + self.work + self.checkpoint + self.program

    def to_mapping(self) -> dict[str, int]:
        """Plain values, with the total."""
        terms = asdict(self)
        disk = terms.pop("disk")
        return {**terms, "total": self.total, "disk": disk}


def place(config: Config, shape: Shape) -> Placement:
    """By hand, or balanced by the operations of each layer."""
    widths = (shape.features, *config.hidden, shape.outputs)
    if config.placement is not None:
        return parse_placement(config.placement, len(widths) - 1, config.workers)
    return balance(layer_flops(config, shape.samples, widths), config.workers)


def cost_model(config: Config, shape: Shape) -> CostModel:
    """The work of a run of this resolved configuration, on the shard that has most."""
    widths = (shape.features, *config.hidden, shape.outputs)
    solver = _cost_of(config)
    item = torch.finfo(getattr(torch, config.dtype)).bits // 8
    one_step = solver == "backtracking" or (solver == "linearized" and config.step_size == "one")
    model = CostModel.of(solver, shape.samples, widths, config.shards)
    return replace(model, one_step=one_step, messages=config.messages, item=item)


def plan_memory(config: Config, shape: Shape, data: Dataset | None = None) -> MemoryPlan:
    """The peak of a run of this resolved configuration, all its processes together.

    `data` is what this process has read already; without it, it is taken to be float32.
    """
    samples, test_samples, features, outputs = astuple(shape)
    item = torch.finfo(getattr(torch, config.dtype)).bits // 8
    widths = (features, *config.hidden, outputs)
    rows, layers = samples + test_samples, list(pairwise(widths))
    is_disk, processes = config.storage == "disk", config.workers * config.shards
    array_width, scratch_width = _sample_widths(config, widths)
    arrays, scratch = item * samples * array_width, item * samples * config.workers * scratch_width
    scratch += item * samples * _fitted_width(config)
    wires = samples * _wire_bytes(config, shape, item)
    scaled = item * rows * features
    read = _bytes_read(config, shape, data) * config.shards * min(2, config.workers)
    parameters = item * sum(n_in * n_out + n_out for n_in, n_out in layers)
    is_split = test_samples > 0 and (data is None or data.test is None)  # it will be, that is
    in_files = arrays + scratch + scaled + (wires if config.messages == "exact" else 0)
    plan = MemoryPlan(
        auxiliaries=arrays + wires if not is_disk else 0 if config.messages == "exact" else wires,
        data=read + rows * (16 + item) + (0 if is_disk else scaled),
        weights=parameters * (4 if config.method in LEARNING_RATES else 1),  # a gradient and at most two moments
        work=item * processes * _work_items(config, shape) + (0 if is_disk else scratch),
        checkpoint=FILE_BUFFERS * processes if config.saves else 0,
        program=_program(is_disk, data, is_split) * (processes + (processes > 1)),  # and the one that starts them
        disk=in_files if is_disk else 0,
    )
    if is_disk or not config.saves:
        return plan
    return replace(plan, checkpoint=plan.checkpoint + _copy_bytes(plan, arrays + parameters))


def worker_memory(config: Config, shape: Shape, placement: Placement) -> list[int]:
    """Bytes that a worker of each stage needs for its layers, of the shard that has most; the program is not in it."""
    widths = (shape.features, *config.hidden, shape.outputs)
    rows, item = cost_model(config, shape).tiling.local_samples, torch.finfo(getattr(torch, config.dtype)).bits // 8
    _, scratch = _sample_widths(config, widths)
    carried = get_solver(config, method_weights(config)).carries_a
    wire = {"exact": item, "bfloat16": 2}[config.messages]
    work, found = _work_items(config, shape), []
    for stage in placement.stages:
        numbers, wired = scratch, 0
        for layer in stage:
            n_in, n_out, is_output = widths[layer], widths[layer + 1], layer == len(widths) - 2
            numbers += n_in + n_out + (0 if is_output else n_out) + (n_out if carried else 0)
            numbers += _fitted_width(config) if is_output else 0
        if stage[0] > 0:
            wired += 2 * widths[stage[0]] if config.messages != "exact" else widths[stage[0]]
        if stage[-1] < len(widths) - 2:
            wired += 2 * widths[stage[-1] + 1]
        weights = sum(widths[layer] * widths[layer + 1] for layer in stage)
        # A sum over the shards is added up from all of them.
        parts = config.shards * max(widths[layer] * max(widths[layer : layer + 2]) for layer in stage)
        sums = parts if config.shards > 1 else 0
        found.append(rows * (item * numbers + wire * wired) + item * (weights + work + sums))
    return found


def _cost_of(config: Config) -> str:
    """The name by which the cost model knows what is done."""
    if config.method == "pdadmm":
        return config.solver
    return "gradient" if config.method in LEARNING_RATES else config.method


def _sample_widths(config: Config, widths: tuple[int, ...]) -> tuple[int, int]:
    """Numbers for each sample: those that are saved, and those of the scratch that layers share."""
    hidden, outputs = sum(config.hidden), widths[-1]
    if config.method in LEARNING_RATES:
        return 0, 0
    if config.method == "dladmm":  # z, q and a; at the output z, u and a
        return 3 * (hidden + outputs), max(widths[1:])
    solver = get_solver(config, method_weights(config))
    scratch = max(solver.scratch_width(*layer) for layer in pairwise(widths))
    # p but of the first layer, whose p is the data; z; q but of the output layer; perhaps a.
    return 3 * hidden + outputs + (hidden + outputs if solver.carries_a else 0), scratch


def _fitted_width(config: Config) -> int:
    """Numbers for each sample that the output layer is fitted to, where that is done."""
    return config.hidden[-1] if config.fit_output == "on" else 0


def _wire_bytes(config: Config, shape: Shape, item: int) -> int:
    """A sample's messages: every boundary has m and p where they arrive, and m where it leaves."""
    if config.workers == 1:
        return 0
    widths = (shape.features, *config.hidden, shape.outputs)
    boundaries = [widths[stage[-1] + 1] for stage in place(config, shape).stages[:-1]]
    exact = config.messages == "exact"  # then p leaves from where it is
    size = {"exact": item, "bfloat16": 2}[config.messages]
    return sum((3 if exact else 4) * size * width for width in boundaries)


def _work_items(config: Config, shape: Shape) -> int:
    """Numbers that a process needs to compute with, beside the arrays of all samples."""
    widths = (shape.features, *config.hidden, shape.outputs)
    if config.method in LEARNING_RATES:
        held = min(shape.samples, config.batch_size or shape.samples, BACKWARD_ROWS)
        batch = (config.batch_size or 0) * shape.features
        return (
            held * (sum(config.hidden) + 2 * max(widths) + 4 * shape.outputs) + batch + 2 * FORWARD_ROWS * max(widths)
        )
    tiling = Tiling(shape.samples, default_tile_rows(max(widths)), width=max(config.hidden))
    tiles = TILE_SLOTS * tiling.largest_tile * max(widths)
    exact = 2 * min(SUM_ROWS, shape.samples) * max(widths)  # rows in float64
    forward = 2 * FORWARD_ROWS * max(widths)
    # Partial sums wait at each level of the tree; pᵀp and (z or e)ᵀp of every distinct shape are kept.
    shapes = {n_in * n_out for n_in, n_out in pairwise(widths)}
    squares = {n * n for n in config.hidden} if _cost_of(config) == "exact" else set()
    sums = tiling.num_chunks.bit_length() * (sum(shapes) + sum(squares))
    # Of every window of samples, where there are several, each layer's sums are carried along.
    carried = sum(n_in * n_out + n_in * n_in for n_in, n_out in pairwise(widths)) * config.batches
    factors = 4 * max(widths) ** 2  # matrices, their factors and the new W while a W-step runs
    return tiles + exact + forward + sums + factors + (carried if config.batches > 1 else 0)


def _bytes_read(config: Config, shape: Shape, data: Dataset | None) -> int:
    """The data as it was read, which a process that needs it keeps in memory, unless it is mapped."""
    if data is not None:
        return data.bytes_in_memory()
    return 0 if config.storage == "disk" else 4 * (shape.samples + shape.tests) * shape.features


def _program(is_disk: bool, data: Dataset | None, is_split: bool) -> int:
    """What this process holds now, as every other will, but for the data; of file pages only where they count."""
    if is_split:
        import sklearn.model_selection  # noqa: F401 - what will hold the test part out is held too
    held = anonymous_memory() if is_disk else resident_memory()
    return max(0, held - (data.bytes_in_memory() if data is not None else 0))


def _copy_bytes(plan: MemoryPlan, size: int) -> int:
    """What the saver will copy, if it finds room for it."""
    free = available_memory()
    return size if free is None or has_room(size, free - (plan.total - resident_memory())) else 0


def plan_time(config: Config, shape: Shape) -> Timeline:
    """The timeline of a few epochs, at the speed that this machine shows in a short trial."""
    before = torch.get_num_threads()
    torch.set_num_threads(config.threads or max(1, usable_cores() // (config.workers * config.shards)))
    try:
        speed = TYPICAL.scaled(measure_gflops())
    finally:
        torch.set_num_threads(before)
    return estimate(Timing(cost_model(config, shape), speed), place(config, shape), LOOPBACK)


def check_room(config: Config, plan: MemoryPlan, storage: Storage, shape: Shape) -> None:
    """Refuse a run that cannot fit, with the numbers and, where there is one, the way out."""
    storage.check_room(plan.disk, "the arrays of the layers and the data")
    short = _short_of_memory(config, plan)
    if short is None:
        return
    needed, free = short
    way = "use fewer samples or layers, narrower ones, or float32"
    if not storage.is_disk and torch.device(config.device).type == "cpu" and (size := _size_on_disk(config, shape)):
        way += f"; or --storage disk, which keeps {format_bytes(size)} of it in files"
    raise UserError(
        f"the run needs {format_bytes(needed)} more memory ({format_bytes(plan.auxiliaries)} of it for the "
        f"auxiliary arrays), but only {format_bytes(free)} are free; {way}"
    )


def _size_on_disk(config: Config, shape: Shape) -> int | None:
    """The bytes in files with which the run would fit, where its method can have them there and it would."""
    if config.method not in OPTIONS_OF["storage"]:
        return None
    other = replace(config, storage="disk")
    on_disk = plan_memory(other, shape)
    has_room = on_disk.disk <= Disk(Path(config.storage_dir or ".")).free()
    return on_disk.disk if has_room and _short_of_memory(other, on_disk) is None else None


def _short_of_memory(config: Config, plan: MemoryPlan) -> tuple[int, int] | None:
    """What is needed and what is free, where that is less; checkpoints do without a copy then."""
    free = available_memory()
    present = anonymous_memory() if config.storage == "disk" else resident_memory()
    needed = plan.total - plan.checkpoint - present
    return (needed, free) if free is not None and needed > free else None
