"""Bits that do not depend on the number of threads.

Products of the sizes we use, row norms and element-wise work give the same bits on any number of threads; Cholesky
factorisations with their inverses and solves, products with few rows, and sums over a whole array do not. Those run
on one thread always, so that a network is the same whether a worker has one core or sixty-four.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

FEW_ROWS = 64  # products whose result has fewer rows are split by threads along the sum


@contextmanager
def one_thread() -> Iterator[None]:
    """Run the body on one thread."""
    before = torch.get_num_threads()
    if before == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
