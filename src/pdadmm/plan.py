"""What a run will take, before any work: its memory, term by term, its disk, and its time.

The three arrays a layer (p, z, q; a as well for the solvers that carry it) dominate; dlADMM has z, q and a, and the
gradient methods hold what a layer gives out for as many samples as they pass backward at once. The rest is the data,
what the output layer is fitted to, the weights with the sums that the W-step needs, the tiles and scratch that layers
share, the copy of the arrays that a checkpoint is written from, and the program itself. With storage on the disk, all
that has a row for each sample is in files; only what is left counts as memory.
"""

from __future__ import annotations

import time
from dataclasses import asdict, astuple, dataclass, replace
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor

from pdadmm.checkpoint.saver import has_room
from pdadmm.config import LEARNING_RATES, OPTIONS_OF, Config
from pdadmm.data import Dataset
from pdadmm.engine.flops import layer_flops
from pdadmm.engine.layers import SAMPLE_VARIABLES, WEIGHT_VARIABLES, Layers, Shapes
from pdadmm.engine.placement import Placement, balance, parse_placement
from pdadmm.engine.problem import Problem, Samples
from pdadmm.engine.world import World
from pdadmm.errors import UserError
from pdadmm.machine import anonymous_memory, available_memory, format_bytes, resident_memory, usable_cores
from pdadmm.math.threads import with_threads
from pdadmm.math.tiles import SUM_ROWS, Tiling, default_tile_rows
from pdadmm.network import BACKWARD_ROWS, FORWARD_ROWS
from pdadmm.storage import Disk, Storage

TRIAL_SECONDS = 0.2
LARGEST_ARRAY = 2**63 - 1  # bytes that torch can count
TILE_SLOTS = 7  # five of the workspace, and the temporaries of a z-step
FILE_BUFFERS = 16 * 2**20  # what a checkpoint must be and what the disk has of it are compared in two pieces


@dataclass(frozen=True)
class Shape:
    """The shape of the whole problem."""

    samples: int
    tests: int
    features: int
    outputs: int

    def widths(self, config: Config) -> tuple[int, ...]:
        """Of the features, the hidden layers and the outputs."""
        return (self.features, *config.hidden, self.outputs)


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


def plan_memory(config: Config, shape: Shape, data: Dataset | None = None) -> MemoryPlan:
    """The peak of a run of this resolved configuration, all its processes together.

    `data` is what this process has read already; without it, it is taken to be float32.
    """
    is_disk, processes = config.storage == "disk", config.workers * config.shards
    held, rows = _held_by_all(config, shape), shape.samples + shape.tests
    scaled = _item(config) * rows * shape.features
    read = _bytes_read(config, shape, data) * config.shards * min(2, config.workers)
    is_split = shape.tests > 0 and (data is None or data.test is None)  # it will be, that is
    plan = MemoryPlan(
        auxiliaries=0 if is_disk else held.arrays + held.messages,
        data=read + rows * (16 + _item(config)) + (0 if is_disk else scaled),
        weights=held.weights * (4 if config.method in LEARNING_RATES else 1),  # a gradient and at most two moments
        work=processes * _work_bytes(config, shape) + (0 if is_disk else held.shared),
        checkpoint=FILE_BUFFERS * processes if config.saves else 0,
        program=_program(is_disk, data, is_split) * (processes + (processes > 1)),  # and the one that starts them
        disk=held.arrays + held.messages + held.shared + scaled if is_disk else 0,
    )
    if is_disk or not config.saves:
        return plan
    free, copied = available_memory(), held.arrays + held.weights
    if free is None or has_room(copied, free - (plan.total - resident_memory())):
        return replace(plan, checkpoint=plan.checkpoint + copied)
    return plan


def worker_memory(config: Config, shape: Shape, placement: Placement) -> list[int]:
    """Bytes that a worker of each stage needs for its layers, of the shard that has most; the program is not in it."""
    widths, found = (shape.features, *config.hidden, shape.outputs), []
    for stage, layers in enumerate(placement.stages):
        held = _held(config, shape, placement, stage, config.shards)
        data = -(-shape.samples // config.shards) * shape.features if stage == 0 else 0
        # A sum over the shards is added up from all of them.
        parts = config.shards * max(widths[layer] * max(widths[layer : layer + 2]) for layer in layers)
        numbers = data + (parts if config.shards > 1 else 0)
        found.append(sum(astuple(held)) + _work_bytes(config, shape) + _item(config) * numbers)
    return found


@dataclass(frozen=True)
class _Held:
    """Bytes of what is made for layers."""

    arrays: int
    """Of all samples, a layer's own; the data is not counted."""
    shared: int
    """Arrays of all samples that layers share, and what the output layer is fitted to."""
    messages: int
    weights: int


def _held_by_all(config: Config, shape: Shape) -> _Held:
    """By the workers of all stages together."""
    widths = (shape.features, *config.hidden, shape.outputs)
    if config.method == "pdadmm":
        placement = place(config, shape)
        stages = [_held(config, shape, placement, stage, 1) for stage in range(config.workers)]
        return _Held(*(sum(terms) for terms in zip(*map(astuple, stages), strict=True)))
    weights = _item(config) * sum(n_in * n_out + n_out for n_in, n_out in pairwise(widths))
    row = _item(config) * shape.samples if config.method == "dladmm" else 0  # z, q and a; at the output z, u and a
    return _Held(3 * row * sum(widths[1:]), row * max(widths[1:]), 0, weights)


def _held(config: Config, shape: Shape, placement: Placement, stage: int, shards: int) -> _Held:
    """By the engine's own layers, made on torch's meta device, where arrays have sizes and no memory."""
    widths, own = (shape.features, *config.hidden, shape.outputs), placement.stages[stage]
    if _item(config) * max(shape.samples, *widths) * max(widths) > LARGEST_ARRAY:
        free = format_bytes(available_memory() or 0)
        more = f"the run needs more than {format_bytes(LARGEST_ARRAY)} of memory, but only {free} are free"
        raise UserError(f"{more}; use fewer samples or layers, or narrower ones")
    world, storage, dtype = World(), _Counting(), getattr(torch, config.dtype)
    world.stage, world.num_stages = stage, config.workers
    world.shard, world.num_shards = shards - 1, shards  # the last one is never the smallest
    device, nothing = torch.device("meta"), torch.empty(0, device="meta")
    samples, sizes = Samples(nothing, nothing), (shape.samples, shape.features, shape.outputs)
    problem = Problem(*sizes, dtype, device, samples, nothing, storage=storage)
    layers = Layers(config, problem, range(len(config.hidden)), world, placement)
    if config.fit_output == "on" and own[-1] == len(config.hidden):
        layers.array(config.hidden[-1])
    shared = storage.counted
    layers.restore(Unfilled(dtype, device), 0)
    arrays = storage.counted - shared
    rounds = config.messages == "bfloat16"  # then p has an array of its own to leave from
    for layer, count in ((own[0], 1 + rounds), (own[-1] + 1, 2)):
        if 0 < layer < len(widths) - 1:
            rows = layers.workspace.tiling.local_samples
            storage.empty(count, rows, widths[layer], dtype=torch.bfloat16 if rounds else dtype)
    states = [block.state for block in layers.blocks.values()]
    weights = sum(tensor.numel() * tensor.element_size() for s in states for tensor in (s.W, s.b))
    return _Held(arrays, shared, storage.counted - shared - arrays, weights)


class _Counting(Storage):
    """Makes arrays without memory, and counts what they would take."""

    counted = 0

    def empty(self, *shape: int, dtype: torch.dtype, device: torch.device | None = None) -> Tensor:
        """On the meta device."""
        array = torch.empty(*shape, dtype=dtype, device="meta")
        self.counted += array.numel() * array.element_size()
        return array


@dataclass(frozen=True)
class Unfilled:
    """Stands in for a checkpoint where layers are made that are not to be trained: their numbers are arbitrary."""

    dtype: torch.dtype
    device: torch.device

    def layer(self, layer: int, shapes: Shapes, storage: Storage) -> dict[str, Tensor]:
        """Arrays of samples by `storage`."""
        made = {
            name: storage.empty(*shapes[name], dtype=self.dtype, device=self.device)
            for name in SAMPLE_VARIABLES
            if name in shapes
        }
        made |= {name: torch.empty(shapes[name], dtype=self.dtype, device=self.device) for name in WEIGHT_VARIABLES}
        return {**made, "gram_scale": torch.ones(())}

    def extra(self, layer: int, name: str) -> Tensor | None:
        """Nothing."""
        return None


def _item(config: Config) -> int:
    """Bytes of a number."""
    return torch.finfo(getattr(torch, config.dtype)).bits // 8


def _work_bytes(config: Config, shape: Shape) -> int:
    """What a process needs to compute with, beside the arrays of all samples."""
    widths = (shape.features, *config.hidden, shape.outputs)
    widest, forward = max(widths), 2 * FORWARD_ROWS * max(widths)
    if config.method in LEARNING_RATES:
        held = min(shape.samples, config.batch_size or shape.samples, BACKWARD_ROWS)
        batch = (config.batch_size or 0) * shape.features
        return _item(config) * (held * (sum(config.hidden) + 2 * widest + 4 * shape.outputs) + batch + forward)
    tiling = Tiling(shape.samples, default_tile_rows(widest), width=max(config.hidden))
    tiles = TILE_SLOTS * tiling.largest_tile * widest
    exact = 2 * min(SUM_ROWS, shape.samples) * widest  # rows in float64
    # Partial sums wait at each level of the tree; pᵀp and (z or e)ᵀp of every distinct shape are kept.
    pairs = list(pairwise(widths))
    shapes = {n_in * n_out for n_in, n_out in pairs}
    squares = {n * n for n in config.hidden} if (config.method, config.solver) == ("pdadmm", "exact") else set()
    sums = tiling.num_chunks.bit_length() * (sum(shapes) + sum(squares))
    # Of every window of samples, where there are several, each layer's sums are carried along.
    carried = config.batches * sum(n_in * (n_out + n_in) for n_in, n_out in pairs) if config.batches > 1 else 0
    factors = 4 * widest**2  # matrices, their factors and the new W while a W-step runs
    return _item(config) * (tiles + exact + forward + sums + carried + factors)


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


def plan_seconds(config: Config, shape: Shape) -> float:
    """Seconds of an epoch: the operations of the worker with most, at the rate of products in a short trial here."""
    with with_threads(config.threads or max(1, usable_cores() // (config.workers * config.shards))):
        rate = _measure_rate()
    flops = layer_flops(config, shape.samples, (shape.features, *config.hidden, shape.outputs))
    return max(sum(flops[layer] for layer in stage) for stage in place(config, shape).stages) / rate


def _measure_rate() -> float:
    """Operations a second of a product of 1000 columns, with the present threads."""
    rows, width = 1024, 1000
    a, b, out = torch.randn(rows, width), torch.randn(width, width), torch.empty(rows, width)
    torch.mm(a, b, out=out)
    began, count = time.perf_counter(), 0
    while time.perf_counter() - began < TRIAL_SECONDS:
        torch.mm(a, b, out=out)
        count += 1
    return 2.0 * count * rows * width * width / (time.perf_counter() - began)


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
