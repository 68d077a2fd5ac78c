"""How the large products of an iteration are computed: those with a row for each sample.

| `products`  | arithmetic                                                                                   |
|-------------|----------------------------------------------------------------------------------------------|
| `standard`  | in the run's own type, by the library that torch takes for it                                 |
| `onednn`    | float32 by oneDNN; on processors with matrix units (AMX) it may round factors to bfloat16     |
| `bfloat16`  | factors and results rounded to bfloat16, sums in float32; variables stay as they are          |

The small systems of the exact solver are always solved in the run's own type.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


class Products:
    """Products in the run's own type."""

    def add_mm(self, target: Tensor, left: Tensor, right: Tensor, beta: float = 1, alpha: float = 1) -> Tensor:
        """target = beta target + alpha left right, in its place."""
        return target.addmm_(left, right, beta=beta, alpha=alpha)

    def mm(self, left: Tensor, right: Tensor, out: Tensor) -> Tensor:
        """left right."""
        return torch.mm(left, right, out=out)

    def linear(self, rows: Tensor, W: Tensor, b: Tensor, out: Tensor) -> Tensor:
        """rows Wᵀ + b."""
        return torch.addmm(b, rows, W.t(), out=out)


class BFloat16(Products):
    """Products of rounded factors: twice the rate or more where the processor has bfloat16."""

    def add_mm(self, target: Tensor, left: Tensor, right: Tensor, beta: float = 1, alpha: float = 1) -> Tensor:
        """The same, rounded."""
        if beta == 0:
            return target.copy_(_rounded(left, right)).mul_(alpha)
        return target.mul_(beta).add_(_rounded(left, right), alpha=alpha)

    def mm(self, left: Tensor, right: Tensor, out: Tensor) -> Tensor:
        """The same, rounded."""
        return out.copy_(_rounded(left, right))

    def linear(self, rows: Tensor, W: Tensor, b: Tensor, out: Tensor) -> Tensor:
        """The same, rounded."""
        return torch.add(_rounded(rows, W.t()), b, out=out)


class OneDNN(Products):
    """Products by oneDNN, which torch takes for float32 only when it is allowed a lower precision."""

    def add_mm(self, target: Tensor, left: Tensor, right: Tensor, beta: float = 1, alpha: float = 1) -> Tensor:
        """The same."""
        with _lower_precision_allowed():
            return super().add_mm(target, left, right, beta, alpha)

    def mm(self, left: Tensor, right: Tensor, out: Tensor) -> Tensor:
        """The same."""
        with _lower_precision_allowed():
            return super().mm(left, right, out)

    def linear(self, rows: Tensor, W: Tensor, b: Tensor, out: Tensor) -> Tensor:
        """The same."""
        with _lower_precision_allowed():
            return super().linear(rows, W, b, out)


STANDARD = Products()
_KINDS = {"standard": Products, "onednn": OneDNN, "bfloat16": BFloat16}


def get_products(name: str) -> Products:
    """By the name that the configuration has for it."""
    return _KINDS[name]()


@contextmanager
def _lower_precision_allowed() -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _rounded(left: Tensor, right: Tensor) -> Tensor:
    return torch.mm(left.to(torch.bfloat16), right.to(torch.bfloat16))
