"""What a run will take, before any work: its memory, term by term, its disk, and its time.

The three arrays a layer (p, z, q; a as well for the solvers that carry it) dominate; dlADMM has z, q and a, and the
gradient methods hold what a layer gives out for as many samples as they pass backward at once. The rest is the data,
the weights with the sums that the W-step needs, the tiles that layers share, the copy of the arrays that a checkpoint
is written from, and the program itself. With storage on the disk, all that has a row for each sample is in files; only
what is left counts as memory.
"""

from __future__ import annotations

import time
from dataclasses import asdict, astuple, dataclass, replace
from itertools import pairwise

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
from pdadmm.storage import Storage

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
    """With a row for each sample: what layers keep, share and send."""
    data: int
    weights: int
    work: int
    checkpoint: int
    """The copy that checkpoints are written from, unless the run waits for them instead, and buffers."""
    program: int
    disk: int
    """Beside the memory: in mapped files."""
    workers: tuple[int, ...]
    """Of a worker of each stage: its layers, the features at the first, and work, wherever the arrays are."""

    @property
    def total(self) -> int:
        """All the memory."""
        return self.auxiliaries + self.data + self.weights + self.work + self.checkpoint + self.program

    def to_mapping(self) -> dict[str, int]:
        """All of the run, with the total."""
        terms = asdict(self)
        disk, _ = terms.pop("disk"), terms.pop("workers")
        return {**terms, "total": self.total, "disk": disk}


def place(config: Config, shape: Shape) -> Placement:
    """By hand, or balanced by the operations of each layer."""
    if config.placement is not None:
        return parse_placement(config.placement, len(config.hidden) + 1, config.workers)
    return balance(layer_flops(config, shape.samples, shape.widths(config)), config.workers)


def plan_memory(config: Config, shape: Shape, data: Dataset | None = None) -> MemoryPlan:
    """The peak of a run of this resolved configuration, all its processes together.

    `data` is what this process has read already; without it, it is taken to be float32.
    """
    is_disk, processes, rows = config.storage == "disk", config.workers * config.shards, shape.samples + shape.tests
    stages = _stages(config, shape, place(config, shape))
    arrays, weights, saved, work = (config.shards * sum(terms) for terms in zip(*map(astuple, stages), strict=True))
    workers = [stage.arrays + stage.weights + stage.work for stage in stages]
    item = _item(config)
    scaled = item * rows * shape.features
    read = 0 if is_disk else 4 * rows * shape.features
    held = anonymous_memory() if is_disk else resident_memory()
    if data is not None:
        read = data.bytes_in_memory()
        held = max(0, held - read)
    plan = MemoryPlan(
        auxiliaries=0 if is_disk else arrays,
        data=read * config.shards * min(2, config.workers) + rows * (16 + item) + (0 if is_disk else scaled),
        weights=weights,
        work=work,
        checkpoint=FILE_BUFFERS * processes if config.saves else 0,
        program=held * (processes + (processes > 1)),  # every other process, and the one that starts them, as this one
        disk=arrays + scaled if is_disk else 0,
        workers=(workers[0] + item * -(-shape.samples // config.shards) * shape.features, *workers[1:]),
    )
    free = available_memory()
    if is_disk or not config.saves or not (free is None or has_room(saved, free - (plan.total - resident_memory()))):
        return plan
    return replace(plan, checkpoint=plan.checkpoint + saved)


@dataclass(frozen=True)
class _Stage:
    """Bytes of a worker of a stage; the data is not counted."""

    arrays: int
    """With a row for each of its samples."""
    weights: int
    saved: int
    """Of these, what a checkpoint holds."""
    work: int


def _stages(config: Config, shape: Shape, placement: Placement) -> list[_Stage]:
    widths, item, work = shape.widths(config), _item(config), _work_bytes(config, shape)
    if config.method == "pdadmm":
        return [_engine_stage(config, shape, placement, stage, work) for stage in range(config.workers)]
    weights = item * sum(n_in * n_out + n_out for n_in, n_out in pairwise(widths))
    weights *= 4 if config.method in LEARNING_RATES else 1  # a gradient and at most two moments
    row = item * shape.samples if config.method == "dladmm" else 0  # z, q and a; at the output z, u and a
    own = 3 * row * sum(widths[1:])
    return [_Stage(own + row * max(widths[1:]), weights, own + weights, work)]


def _engine_stage(config: Config, shape: Shape, placement: Placement, stage: int, work: int) -> _Stage:
    """By the engine's own layers, made on torch's meta device, where arrays have sizes and no memory."""
    widths, own, output = shape.widths(config), placement.stages[stage], len(config.hidden)
    if _item(config) * max(shape.samples, *widths) * max(widths) > LARGEST_ARRAY:
        free = format_bytes(available_memory() or 0)
        more = f"the run needs more than {format_bytes(LARGEST_ARRAY)} of memory, but only {free} are free"
        raise UserError(f"{more}; use fewer samples or layers, or narrower ones")
    world, storage, dtype = World(), _Counting(), getattr(torch, config.dtype)
    world.stage, world.num_stages = stage, config.workers
    world.shard, world.num_shards = config.shards - 1, config.shards  # the last one is never the smallest
    device, nothing = torch.device("meta"), torch.empty(0, device="meta")
    sizes, samples = (shape.samples, shape.features, shape.outputs), Samples(nothing, nothing)
    problem = Problem(*sizes, dtype, device, samples, nothing, storage=storage)
    layers = Layers(config, problem, range(output), world, placement)
    if config.fit_output == "on" and own[-1] == output:
        layers.array(widths[-2])
    layers.restore(Unfilled(dtype, device), 0)
    rounds = config.messages == "bfloat16"  # then p has an array of its own to leave from
    for layer, count in ((own[0], 1 + rounds), (own[-1] + 1, 2)):
        if 0 < layer <= output:
            rows = layers.workspace.tiling.local_samples
            storage.empty(count, rows, widths[layer], dtype=torch.bfloat16 if rounds else dtype)
    saved = layers.saved_state().values()
    weights = sum(tensors[name].nbytes for tensors in saved for name in WEIGHT_VARIABLES)
    in_all = sum(tensor.nbytes for tensors in saved for tensor in tensors.values())
    return _Stage(storage.counted, weights, in_all, work)


class _Counting(Storage):
    """Makes arrays without memory, and counts what they would take."""

    counted = 0

    def empty(self, *shape: int, dtype: torch.dtype, device: torch.device | None = None) -> Tensor:
        """On the meta device."""
        array = torch.empty(*shape, dtype=dtype, device="meta")
        self.counted += array.nbytes
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
    return int(getattr(torch, config.dtype).itemsize)


def _work_bytes(config: Config, shape: Shape) -> int:
    """What a process needs to compute with, beside the arrays of all samples."""
    widths = shape.widths(config)
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
    squares = {n * n for n in config.hidden} if (config.method, config.solver) == ("pdadmm", "exact") else set()
    sums = tiling.num_chunks.bit_length() * (sum({n_in * n_out for n_in, n_out in pairs}) + sum(squares))
    # Of every window of samples, where there are several, each layer's sums are carried along.
    carried = config.batches * sum(n_in * (n_out + n_in) for n_in, n_out in pairs) if config.batches > 1 else 0
    factors = 4 * widest**2  # matrices, their factors and the new W while a W-step runs
    gathered = config.shards * widest**2 if config.shards > 1 else 0  # the sums of all shards
    return _item(config) * (tiles + exact + forward + sums + carried + factors + gathered)


def plan_seconds(config: Config, shape: Shape) -> float:
    """Seconds of an epoch: the operations of the worker with most, at the rate of products in a short trial here."""
    rows, width = 1024, 1000
    a, b, count = torch.randn(rows, width), torch.randn(width, width), 0
    with with_threads(config.threads or max(1, usable_cores() // (config.workers * config.shards))):
        torch.mm(a, b)
        began = time.perf_counter()
        while (seconds := time.perf_counter() - began) < TRIAL_SECONDS:
            torch.mm(a, b)
            count += 1
    flops = layer_flops(config, shape.samples, shape.widths(config))
    most = max(sum(flops[layer] for layer in stage) for stage in place(config, shape).stages)
    return most * seconds / (2.0 * count * rows * width * width)


def check_room(config: Config, plan: MemoryPlan, storage: Storage) -> None:
    """Refuse a run that cannot fit, with the numbers and a way out; checkpoints do without a copy then."""
    storage.check_room(plan.disk, "the arrays of the layers and the data")
    free, present = available_memory(), anonymous_memory() if storage.is_disk else resident_memory()
    needed = plan.total - plan.checkpoint - present
    if free is None or needed <= free:
        return
    way = "use fewer samples or layers, narrower ones, or float32"
    if not storage.is_disk and torch.device(config.device).type == "cpu" and config.method in OPTIONS_OF["storage"]:
        way += f"; or --storage disk, which keeps {format_bytes(plan.auxiliaries)} of it in files"
    raise UserError(
        f"the run needs {format_bytes(needed)} more memory ({format_bytes(plan.auxiliaries)} of it for the "
        f"auxiliary arrays), but only {format_bytes(free)} are free; {way}"
    )
