"""How samples are walked: in tiles that stay in cache, grouped into chunks whose sums form one fixed tree.

    samples   |-------------------------------------------------------|
    chunks    |------------|-------------|-------------|--------------|     1, 2, 4, 8 or 16, by the sample count alone
    tiles     |----|----|--|----|----|---|----|----|---|----|----|----|     at most `tile_rows` samples each

A sum over samples (a Gram matrix, a residual) is added tile by tile within a chunk, and chunk by chunk in a binary
tree. A shard that holds whole subtrees can therefore compute its part alone and arrive at the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from pdadmm.math.threads import FEW_ROWS, one_thread

MAX_CHUNKS = 16
MIN_CHUNK_ROWS = 256
ALIGNED_ROWS = 16  # so many rows of any width and type fill whole cache lines
TILE_BYTES = 2 * 2**20  # a handful of such tiles fits into a shared cache


def default_tile_rows(max_width: int) -> int:
    """A power of two, so that a float32 tile of the widest layer takes about TILE_BYTES."""
    rows = max(1, TILE_BYTES // (4 * max_width))
    return min(8192, max(128, 1 << (rows.bit_length() - 1)))


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

    @property
    def num_chunks(self) -> int:
        """A power of two that depends on the number of samples alone, unless there are more shards than that."""
        fitting = max(1, self.num_samples // MIN_CHUNK_ROWS)
        by_samples = min(MAX_CHUNKS, 1 << (fitting.bit_length() - 1))
        return max(by_samples, 1 << (self.num_shards - 1).bit_length())

    @property
    def keeps_bits(self) -> bool:
        """True where sums over the shards have the bits of one shard."""
        alone = Tiling(self.num_samples, self.tile_rows)
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

    def chunks(self) -> Iterator[list[slice]]:
        """The tiles of each of the shard's chunks in turn, counted from the shard's first row."""
        for start, stop in self.chunk_bounds():
            yield [slice(row, min(row + self.tile_rows, stop)) for row in range(start, stop, self.tile_rows)]

    def chunk_bounds(self) -> Iterator[tuple[int, int]]:
        """First and last row of each of the shard's chunks, counted from the shard's first row."""
        offset = self.rows.start
        for index in self._own_chunks():
            yield self._boundary(index) - offset, self._boundary(index + 1) - offset

    def tiles(self) -> Iterator[slice]:
        """All of the shard's tiles, in order."""
        for chunk in self.chunks():
            yield from chunk

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


Reduce = Callable[[Tensor], Tensor]
"""Adds a shard's total to those of the others, in the order of the tree."""


class TreeSum:
    """A sum over tiles in the fixed order of the module's drawing.

    Finished chunks wait on a stack, each with the number of chunks in it; two of equal size merge. Buffers are kept
    and used again, so a sum allocates only the first time.
    """

    def __init__(
        self, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device, reduce: Reduce | None = None
    ) -> None:
        self._shape, self._dtype, self._device, self._reduce = shape, dtype, device, reduce
        self._free: list[Tensor] = []
        self._stack: list[tuple[int, Tensor]] = []
        self._open: Tensor | None = None

    def add(self, term: Tensor) -> None:
        """Add a tile's term to the open chunk."""
        if self._open is None:
            self._open = self._buffer().copy_(term)
        else:
            self._open.add_(term)

    def add_product(self, left: Tensor, right: Tensor) -> None:
        """Add left @ right, inside the product itself."""
        with one_thread() if len(left) < FEW_ROWS else nullcontext():
            if self._open is None:
                self._open = torch.mm(left, right, out=self._buffer())
            else:
                self._open.addmm_(left, right)

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
        return torch.empty(self._shape, dtype=self._dtype, device=self._device)


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
        self._reduce = reduce
        self.dtype = dtype
        self.device = device
        self._slots: dict[int, Tensor] = {}
        self._slot_size = tiling.largest_tile * max_width
        self._scratch = empty(tiling.local_samples * scratch_width, dtype=dtype, device=device)
        self._sums: dict[tuple[str, tuple[int, ...]], TreeSum] = {}

    def tile(self, slot: int, rows: int, cols: int) -> Tensor:
        """Tile buffer number `slot`, shaped; its content lasts until the slot is asked for again."""
        if slot not in self._slots:
            self._slots[slot] = torch.empty(self._slot_size, dtype=self.dtype, device=self.device)
        return self._slots[slot][: rows * cols].view(rows, cols)

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


def sum_of_squares(rows: Tensor) -> Tensor:
    """|rows|² as a float64 scalar: per row in its own type, then over rows in float64.

    Row norms and a short sum do not depend on the number of threads, a sum over everything would.
    """
    norms: Tensor = torch.linalg.vector_norm(rows, dim=1)
    return norms.double().square_().sum()


def sum_of_rows(values: Tensor) -> Tensor:
    """The sum of one number a row, as a float64 scalar."""
    return values.double().sum()
