"""The output layer that a network is looked at with: fitted to what the hidden layers really give out.

In an iteration W_L is fitted to p_L; but p_L has moved towards the labels, as all auxiliaries have, and the network has
no p, only h, what its hidden layers compute from the data. So wherever the network is evaluated or saved, W_L and b_L
are fitted once more, to h:

    minimise  R(h Wᵀ + b; y) + c kappa/2 |W|²

with kappa the ridge that the run ends with. This is convex. A step minimises the parabola above it that a bound c of
R's curvature gives, with one factor of hᵀh + kappa for all steps; the steps are accelerated as Nesterov's, and begin
anew where they turn back. The iterates themselves, and their certificate, know nothing of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from pdadmm.engine.problem import Problem
from pdadmm.math.factor import Factor
from pdadmm.math.losses import Loss
from pdadmm.math.subproblems import linear
from pdadmm.math.tiles import Tiling, Workspace, default_tile_rows, sum_of_squares
from pdadmm.network import Network

STEPS = 20
LEAST_RIDGE = 1e-6  # h may not vary at all, or have fewer samples than columns
LEAST_CHANGE = 1e-7  # of W, relatively; a quadratic loss is at its minimum after one step


def fit_output(
    loss: Loss, problem: Problem, W: Tensor, b: Tensor, h: Tensor, ridge: float, ws: Workspace
) -> tuple[Tensor, Tensor]:
    """W and b fitted to h, this process's rows of what the last hidden layer gives out; they start from `W` and `b`.

    The bits do not depend on the shards, on all of which the result is the same.
    """
    assert problem.train.y is not None
    assert problem.sample_weight is not None
    regression = _Regression(loss, h, problem.train.y, problem.sample_weight, ridge, ws)
    V, c, pace = W, b, 1.0
    for _ in range(STEPS):
        W_new, b_new = regression.step(V, c)
        if not bool(W_new.isfinite().all()):
            return W, b  # the network overflows; nothing can be fitted to that
        change = W_new - W
        turns_back = float(((V - W_new) * change).sum()) > 0
        pace, before = (1.0, 1.0) if turns_back else ((1 + math.sqrt(1 + 4 * pace**2)) / 2, pace)
        momentum = (before - 1) / pace
        V, c = W_new.add(change, alpha=momentum), b_new.add(b_new - b, alpha=momentum)
        W, b = W_new, b_new
        if float(sum_of_squares(change)) <= LEAST_CHANGE**2 * float(sum_of_squares(W)):
            break
    return W, b


def with_fitted_output(network: Network, loss: Loss, problem: Problem, ridge: float) -> Network:
    """The same with its output layer fitted, where all samples are in this process."""
    assert problem.train.x is not None
    W, b, width = network.weights[-1], network.biases[-1], max(network.hidden)
    tiling = Tiling(problem.num_samples, default_tile_rows(width), width=width)
    h = problem.storage.empty(problem.num_samples, W.shape[1], dtype=problem.dtype, device=problem.device)
    for rows, found in network.features(problem.train.x):
        h[rows] = found
    ws = Workspace(tiling, width, 0, problem.dtype, problem.device)
    W, b = fit_output(loss, problem, W, b, h, ridge, ws)
    return Network([*network.weights[:-1], W], [*network.biases[:-1], b], network.activations)


@dataclass
class _Regression:
    """The problem, and what all steps share."""

    loss: Loss
    h: Tensor
    y: Tensor
    sample_weight: Tensor
    ridge: float
    ws: Workspace

    def __post_init__(self) -> None:
        self._total, self._mean = self._weighted_mean()
        gram = self._gram()
        scale = float(gram.diagonal().double().mean())
        self._kappa = max(self.ridge, LEAST_RIDGE) * (scale or 1.0)
        gram.diagonal().add_(self._kappa)
        self._factor = Factor(gram)

    def step(self, W: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        """The minimiser of the parabola that touches the risk at W and b."""
        ws, width, bound = self.ws, len(self._mean), self.loss.curvature
        cross, total = ws.sum("fit cross", len(b), width), ws.sum("fit slope", len(b))
        for rows in ws.tiling.walk(cross, total):
            a = linear(self.h[rows], W, b, ws.tile(0, rows.stop - rows.start, len(b)))
            slope = self.loss.gradient(a, self.y[rows], self.sample_weight[rows])
            cross.add_product(slope, self.h[rows])
            total.add(slope.sum(0))
        slope_sum = total.take().clone()
        gradient = cross.take().addr(slope_sum, self._mean, alpha=-1)  # of centred h
        D = self._factor.solve(gradient.div_(bound).add_(W, alpha=self._kappa))
        return W - D, b - slope_sum / (bound * self._total) + torch.mv(D, self._mean)

    def _weighted_mean(self) -> tuple[float, Tensor]:
        ws = self.ws
        weights, sums = ws.sum("fit weight", dtype=torch.float64), ws.sum("fit mean", self.h.shape[1])
        for rows in ws.tiling.walk(weights, sums):
            weight = self.sample_weight[rows]
            weights.add(weight.double().sum())
            sums.add((self.h[rows] * weight[:, None]).sum(0))
        total = float(weights.take())
        return total, sums.take() / total

    def _gram(self) -> Tensor:
        """Of the centred rows of h, each times the square root of its sample's weight; its lower half."""
        ws, width = self.ws, self.h.shape[1]
        gram = ws.sum("fit gram", width, width)
        for rows in ws.tiling.walk(gram):
            centred = torch.sub(self.h[rows], self._mean, out=ws.tile(0, rows.stop - rows.start, width))
            gram.add_gram(centred.mul_(self.sample_weight[rows].sqrt()[:, None]))
        return gram.take().clone()
