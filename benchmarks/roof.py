"""The roofline of an epoch: how long its products would take at the best rate this machine shows at their shapes.

An epoch's arithmetic, per layer, N samples (the element-wise work counts nothing, so that the roof is never too low):

    linearized   (a - z) W,  g Wᵀ,  (a - z)ᵀ p,  p Gᵀ        2 N n_in n_out each
    exact        (z - b) W,  zᵀ p,  p Wᵀ                     2 N n_in n_out each
                 right · inverse,  pᵀ p                      2 N n_in² each
                 Wᵀ W, Cholesky, inverse of the p-system     2 n_out n_in² + n_in³/3 + 2 n_in³/3
                 Cholesky, solve of the W-system             n_in³/3 + 2 n_in² n_out
    first layer  (a - z)ᵀ p, p Gᵀ, or zᵀ p, p Wᵀ and the W-system; p is the data and its Gram matrix is computed once

A product is priced at the rate of its own shape, what does not grow with N at the rate of the hidden layers.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import pairwise

import torch
from benchmarks.common import Size

from pdadmm.engine.problem import Problem

Shape = tuple[int, int, int]
"""Samples, and the two widths of a product, the smaller first: p Wᵀ and (a - z) W are of one shape."""

TILES = (512, 1024, 2048)
_REPEATS = 2


def flops(size: Size, solver: str) -> Counter[Shape]:
    """The flops of an epoch, by the shape at whose rate they are priced."""
    N, work = size.samples, Counter[Shape]()
    for layer, (n_in, n_out) in enumerate(pairwise(size.widths)):
        own, square = _shape(N, n_in, n_out), _shape(N, n_in, n_in)
        product = 2 * N * n_in * n_out
        if solver != "exact":
            work[own] += (2 if layer == 0 else 4) * product
            continue
        work[own] += (2 if layer == 0 else 3) * product
        W_system = n_in**3 // 3 + 2 * n_in**2 * n_out
        p_system = 2 * n_out * n_in**2 + n_in**3
        if layer > 0:
            work[square] += 2 * 2 * N * n_in**2
        work[_shape(N, size.width, size.width)] += W_system + (p_system if layer > 0 else 0)
    return work


def _shape(N: int, one: int, two: int) -> Shape:
    return (N, min(one, two), max(one, two))


class Rates:
    """The best rates measured so far, in flops a second, shape by shape, in a problem's own type and on its device."""

    def __init__(self, shapes: Iterable[Shape], problem: Problem) -> None:
        self._candidates = {shape: _candidates(shape, problem.dtype, problem.device) for shape in set(shapes)}
        self.best: dict[Shape, float] = dict.fromkeys(self._candidates, 0.0)

    def measure(self) -> None:
        """Try every way to compute a product of each shape."""
        for (N, one, two), calls in self._candidates.items():
            for call in calls:
                for _ in range(_REPEATS):
                    began = time.perf_counter()
                    call()
                    if torch.cuda.is_available():
                        torch.cuda.synchronize()
                    rate = 2 * N * one * two / (time.perf_counter() - began)
                    self.best[N, one, two] = max(self.best[N, one, two], rate)

    def seconds(self, work: Counter[Shape]) -> float:
        """The time of this work at the roof."""
        return sum(count / self.best[shape] for shape, count in work.items())


def _candidates(shape: Shape, dtype: torch.dtype, device: torch.device) -> list[Callable[[], object]]:
    """p Wᵀ and e W, whole and in tiles of rows, and the sums over samples eᵀ p and, in a square layer, pᵀ p."""
    N, one, two = shape
    p, e, W = (torch.randn(*sides, dtype=dtype, device=device) for sides in ((N, one), (N, two), (two, one)))
    p_out, e_out, sum_out = torch.empty_like(p), torch.empty_like(e), torch.empty_like(W)

    def walk(left: torch.Tensor, right: torch.Tensor, out: torch.Tensor, rows: int) -> Callable[[], None]:
        def run() -> None:
            for start in range(0, N, rows):
                tile = slice(start, start + rows)
                torch.mm(left[tile], right, out=out[tile])

        return run

    calls: list[Callable[[], object]] = [
        walk(left, right, out, rows)
        for left, right, out in ((p, W.t(), e_out), (e, W, p_out))
        for rows in (N, *(rows for rows in TILES if rows < N))
    ]
    calls.append(lambda: torch.mm(e.t(), p, out=sum_out))
    if one == two:
        calls.append(lambda: torch.mm(p.t(), p, out=sum_out))
    return calls
