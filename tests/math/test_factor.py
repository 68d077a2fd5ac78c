"""Factorisations made of products, against LAPACK's."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from pdadmm.math.factor import Factor, blocks
from pdadmm.math.threads import FEW_ROWS

SIZES = (1, 30, 128, 129, 300)


def positive_definite(n: int, dtype: torch.dtype = torch.float64) -> Tensor:
    W = torch.randn(n, n, generator=torch.Generator().manual_seed(n), dtype=dtype)
    return W.t() @ W / n + 0.1 * torch.eye(n, dtype=dtype)


def lower_half(matrix: Tensor) -> Tensor:
    """With something else above the diagonal, which must not be read."""
    return matrix.tril() + torch.full_like(matrix, 7.0).triu(1)


@pytest.mark.parametrize("n", SIZES)
def test_solve_inverse_and_length_are_those_of_the_matrix(n: int) -> None:
    matrix, right = positive_definite(n), torch.randn(5, n, dtype=torch.float64)
    factor = Factor(lower_half(matrix))
    torch.testing.assert_close(factor.solve(right.clone()) @ matrix, right)
    torch.testing.assert_close(factor.length_squared(right), ((right @ matrix) * right).sum())
    inverse = factor.inverse()
    torch.testing.assert_close(inverse @ matrix, torch.eye(n, dtype=torch.float64))
    torch.testing.assert_close(inverse, inverse.t())


@pytest.mark.parametrize("spoiled", [-5.0, float("nan")])
def test_what_has_no_factor_gives_nan_and_no_error(spoiled: float) -> None:
    matrix = positive_definite(200)
    matrix[150, 150] = spoiled
    assert bool(Factor(matrix).solve(torch.ones(3, 200, dtype=torch.float64)).isnan().any())


@pytest.mark.parametrize("n", [130, 520])
@pytest.mark.parametrize("rows", [10, 200])
def test_bits_do_not_depend_on_the_number_of_threads(n: int, rows: int) -> None:
    before, found = torch.get_num_threads(), []
    right = torch.randn(rows, n, generator=torch.Generator().manual_seed(0))
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            factor = Factor(positive_definite(n, torch.float32))
            found.append([factor.solve(right.clone()), factor.length_squared(right), factor.inverse()])
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(one, two) for one, two in zip(*found, strict=True))


@pytest.mark.parametrize("n", [1, 63, 127, 128, 129, 500, 1000, 2400, 5001])
def test_blocks_cover_the_matrix_and_none_has_few_rows(n: int) -> None:
    found = blocks(n)
    assert found[0].start == 0
    assert found[-1].stop == n
    assert all(left.stop == right.start for left, right in itertools.pairwise(found))
    assert len(found) == 1 or min(part.stop - part.start for part in found) >= FEW_ROWS
