"""What is an epoch made of?

Four epochs of the same run are looked at, each in a way that would disturb the others: one is only timed, and its page
faults counted; one runs under torch.profiler, which gives the time of each operation; one under the profiler of memory,
which gives the allocations; one under a dispatch mode, which gives the bytes that element-wise operations read and
write. Products are told apart by the phase they are in and by their shapes.
"""

from __future__ import annotations

import argparse
import functools
import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.common import (
    Row,
    Size,
    Training,
    machine,
    make_parser,
    page_faults,
    parse,
    report,
    seconds,
    table,
)
from torch import Tensor
from torch.profiler import ProfilerActivity, profile, record_function
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from pdadmm.block import Block

COLUMNS = {"phase": "", "what": "", "calls": ",", "ms": ".1f", "share": ".1%", "rate": ""}
PHASES = ("p_phase", "W_phase", "z_phase")
LETTERS = ("p", "W", "z")
PRODUCTS = ("aten::mm", "aten::addmm", "aten::addmm_", "aten::bmm", "aten::baddbmm_")
FACTORISATIONS = ("cholesky", "linalg_solve", "triangular", "linalg_inv", "linalg_lu")
# By solver, phase and form: rows (tile × n · n × n'), sum (n × tile · tile × n'), small (no samples). Products of one
# phase and form are of one shape in a square layer; nothing but their order would tell them apart.
ROLES = {
    ("exact", "p", "rows"): "(z − b) W and right · inverse",
    ("exact", "p", "sum"): "pᵀp and zᵀp",
    ("exact", "p", "small"): "WᵀW and other products of n × n matrices",
    ("exact", "W", "small"): "products of n × n matrices",
    ("exact", "z", "rows"): "p Wᵀ",
    ("linearized", "p", "rows"): "(a − z) W and g Wᵀ",
    ("linearized", "p", "sum"): "(a − z)ᵀp",
    ("linearized", "W", "rows"): "p Gᵀ",
}


@contextmanager
def phases(enter: Callable[[str], Any]) -> Iterator[None]:
    """Run every phase of every layer inside `enter(its letter)`."""
    originals = {name: getattr(Block, name) for name in PHASES}

    def inside(name: str) -> Callable[..., Any]:
        @functools.wraps(originals[name])
        def run(*args: Any, **options: Any) -> Any:
            with enter(name[0]):
                return originals[name](*args, **options)

        return run

    for name in PHASES:
        setattr(Block, name, inside(name))
    try:
        yield
    finally:
        for name, original in originals.items():
            setattr(Block, name, original)


@dataclass(frozen=True)
class Dimensions:
    """What tells the sides of a product apart: widths of layers, and numbers of samples of tiles and chunks."""

    widths: tuple[int, ...]
    lengths: frozenset[int]

    @classmethod
    def of(cls, training: Training, size: Size) -> Dimensions:
        tiling = training.engine.tiling
        tiles = {int(rows.stop - rows.start) for rows in tiling.tiles()}
        return cls(size.widths, frozenset(tiles | {stop - start for start, stop in tiling.chunk_bounds()}))

    def are_samples(self, dimension: int) -> bool:
        return dimension in self.lengths or dimension > max(self.widths)


@dataclass
class Part:
    """What operations of one kind add up to."""

    calls: int = 0
    seconds: float = 0.0
    flops: float = 0.0


def profiled(training: Training, memory: bool) -> tuple[float, Any]:
    """One epoch under the profiler: how long it took, and what was found, either shapes or allocations."""
    watch = profile(activities=[ProfilerActivity.CPU], record_shapes=not memory, profile_memory=memory)
    with watch, phases(record_function):
        took = seconds(training)
    return took, watch


def operations(events: Sequence[Any], solver: str, network: Dimensions) -> dict[tuple[str, str], Part]:
    """The time of all operations, by phase and role. An operation's own time leaves out those it calls."""
    parts: dict[tuple[str, str], Part] = defaultdict(Part)
    for event in events:
        if event.name in LETTERS:
            continue
        phase, factorisation = _place(event)
        flops = 0.0
        if factorisation:
            what = "factorisations"
        elif event.name in PRODUCTS:
            what, flops = _product(event, solver, phase, network)
        else:
            what = "element-wise"
        part = parts[phase, what]
        part.calls += 1
        part.seconds += event.self_cpu_time_total / 1e6
        part.flops += flops
    return parts


def _place(event: Any) -> tuple[str, bool]:
    """The phase that an operation is in, and whether it is part of a factorisation."""
    phase, factorisation = "", False
    while event is not None:
        phase = event.name if event.name in LETTERS else phase
        factorisation = factorisation or any(name in event.name for name in FACTORISATIONS)
        event = event.cpu_parent
    return phase, factorisation


def _product(event: Any, solver: str, phase: str, network: Dimensions) -> tuple[str, float]:
    """The role of a product and its flops.

    Rows of samples are multiplied by whole weights; a sum goes over the samples of a tile or a chunk.
    """
    left, right = event.input_shapes[1:3] if "add" in event.name else event.input_shapes[:2]
    is_rows = right[-2] in network.widths and right[-1] in network.widths and network.are_samples(left[-2])
    form = "rows" if is_rows else "sum" if network.are_samples(left[-1]) else "small"
    return ROLES.get(
        ("exact" if solver == "exact" else "linearized", phase, form), f"other products, {form}"
    ), 2.0 * math.prod(left) * right[-1]


class Bytes(TorchDispatchMode):
    """Bytes read and written by operations that are no products and no factorisations, by phase."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.phase = ""
        self.moved: dict[str, int] = defaultdict(int)

    @contextmanager
    def enter(self, phase: str) -> Iterator[None]:
        self.phase = phase
        try:
            yield
        finally:
            self.phase = ""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func.name()
        if not any(word in name for word in (*(product.rstrip("_") for product in PRODUCTS), *FACTORISATIONS)):
            self.moved[self.phase] += _bytes_moved(func, args, kwargs or {}, result)
        return result


def _bytes_moved(func: Any, args: Any, kwargs: dict[str, Any], result: Any) -> int:
    """Every array that is read and every one that is written, each once; a view moves nothing, nor does new memory."""
    read = [leaf for leaf in tree_leaves(args) if isinstance(leaf, Tensor)]
    written = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
    places = {leaf.untyped_storage().data_ptr() for leaf in read}
    is_view = any(leaf.untyped_storage().data_ptr() in places for leaf in written) and not func._schema.is_mutable
    if is_view or "empty" in func.name():
        return 0
    if any(word in func.name() for word in ("copy_", "fill_", "zero_")):
        read = read[1:]
    return sum(leaf.numel() * leaf.element_size() for leaf in (*read, *written))


def measure(size: Size, solver: str, given: argparse.Namespace) -> list[Row]:
    training = Training(size, solver, given.set)
    for _ in range(2):
        training()
    times, faults = [], []
    for _ in range(given.rounds):
        before = page_faults()
        times.append(seconds(training))
        faults.append(page_faults() - before)
    took, found = profiled(training, memory=False)
    parts = operations(found.events(), solver, Dimensions.of(training, size))
    _, memory = profiled(training, memory=True)
    events = [event for event in memory.profiler.kineto_results.events() if event.name() == "[memory]"]
    allocated = [event.nbytes() for event in events if event.nbytes() > 0]
    counter = Bytes()
    with phases(counter.enter), counter:
        training()
    return [
        *_part_rows(parts, took, counter.moved),
        {"what": "outside any operation", "ms": 1e3 * (took - _total(parts)), "share": 1 - _total(parts) / took},
        {"what": "the epoch under the profiler", "ms": 1e3 * took, "share": 1.0},
        {"what": "the epoch alone, median", "calls": given.rounds, "ms": 1e3 * statistics.median(times)},
        {"what": "allocations", "calls": len(allocated), "rate": f"{sum(allocated) / 2**20:.1f} MiB in all"},
        {"what": "page faults", "calls": int(statistics.median(faults))},
    ]


def _total(parts: dict[tuple[str, str], Part]) -> float:
    return sum(part.seconds for part in parts.values())


def _part_rows(parts: dict[tuple[str, str], Part], took: float, moved: dict[str, int]) -> list[Row]:
    rows: list[Row] = []
    order = {phase: index for index, phase in enumerate((*LETTERS, ""))}
    for (phase, what), part in sorted(parts.items(), key=lambda item: (order[item[0][0]], -item[1].seconds)):
        rate = f"{part.flops / part.seconds / 1e9:.1f} Gflop/s" if part.flops else ""
        if what == "element-wise":
            amount = moved[phase]
            rate = f"{amount / 1e6:,.0f} MB, {amount / part.seconds / 1e9:.1f} GB/s"
        rows.append(
            {"phase": phase or "between", "what": what, "calls": part.calls, "ms": 1e3 * part.seconds}
            | {"share": part.seconds / took, "rate": rate}
        )
    return rows


def main() -> None:
    parser = make_parser(__doc__, rounds=5)
    parser.add_argument("--size", type=Size.parse, default=Size(10_000, 9, 500), help="default 10000x9x500")
    parser.add_argument("--solver", default="exact")
    parser.add_argument("--out", type=Path, help="write the table to this file as well")
    given = parse(parser)
    title = f"profile: an epoch of {given.size}, {given.solver}"
    rows = measure(given.size, given.solver, given)
    report(given, title, COLUMNS, rows)
    if given.out is not None:
        given.out.write_text(f"## {title}\n\n{machine()}\n\n{table(COLUMNS, rows)}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
