"""Cholesky factors made of matrix products, for the n × n systems of the exact solver.

LAPACK's own factorisation gives other bits on another number of threads, and on one thread its solves would cost as
much as a tenth of an epoch of wide layers. Cut into blocks, all but the diagonal blocks is matrix products, which run
on every thread and give the same bits on any number of them:

    L = | L11          |      column by column: subtract what the columns before it contribute, factor the diagonal
        | L21 L22      |      block, multiply the rest by its inverse. The inverses are kept: solving with L is then
        | L31 L32 L33  |      matrix products as well.

Only the lower half of a matrix is ever read.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from pdadmm.math.threads import threads_for, with_threads
from pdadmm.math.tiles import split, sum_of_squares

BLOCK = 128  # rows of a diagonal block, which one thread factors; wide matrices get larger ones
GROUP = 4  # blocks of columns that are inverted together: fewer and larger products


def blocks(n: int) -> list[slice]:
    """0..n in parts of about equal size; none has few rows unless there is only one."""
    return split(n, -(-n // max(BLOCK, n // 10)))


class Factor:
    """L with L Lᵀ = `matrix`, which it overwrites; NaN where `matrix` is not positive definite.

    An error would leave the other workers waiting; NaN goes through them all, and the objective tells at the end.
    """

    def __init__(self, matrix: Tensor) -> None:
        self._L = matrix
        self._blocks = blocks(len(matrix))
        self._inverses: list[Tensor] = []  # of the diagonal blocks
        for block in self._blocks:
            column = matrix[block.start :, block]
            if block.start:
                column.addmm_(matrix[block.start :, : block.start], matrix[block, : block.start].t(), alpha=-1)
            inverse = self._factor_diagonal(matrix[block, block])
            self._inverses.append(inverse)
            below = matrix[block.stop :, block]
            if len(below):
                below.copy_(torch.mm(below, inverse.t()))

    @staticmethod
    def _factor_diagonal(diagonal: Tensor) -> Tensor:
        """Replace a diagonal block by its factor; returns the factor's inverse."""
        with with_threads(1):
            factor, info = torch.linalg.cholesky_ex(diagonal)
            if int(info):
                factor.fill_(math.nan)
            diagonal.copy_(factor)
            identity = torch.eye(len(factor), dtype=factor.dtype, device=factor.device)
            inverse: Tensor = torch.linalg.solve_triangular(factor, identity, upper=False)
        return inverse

    def solve(self, right: Tensor) -> Tensor:
        """X with X L Lᵀ = `right`, in its place."""
        L = self._L
        with threads_for(len(right)):
            for block, inverse in zip(self._blocks, self._inverses, strict=True):
                part = right[:, block]
                if block.start:
                    part.addmm_(right[:, : block.start], L[block, : block.start].t(), alpha=-1)
                part.copy_(torch.mm(part, inverse.t()))
            for block, inverse in zip(reversed(self._blocks), reversed(self._inverses), strict=True):
                part = right[:, block]
                if block.stop < len(L):
                    part.addmm_(right[:, block.stop :], L[block.stop :, block], alpha=-1)
                part.copy_(torch.mm(part, inverse))
        return right

    def inverse(self) -> Tensor:
        """The inverse of the matrix, both halves of it; L is lost."""
        M = self._L.tril_()
        for number, (block, inverse) in enumerate(zip(self._blocks, self._inverses, strict=True)):  # M = L⁻¹
            if number:
                product = torch.empty_like(M[block, : block.start])
                for first in range(0, number, GROUP):
                    # The columns of a group need no rows above it: M is lower triangular.
                    start, stop = self._blocks[first].start, self._blocks[min(first + GROUP, number) - 1].stop
                    left, right = M[block, start : block.start], M[start : block.start, start:stop]
                    torch.mm(left, right, out=product[:, start:stop])
                torch.mm(inverse, product, out=M[block, : block.start]).neg_()
            M[block, block] = inverse
        result = torch.empty_like(M)
        for block in self._blocks:  # MᵀM
            row = torch.mm(M[block.start :, block].t(), M[block.start :, : block.stop])
            result[block, : block.stop] = row
            result[: block.start, block] = row[:, : block.start].t()
        return result

    def length_squared(self, rows: Tensor) -> Tensor:
        """|rows L|² = <rows (L Lᵀ), rows>, as a float64 scalar."""
        total = torch.zeros((), dtype=torch.float64, device=rows.device)
        with threads_for(len(rows)):
            for block in self._blocks:
                total += sum_of_squares(torch.mm(rows[:, block.start :], self._L[block.start :, block]))
        return total
