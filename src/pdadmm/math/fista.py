"""FISTA for a smooth, strongly convex function, row by row: the paper's solver for z_L.

The rows of z are independent problems that share their constants, so one momentum serves all and the stopping rule
looks at the worst row. With Lipschitz constant L and modulus m of strong convexity the momentum is the constant
(sqrt(L) - sqrt(m)) / (sqrt(L) + sqrt(m)) (Beck and Teboulle's scheme for strongly convex problems).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor


def fista(
    gradient: Callable[[Tensor], Tensor],
    start: Tensor,
    goal: Tensor,
    lipschitz: Tensor,
    strong: float,
    max_steps: int,
) -> tuple[Tensor, int]:
    """Minimise from `start`, one problem a row, until no row's gradient is longer than its `goal`.

    `lipschitz` has one constant a row, shape (rows, 1). Returns the point and the number of steps taken.
    """
    largest = float(lipschitz.max())
    momentum = (math.sqrt(largest) - math.sqrt(strong)) / (math.sqrt(largest) + math.sqrt(strong))
    z, ahead = start, start
    for step in range(max_steps):
        slope = gradient(ahead)
        if bool((torch.linalg.vector_norm(slope, dim=1) <= goal).all()):
            return ahead, step
        z_new = ahead - slope / lipschitz
        ahead = z_new + momentum * (z_new - z)
        z = z_new
    return z, max_steps
