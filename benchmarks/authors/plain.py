"""Algorithm 1 of the paper in plain eager PyTorch, the way its authors wrote it.

Whole arrays, a fresh one for every result; u is stored; tau and theta are searched for, from 10 upward by doubling,
and every trial evaluates phi at the new point and its quadratic bound, which takes phi at the old one. Products of
samples with weights are counted as they are made:

    p   a, (a - z) W, and two a trial        b   a
    W   a, (a - z)ᵀ p, and two a trial       z   a

It is kinder than the authors' program, which computes some of these products more than once. The z- and z_L-steps give
what this package's give: ReLU's sides are compared on the whole subproblem, and z_L comes from the loss's own prox.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from pdadmm.config import Config
from pdadmm.engine.core import Engine
from pdadmm.engine.problem import Problem
from pdadmm.math.losses import get_loss


@dataclass
class Plain:
    """All variables, and one iteration on them."""

    config: Config
    problem: Problem
    W: list[Tensor]
    b: list[Tensor]
    p: list[Tensor]
    z: list[Tensor]
    q: list[Tensor]
    u: list[Tensor]
    tau: dict[int, float] = field(default_factory=dict)
    theta: dict[int, float] = field(default_factory=dict)
    products: int = 0

    @classmethod
    def of(cls, engine: Engine, config: Config, problem: Problem) -> Plain:
        """A copy of an engine's present point; u = nu (q - f(z)) there."""
        states = [block.state for block in engine.blocks]
        q = [s.q.clone() for s in states if s.q is not None]
        W, b, p, z = ([getattr(s, name).clone() for s in states] for name in ("W", "b", "p", "z"))
        assert config.nu is not None
        u = [config.nu * (one - torch.relu(z[layer])) for layer, one in enumerate(q)]
        return cls(config, problem, W, b, p, z, q, u)

    def __call__(self) -> None:
        """One iteration."""
        nu, rho = self.config.nu, self.config.rho
        assert nu is not None
        assert rho is not None
        last = len(self.W) - 1
        for layer in range(1, last + 1):
            self._p_step(layer, nu, rho)
        for layer in range(last + 1):
            self._W_step(layer, nu)
        for layer in range(last + 1):
            self.b[layer] = self.b[layer] - (self._a(layer) - self.z[layer]).mean(0)
        for layer in range(last + 1):
            a = self._a(layer)
            self.z[layer] = self._relu_step(layer, a) if layer < last else self._output_step(a, nu)
        for layer in range(last):
            p_next, u, f = self.p[layer + 1], self.u[layer], torch.relu(self.z[layer])
            self.q[layer] = (rho * p_next + u + nu * f) / (rho + nu)
            self.u[layer] = u + rho * (p_next - self.q[layer])

    def _mm(self, left: Tensor, right: Tensor) -> Tensor:
        self.products += 1
        return left @ right

    def _a(self, layer: int) -> Tensor:
        return self._mm(self.p[layer], self.W[layer].T) + self.b[layer]

    def _p_step(self, layer: int, nu: float, rho: float) -> None:
        """phi(p) = nu/2 |z - p Wᵀ - b|² + <u, p - q> + rho/2 |p - q|²."""
        W, b, z, p = self.W[layer], self.b[layer], self.z[layer], self.p[layer]
        q, u = self.q[layer - 1], self.u[layer - 1]

        def phi(p: Tensor) -> Tensor:
            r = z - self._mm(p, W.T) - b
            return nu / 2 * _total(r * r) + _total(u * (p - q)) + rho / 2 * _total((p - q) * (p - q))

        g = nu * self._mm(self._a(layer) - z, W) + u + rho * (p - q)
        tau = 10.0
        p_new = p - g / tau
        while phi(p_new) > phi(p) + _total(g * (p_new - p)) + tau / 2 * _total((p_new - p) * (p_new - p)):
            tau *= 2
            p_new = p - g / tau
        self.p[layer], self.tau[layer] = p_new, tau

    def _W_step(self, layer: int, nu: float) -> None:
        """phi(W) = nu/2 |z - p Wᵀ - b|²."""
        W, b, z, p = self.W[layer], self.b[layer], self.z[layer], self.p[layer]

        def phi(W: Tensor) -> Tensor:
            r = z - self._mm(p, W.T) - b
            return nu / 2 * _total(r * r)

        G = nu * self._mm((self._a(layer) - z).T, p)
        theta = 10.0
        W_new = W - G / theta
        while phi(W_new) > phi(W) + _total(G * (W_new - W)) + theta / 2 * _total((W_new - W) * (W_new - W)):
            theta *= 2
            W_new = W - G / theta
        self.W[layer], self.theta[layer] = W_new, theta

    def _relu_step(self, layer: int, a: Tensor) -> Tensor:
        """The better of the minimisers of |z - a|² + |q - max(z, 0)|² + |z - z_old|² on either side."""
        q, z_old = self.q[layer], self.z[layer]
        sides = torch.clamp((a + z_old) / 2, max=0), torch.clamp((a + z_old + q) / 3, min=0)
        below, above = ((z - a) ** 2 + (q - torch.relu(z)) ** 2 + (z - z_old) ** 2 for z in sides)
        return torch.where(above < below, sides[1], sides[0])

    def _output_step(self, a: Tensor, nu: float) -> Tensor:
        y, weight = self.problem.train.y, self.problem.sample_weight
        assert y is not None
        assert weight is not None
        return get_loss(self.config).prox(a, y, weight, self.z[-1], nu)[0]


def _total(values: Tensor) -> Tensor:
    """A sum over everything, in float64: the search compares values that differ in their last digits."""
    return values.sum(dtype=torch.float64)
