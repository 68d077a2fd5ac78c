"""Bits that do not depend on the number of threads.

Products, row norms and element-wise work give the same bits on one thread and on two; LAPACK's factorisations, products
with few rows, and sums over a whole array do not, so those run on one thread always. On four threads and more the
library also divides the sum of some narrow products (results of 70, 100 or 200 columns, not of 64, 125, 256 or 500):
there the last bits of a run may depend on `--threads`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch

FEW_ROWS = 64  # products whose result has fewer rows are split by threads along the sum


def threads_for(rows: int) -> AbstractContextManager[None]:
    """Run the body, products with so many rows, on one thread if they are few."""
    return with_threads(1) if rows < FEW_ROWS else nullcontext()


@contextmanager
def with_threads(count: int) -> Iterator[None]:
    """Run the body on so many threads."""
    before = torch.get_num_threads()
    if before == count:
        yield
        return
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
