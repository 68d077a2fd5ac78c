"""The plain reference: whole arrays, u stored, nothing fused. Slow, short, and the oracle of the fast path.

It follows Algorithm 1 line by line and shares with the package only the activations' z-steps and the losses' prox,
which have brute-force tests of their own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from pdadmm.block import Block
from pdadmm.config import Config
from pdadmm.engine.core import Engine
from pdadmm.engine.problem import Problem
from pdadmm.math.activations import Activation, get_activations
from pdadmm.math.losses import get_loss


@dataclass
class Reference:
    """All variables of the network, and one iteration on them."""

    config: Config
    problem: Problem
    W: list[Tensor]
    b: list[Tensor]
    p: list[Tensor]
    z: list[Tensor]
    q: list[Tensor]
    u: list[Tensor]
    s: list[float] = field(default_factory=list)

    @classmethod
    def of(cls, engine: Engine, config: Config, problem: Problem) -> Reference:
        """A copy of an engine's present point."""
        states = [block.state for block in engine.blocks]
        f = get_activations(config.activation, len(config.hidden))
        q = [s.q.clone() for s in states if s.q is not None]
        z = [s.z.clone() for s in states]
        assert config.nu is not None
        u = [config.nu * (q[i] - f[i].forward(z[i], torch.empty_like(z[i]))) for i in range(len(q))]
        return cls(
            config,
            problem,
            [s.W.clone() for s in states],
            [s.b.clone() for s in states],
            [s.p.clone() for s in states],
            z,
            q,
            u,
            [s.gram_scale for s in states],
        )

    def activation(self, layer: int) -> Activation:
        return get_activations(self.config.activation, len(self.W) - 1)[layer]

    def f(self, layer: int, z: Tensor) -> Tensor:
        return self.activation(layer).forward(z, torch.empty_like(z))

    def a(self, layer: int) -> Tensor:
        return self.p[layer] @ self.W[layer].T + self.b[layer]

    def nu(self, layer: int) -> float:
        """The output layer has one of its own."""
        nu = self.config.nu if layer < len(self.W) - 1 else self.config.nu_output
        assert nu is not None
        return nu

    def targets(self) -> tuple[Tensor, Tensor]:
        y, weight = self.problem.train.y, self.problem.sample_weight
        assert y is not None
        assert weight is not None
        return y, weight

    def lagrangian(self, ridge: float) -> Tensor:
        """L_rho, differentiable in every variable."""
        c, last = self.config, len(self.W) - 1
        assert c.nu is not None
        assert c.rho is not None
        y, weight = self.targets()
        total = get_loss(c).value(self.z[last], y, weight).sum()
        for layer in range(last + 1):
            nu = self.nu(layer)
            total = total + nu / 2 * ((self.z[layer] - self.a(layer)) ** 2).sum()
            total = total + (nu * self.s[layer] * ridge + c.l2) / 2 * (self.W[layer] ** 2).sum()
        for layer in range(last):
            r = self.p[layer + 1] - self.q[layer]
            total = total + c.nu / 2 * ((self.q[layer] - self._smooth_f(layer)) ** 2).sum()
            total = total + (self.u[layer] * r).sum() + c.rho / 2 * (r**2).sum()
        return total

    def _smooth_f(self, layer: int) -> Tensor:
        """f as autograd sees it: its value, with its slope (checked elsewhere) as derivative."""
        z, at = self.z[layer], self.z[layer].detach()
        return self.f(layer, at) + self.activation(layer).slopes(at)[0] * (z - at)

    def iterate(self, ridge: float) -> None:
        """One iteration, layer by layer, in the order of Algorithm 1."""
        c, layers = self.config, range(len(self.W))
        nu, rho, z_prox = c.nu, c.rho, c.z_prox
        assert nu is not None
        assert rho is not None
        assert z_prox is not None
        assert c.z_relax is not None
        for layer in layers[1:]:
            self._p_step(layer, self.nu(layer), rho)
        for layer in layers:
            self._W_step(layer, ridge, self.nu(layer))
        loss = get_loss(c)
        for layer in layers:
            a, z_old = self.a(layer), self.z[layer]
            if layer < layers[-1]:
                activation = self.activation(layer)
                z = activation.z_step(a, self.q[layer], z_old, z_prox, torch.empty_like(a))
                self.z[layer] = z if c.z_relax == 1 else activation.beyond(z_old, z, c.z_relax, torch.empty_like(a))
            else:
                self.z[layer] = loss.prox(a, *self.targets(), z_old, self.nu(layer))[0]
        for layer in layers[:-1]:
            p_next, u = self.p[layer + 1], self.u[layer]
            self.q[layer] = (rho * p_next + u + nu * self.f(layer, self.z[layer])) / (rho + nu)
            self.u[layer] = u + rho * (p_next - self.q[layer])

    def _p_step(self, layer: int, nu: float, rho: float) -> None:
        W, p, z, b = self.W[layer], self.p[layer], self.z[layer], self.b[layer]
        q, u = self.q[layer - 1], self.u[layer - 1]
        if self.config.solver == "exact":
            matrix = nu * W.T @ W + rho * torch.eye(W.shape[1], dtype=W.dtype)
            best = torch.linalg.solve(matrix, (nu * (z - b) @ W + rho * q - u).T).T
            assert self.config.p_relax is not None
            self.p[layer] = p + self.config.p_relax * (best - p)
            return
        g = nu * (self.a(layer) - z) @ W + u + rho * (p - q)
        over = (0, 1) if self._one_step else (1,)
        tau = rho + nu * quotient((g @ W.T).square().sum(over, keepdim=True), g.square().sum(over, keepdim=True))
        self.p[layer] = p - g / self._searched(tau)

    def _W_step(self, layer: int, ridge: float, nu: float) -> None:
        c, W, p, z = self.config, self.W[layer], self.p[layer], self.z[layer]
        kept = nu * self.s[layer] * ridge + c.l2
        if c.solver == "exact":
            pc, zc = p - p.mean(0), z - z.mean(0)
            prox = self.s[layer] * c.damping
            matrix = pc.T @ pc + (prox + kept / nu) * torch.eye(W.shape[1], dtype=W.dtype)
            best = torch.linalg.solve(matrix, (zc.T @ pc + prox * W).T).T
            assert c.w_relax is not None
            self.W[layer] = W + c.w_relax * (best - W)
        else:
            G = nu * (self.a(layer) - z).T @ p + kept * W
            over = (0, 1) if self._one_step else (1,)
            theta = (
                nu * quotient((p @ G.T).T.square().sum(over, keepdim=True), G.square().sum(over, keepdim=True)) + kept
            )
            self.W[layer] = W - quotient(G, self._searched(theta).expand_as(G))
        self.b[layer] = (z - p @ self.W[layer].T).mean(0)

    @property
    def _one_step(self) -> bool:
        return self.config.solver == "backtracking" or self.config.step_size == "one"

    def _searched(self, minimum: Tensor) -> Tensor:
        """The authors' search, as a loop."""
        if self.config.solver != "backtracking":
            return minimum
        step = 10.0
        while step < float(minimum):
            step *= 2
        return torch.tensor(step, dtype=minimum.dtype)

    def largest_difference(self, blocks: list[Block]) -> float:
        """The largest distance between this point and an engine's over all variables, relative to 1 + their norm."""
        worst = 0.0
        for layer, block in enumerate(blocks):
            for name in ("W", "b", "p", "z", "q"):
                mine = getattr(self, name)
                if layer < len(mine):
                    theirs = getattr(block.state, name)
                    distance = float((mine[layer] - theirs).norm() / (1 + mine[layer].norm()))
                    worst = max(worst, distance if math.isfinite(distance) else math.inf)
        return worst


def quotient(above: Tensor, below: Tensor) -> Tensor:
    """above / below, and 0 for 0 / 0: a zero gradient means a zero step."""
    return torch.where(above == 0, 0.0, above / below)
