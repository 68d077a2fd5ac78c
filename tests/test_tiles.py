"""Tiles cover the samples once, and sums do not depend on how the tree is cut."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pdadmm.math.tiles import Tiling, TreeSum, Workspace, default_tile_rows


@given(samples=st.integers(1, 20_000), rows=st.integers(1, 3000))
def test_tiles_cover_every_sample_once(samples: int, rows: int) -> None:
    tiles = list(Tiling(samples, rows).tiles())
    assert tiles[0].start == 0
    assert tiles[-1].stop == samples
    assert all(left.stop == right.start for left, right in pairwise(tiles))
    assert all(0 < tile.stop - tile.start <= rows for tile in tiles)


@pytest.mark.parametrize(("samples", "chunks"), [(1, 1), (511, 1), (512, 2), (1437, 4), (4096, 16), (60_000, 16)])
def test_the_number_of_chunks_depends_on_samples_alone(samples: int, chunks: int) -> None:
    assert {Tiling(samples, rows).num_chunks for rows in (1, 64, 5000)} == {chunks}


def test_half_the_chunks_are_a_subtree() -> None:
    """A shard with the first half of the chunks and one with the second give the bits of the whole."""
    terms = torch.randn(16, 50, generator=torch.Generator().manual_seed(0))

    def total(part: torch.Tensor) -> torch.Tensor:
        tree = TreeSum((50,), torch.float32, torch.device("cpu"))
        for term in part:
            tree.add(term)
            tree.close_chunk()
        return tree.take().clone()

    for shards in (2, 4, 8):
        parts = torch.stack([total(part) for part in terms.chunk(shards)])
        assert torch.equal(total(parts), total(terms))


def test_sums_reuse_their_buffers() -> None:
    tree = TreeSum((3,), torch.float64, torch.device("cpu"))
    seen = set()
    for _ in range(5):
        for _ in range(8):
            tree.add(torch.ones(3))
            tree.add(torch.ones(3))
            tree.close_chunk()
        seen.add(tree.take().data_ptr())
    assert len(tree._free) <= 5
    assert len(seen) <= 2


def test_workspace_tiles_are_the_same_memory_every_time() -> None:
    ws = Workspace(Tiling(100, 40), 8, 5, torch.float32, torch.device("cpu"))
    assert ws.tile(0, 40, 8).data_ptr() == ws.tile(0, 10, 3).data_ptr()
    assert ws.tile(0, 40, 8).data_ptr() != ws.tile(1, 40, 8).data_ptr()
    left, right = ws.scratch(2, 3)
    assert left.shape == (100, 2)
    assert right.shape == (100, 3)
    right.fill_(7)
    left.fill_(1)
    assert float(right.min()) == 7


@given(width=st.integers(1, 100_000))
def test_default_tiles_are_powers_of_two_within_bounds(width: int) -> None:
    rows = default_tile_rows(width)
    assert 128 <= rows <= 8192
    assert rows & (rows - 1) == 0


@pytest.mark.parametrize("width", [1, 100, 260])
def test_half_a_gram_matrix_is_that_of_the_whole(width: int) -> None:
    rows = torch.randn(5000, width, dtype=torch.float64)
    total = TreeSum((width, width), torch.float64, torch.device("cpu"))
    for part in rows.split(2500):
        total.add_gram(part)
        total.close_chunk()
    torch.testing.assert_close(total.take().tril(), (rows.t() @ rows).tril())
