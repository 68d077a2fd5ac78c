"""How samples are walked: in tiles that stay in cache, grouped into chunks whose sums form one fixed tree.

    samples   |-------------------------------------------------------|
    chunks    |------------|-------------|-------------|--------------|     1, 2, 4, 8 or 16, by the shape alone
    tiles     |----|----|--|----|----|---|----|----|---|----|----|----|     at most `tile_rows` samples each

Steps that go row by row go tile by tile. A sum over samples (a Gram matrix, a residual) is taken of a whole chunk, and
chunk by chunk in a binary tree: so its bits depend on the chunks and not on the tiles, which are as large as this
machine's cache likes them. A shard that holds whole subtrees can compute its part alone and arrive at the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice, pairwise

import torch
from torch import Tensor

from pdadmm.machine import last_level_cache
from pdadmm.math.threads import threads_for

MAX_CHUNKS = 16
MIN_CHUNK_ROWS = 256
ALIGNED_ROWS = 16  # so many rows of any width and type fill whole cache lines
TILES_IN_CACHE = 8  # a phase has half a dozen tiles in hand
FEWEST_ROWS, MOST_ROWS = 256, 4096  # of a tile
SUM_ROWS = 1024  # samples of a partial sum where that of a whole chunk would need an array
PRODUCT_ROWS = 4096  # samples that one product sums over: with many more, threads would divide the sum
SHORT = 2048  # values of a row that are summed at once
MOST_KINDS = 9  # of values that are kept for each row of a chunk
PANELS = 8  # column panels of a symmetric product, at most
MIN_PANEL = 125  # columns


def default_tile_rows(max_width: int) -> int:
    """A power of two, so that a float32 tile of the widest layer takes its part of the cache of this machine."""
    rows = max(1, last_level_cache() // TILES_IN_CACHE // (4 * max_width))
    return min(MOST_ROWS, max(FEWEST_ROWS, 1 << (rows.bit_length() - 1)))


@dataclass(frozen=True)
class Chunk:
    """Rows whose sums are taken together, and the tiles they are walked in."""

    rows: slice
    tiles: list[slice]


@dataclass(frozen=True)
class Tiling:
    """The chunks of `num_samples` samples and the tiles of each chunk, as slices of the rows a shard holds.

    A shard holds whole chunks. Where the number of shards is a power of two not above the number of chunks, its
    chunks are a subtree, so that sums have the same bits as on one shard.
    """

    num_samples: int
    tile_rows: int
    shard: int = 0
    num_shards: int = 1
    width: int = 1
    """The widest hidden layer's: with chunks of fewer rows than columns, adding up n × n sums would cost too much."""

    @property
    def num_chunks(self) -> int:
        """A power of two that depends on the problem alone, unless there are more shards than that."""
        fitting = max(1, self.num_samples // max(MIN_CHUNK_ROWS, 2 * self.width))
        by_samples = min(MAX_CHUNKS, 1 << (fitting.bit_length() - 1))
        return max(by_samples, 1 << (self.num_shards - 1).bit_length())

    @property
    def keeps_bits(self) -> bool:
        """True where sums over the shards have the bits of one shard."""
        alone = Tiling(self.num_samples, self.tile_rows, width=self.width)
        return self.num_shards.bit_count() == 1 and self.num_shards <= alone.num_chunks

    @property
    def rows(self) -> slice:
        """The shard's own rows among all samples."""
        own = self._own_chunks()
        return slice(self._boundary(own.start), self._boundary(own.stop))

    @property
    def local_samples(self) -> int:
        """How many samples the shard holds."""
        return int(self.rows.stop - self.rows.start)

    def chunks(self, tile_rows: int | None = None) -> Iterator[Chunk]:
        """Each of the shard's chunks in turn, counted from the shard's first row, in tiles of this size."""
        size = tile_rows or self.tile_rows
        for start, stop in self.chunk_bounds():
            parts = split(stop - start, -(-(stop - start) // size))
            yield Chunk(slice(start, stop), [slice(start + part.start, start + part.stop) for part in parts])

    def chunk_bounds(self) -> Iterator[tuple[int, int]]:
        """First and last row of each of the shard's chunks, counted from the shard's first row."""
        offset = self.rows.start
        for index in self._own_chunks():
            yield self._boundary(index) - offset, self._boundary(index + 1) - offset

    def tiles(self) -> Iterator[slice]:
        """All of the shard's tiles, in order."""
        for chunk in self.chunks():
            yield from chunk.tiles

    def walk(self, *sums: TreeSum) -> Iterator[slice]:
        """The shard's samples in tiles of partial sums; after the last of a chunk, these sums close it."""
        for chunk in self.chunks(SUM_ROWS):
            yield from chunk.tiles
            for one in sums:
                one.close_chunk()

    @property
    def largest_chunk(self) -> int:
        """Rows of the largest chunk."""
        return max(stop - start for start, stop in self.chunk_bounds())

    @property
    def largest_tile(self) -> int:
        """Rows of the largest tile."""
        return max(int(tile.stop - tile.start) for tile in self.tiles())

    def _own_chunks(self) -> range:
        chunks = self.num_chunks
        return range(self.shard * chunks // self.num_shards, (self.shard + 1) * chunks // self.num_shards)

    def _boundary(self, chunk: int) -> int:
        """Where a chunk begins, in whole units of rows: products may depend on how their rows lie in memory."""
        row = chunk * self.num_samples // self.num_chunks
        whole = chunk == self.num_chunks or self.num_samples < 2 * ALIGNED_ROWS * self.num_chunks
        return row if whole else row - row % ALIGNED_ROWS


Window = tuple[int, int]
"""Some of the chunks, by their numbers: from the first up to the second."""

Reduce = Callable[[Tensor], Tensor]
"""Adds a shard's total to those of the others, in the order of the tree."""


class TreeSum:
    """A sum over chunks in the fixed order of the module's drawing.

    Finished chunks wait on a stack, each with the number of chunks in it; two of equal size merge. Buffers are kept
    and used again, so a sum allocates only the first time.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        dtype: torch.dtype,
        device: torch.device,
        reduce: Reduce | None = None,
    ) -> None:
        self._shape, self._dtype, self._device, self._reduce = shape, dtype, device, reduce
        self._free: list[Tensor] = []
        self._stack: list[tuple[int, Tensor]] = []
        self._open: Tensor | None = None

    def add(self, term: Tensor) -> None:
        """Add a term to the open chunk."""
        if self._open is None:
            self._open = self._buffer().copy_(term)
        else:
            self._open.add_(term)

    def add_product(self, left: Tensor, right: Tensor) -> None:
        """Add leftᵀ right, inside the product itself; their rows are samples."""
        with threads_for(left.shape[1]):
            for left_part, right_part in zip(_parts(left), _parts(right), strict=True):
                is_first, self._open = self._open is None, self._buffer() if self._open is None else self._open
                self._open.addmm_(left_part.t(), right_part, beta=0 if is_first else 1)

    def add_gram(self, rows: Tensor) -> None:
        """Add rowsᵀ rows, of which only the lower half is computed; above it there may be anything finite."""
        for part in _parts(rows):
            is_first, self._open = self._open is None, self._buffer() if self._open is None else self._open
            for panel in panels(part.shape[1]):
                left, right = part[:, panel.start :], part[:, panel]
                self._open[panel.start :, panel].addmm_(left.t(), right, beta=0 if is_first else 1)

    def close_chunk(self) -> None:
        """The chunk is complete: merge it into the tree."""
        assert self._open is not None
        size, term = 1, self._open
        while self._stack and self._stack[-1][0] == size:
            _, left = self._stack.pop()
            self._free.append(term)
            size, term = 2 * size, left.add_(term)
        self._stack.append((size, term))
        self._open = None

    def take(self) -> Tensor:
        """The total over all shards, valid until the next sum is begun here; resets."""
        assert self._open is None
        _, total = self._stack.pop()
        while self._stack:  # only where the number of chunks is not a power of two
            _, left = self._stack.pop()
            self._free.append(total)
            total = left.add_(total)
        self._free.append(total)
        return total if self._reduce is None else self._reduce(total)

    def _buffer(self) -> Tensor:
        if self._free:
            return self._free.pop()
        return torch.zeros(self._shape, dtype=self._dtype, device=self._device)


def _parts(rows: Tensor) -> tuple[Tensor, ...]:
    return torch.tensor_split(rows, -(-len(rows) // PRODUCT_ROWS))


def panels(width: int) -> list[slice]:
    """The columns of a symmetric matrix in panels, each of which is computed from its diagonal down."""
    return split(width, max(1, min(PANELS, width // MIN_PANEL)))


def split(length: int, count: int) -> list[slice]:
    """0..length in so many parts of about equal size."""
    return [slice(start, stop) for start, stop in pairwise(length * part // count for part in range(count + 1))]


class Workspace:
    """The memory that the layers of one process share: tile buffers, sums, and one array-sized scratch."""

    def __init__(
        self,
        tiling: Tiling,
        max_width: int,
        scratch_width: int,
        dtype: torch.dtype,
        device: torch.device,
        reduce: Reduce | None = None,
        empty: Callable[..., Tensor] = torch.empty,
    ) -> None:
        self.tiling = tiling
        self.window: Window | None = None
        self._reduce = reduce
        self.dtype = dtype
        self.device = device
        self._slots: dict[int, Tensor] = {}
        self._slot_size = tiling.largest_tile * max_width
        self._exact = torch.empty(0, dtype=torch.float64, device=device)
        self._row_values = torch.empty(MOST_KINDS * tiling.largest_chunk, dtype=dtype, device=device)
        self._scratch = empty(tiling.local_samples * scratch_width, dtype=dtype, device=device)
        self._sums: dict[tuple[str, tuple[int, ...]], TreeSum] = {}

    def tile(self, slot: int, rows: int, cols: int) -> Tensor:
        """Tile buffer number `slot`, shaped; its content lasts until the slot is asked for again."""
        if slot not in self._slots or len(self._slots[slot]) < rows * cols:
            size = max(self._slot_size, rows * cols)
            self._slots[slot] = torch.empty(size, dtype=self.dtype, device=self.device)
        return self._slots[slot][: rows * cols].view(rows, cols)

    def exact(self, rows: Tensor) -> Tensor:
        """A copy of these rows in float64, in a buffer that lasts until it is asked for again."""
        if len(self._exact) < rows.numel():
            self._exact = torch.empty(rows.numel(), dtype=torch.float64, device=self.device)
        return self._exact[: rows.numel()].view(rows.shape).copy_(rows)

    def mean(self, x: Tensor) -> Tensor:
        """The mean of all samples' rows, exact to float64."""
        total = self.sum("mean", x.shape[1], dtype=torch.float64)
        for rows in self.tiling.walk(total):
            total.add(self.exact(x[rows]).sum(0))
        return total.take() / self.tiling.num_samples

    def chunks(self, tile_rows: int | None = None) -> Iterator[Chunk]:
        """The chunks to visit: all of the shard's, or those of the `window`."""
        return islice(self.tiling.chunks(tile_rows), *(self.window or (None,)))

    def row_values(self, kinds: int, rows: int) -> Tensor:
        """Room for a few kinds of values for each row of a chunk, zero at first; lasts until it is asked for again."""
        return self._row_values[: kinds * rows].view(kinds, rows).zero_()

    def scratch(self, *widths: int) -> tuple[Tensor, ...]:
        """The scratch array, divided into arrays of all samples with these widths."""
        samples, start, parts = self.tiling.local_samples, 0, []
        for width in widths:
            parts.append(self._scratch[start : start + samples * width].view(samples, width))
            start += samples * width
        return tuple(parts)

    def sum(self, name: str, *shape: int, dtype: torch.dtype | None = None) -> TreeSum:
        """The sum of this name and shape, kept from one use to the next."""
        key = (name, shape)
        if key not in self._sums:
            self._sums[key] = TreeSum(shape, dtype or self.dtype, self.device, self._reduce)
        return self._sums[key]


def within(rows: slice, chunk: Chunk) -> slice:
    """Where these rows are in their chunk."""
    return slice(rows.start - chunk.rows.start, rows.stop - chunk.rows.start)


def row_norms(rows: Tensor, out: Tensor) -> None:
    """|row| of each row. Row by row, so it depends neither on the number of threads nor on the tiles."""
    torch.linalg.vector_norm(rows, dim=1, out=out)


def sum_of_rows(values: Tensor, squared: bool = False) -> Tensor:
    """The sum over the last dimension, of values of rows or of their squares, in float64."""
    exact = values.double()
    exact = exact.square() if squared else exact
    parts = [part.sum(-1) for part in exact.split(SHORT, dim=-1)]  # a long sum would depend on the number of threads
    return parts[0] if len(parts) == 1 else torch.stack(parts).sum(0)


def sum_of_squares(rows: Tensor) -> Tensor:
    """|rows|² as a float64 scalar."""
    norms: Tensor = torch.linalg.vector_norm(rows, dim=1)
    return sum_of_rows(norms, squared=True)
