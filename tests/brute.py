"""Brute-force minimisers: slow, plain, and independent of what they check."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Objective = Callable[[Tensor], Tensor]


def minimise_1d(objective: Objective, low: Tensor, high: Tensor, points: int = 2001, rounds: int = 5) -> Tensor:
    """The least value of many one-dimensional problems at once, each on its own interval, by ever finer grids.

    `objective` takes (problems, points) and returns values of that shape; `low` and `high` have one entry a problem.
    """
    fraction = torch.linspace(0, 1, points, dtype=torch.float64)
    low, high = low.double(), high.double()
    best = torch.full_like(low, torch.inf)
    for _ in range(rounds):
        grid = low[:, None] + (high - low)[:, None] * fraction
        values, where = objective(grid).min(dim=1)
        best = torch.minimum(best, values)
        step = (high - low) / (points - 1)
        centre = grid.gather(1, where[:, None])[:, 0]
        low, high = centre - 2 * step, centre + 2 * step
    return best


def minimise_rows(objective: Objective, start: Tensor, steps: int = 400) -> Tensor:
    """The least value a row of a smooth convex problem, by L-BFGS in float64 with autograd."""
    z = start.double().clone().requires_grad_()
    optimiser = torch.optim.LBFGS(
        [z], max_iter=steps, tolerance_grad=1e-13, tolerance_change=0, history_size=50, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        optimiser.zero_grad()
        total = objective(z).sum()
        total.backward()
        return total

    optimiser.step(closure)
    return objective(z.detach())
