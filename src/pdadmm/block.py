"""One layer at work: its variables, its solver, and what closes it.

An iteration of a layer is three phases, each one walk over the samples in tiles:

    p_phase   p from W, b, z and the left neighbour's m; collects the sums that W needs
    W_phase   W and b from those sums
    z_phase   a, then z and, in a hidden layer, q from the right neighbour's new p

A hidden layer is closed by its activation, the output layer by its loss. The z-phase also measures everything that
L_rho and its certificate need, while the tile is in cache; u is never stored (see `pdadmm.math.subproblems`).
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from pdadmm.math import subproblems as sub
from pdadmm.math.activations import Activation
from pdadmm.math.lagrangian import LayerReport
from pdadmm.math.losses import Loss
from pdadmm.math.solvers import Solver
from pdadmm.math.state import AfterChunk, LayerState, TileSource
from pdadmm.math.subproblems import Weights
from pdadmm.math.tiles import Workspace, sum_of_rows, sum_of_squares

# Tile slots 0 to 2 belong to the solver; a tile of `a` may live in slot 0.
_SLOTS = (1, 2, 3)


class Closing(Protocol):
    """What follows the linear part of a layer: an activation, or the loss."""

    def step(self, s: LayerState, rows: slice, a: Tensor, p_next: TileSource | None, ws: Workspace) -> Tensor:
        """Update z (and q) of these rows; returns the measured sums, in the order of `MEASURED`."""

    def measure(self, s: LayerState, rows: slice, a: Tensor, p_next: TileSource | None, ws: Workspace) -> Tensor:
        """The same sums at the present point, with no update."""

    def gradients(self, s: LayerState, rows: slice, a: Tensor, p_next: TileSource | None) -> Tensor:
        """|dL/dz|² + |dL/dq|² + |dL/du|² of these rows."""


MEASURED = ("fit", "gap", "residual", "coupling", "risk", "dz", "dq", "q", "prox_residual")
"""What a closing measures; each is a field of `LayerReport`."""


def _measured(like: Tensor, **sums: Tensor) -> Tensor:
    zero = torch.zeros((), dtype=torch.float64, device=like.device)
    return torch.stack([sums.pop(name, zero) for name in MEASURED])


@dataclass(frozen=True)
class HiddenClosing:
    """q = f(z), relaxed, and tied to the next layer's p."""

    activation: Activation
    weights: Weights

    def step(self, s: LayerState, rows: slice, a: Tensor, p_next: TileSource | None, ws: Workspace) -> Tensor:
        """z by the activation, then q = (rho p_next + u + nu f(z)) / (rho + nu)."""
        assert s.q is not None
        assert p_next is not None
        nu, rho = self.weights.nu, self.weights.rho
        z, q = s.z[rows], s.q[rows]
        work, z_new, f = (ws.tile(slot, *z.shape) for slot in _SLOTS)
        if s.m_sent is None:
            u = sub.dual(q, self.activation.forward(z, work), nu)
        else:
            u = s.m_sent(rows, work).sub_(q, alpha=rho).neg_()
        self.activation.z_step(a, q, z, self.weights.z_prox, z_new)
        dz = sum_of_squares(z.sub_(z_new))
        z.copy_(z_new)
        p = p_next(rows, ws.tile(4, *z.shape))
        q_new = sub.q_step(p, u, self.activation.forward(z, f), nu, rho)
        dq = sum_of_squares(q.sub_(q_new))
        q.copy_(q_new)
        return self._terms(z, q, a, f, p, (work, z_new), dz=dz, dq=dq)

    def measure(self, s: LayerState, rows: slice, a: Tensor, p_next: TileSource | None, ws: Workspace) -> Tensor:
        """The terms of L_rho as they are."""
        assert s.q is not None
        assert p_next is not None
        z, q = s.z[rows], s.q[rows]
        one, two, f = (ws.tile(slot, *z.shape) for slot in _SLOTS)
        p = p_next(rows, ws.tile(4, *z.shape))
        return self._terms(z, q, a, self.activation.forward(z, f), p, (one, two))

    def _terms(
        self,
        z: Tensor,
        q: Tensor,
        a: Tensor,
        f: Tensor,
        p: Tensor,
        work: tuple[Tensor, Tensor],
        **moved: Tensor,
    ) -> Tensor:
        """|z - a|², |q - f|², |p - q|² and <u, p - q>; overwrites f and the work tiles."""
        one, two = work
        fit = sum_of_squares(torch.sub(z, a, out=one))
        u = sub.dual(q, f, self.weights.nu)
        r = torch.sub(p, q, out=one)
        return _measured(
            z,
            fit=fit,
            gap=sum_of_squares(u) / self.weights.nu**2,
            residual=sum_of_squares(r),
            coupling=sum_of_rows(torch.mul(u, r, out=two).sum(1)),
            q=sum_of_squares(q),
            **moved,
        )

    def gradients(self, s: LayerState, rows: slice, a: Tensor, p_next: TileSource | None) -> Tensor:
        """At a kink of f, the least element between the one-sided derivatives; dL/dq = -rho (p - q) = -rho dL/du."""
        assert s.q is not None
        assert p_next is not None
        nu, rho = self.weights.nu, self.weights.rho
        z, q = s.z[rows], s.q[rows]
        gap = self.activation.forward(z, torch.empty_like(z)).sub_(q)
        left, right = (nu * (z - a + gap * slope) for slope in self.activation.slopes(z))
        least = torch.where((left <= 0) & (right >= 0), 0.0, torch.minimum(left.abs(), right.abs()))
        r = p_next(rows, torch.empty_like(z)) - q
        return sum_of_squares(least) + (1 + rho**2) * sum_of_squares(r)


@dataclass(frozen=True)
class OutputClosing:
    """R(z_L; y) for these targets and sample weights."""

    loss: Loss
    y: Tensor
    sample_weight: Tensor
    weights: Weights

    def step(self, s: LayerState, rows: slice, a: Tensor, p_next: TileSource | None, ws: Workspace) -> Tensor:
        """z by the prox of R, kept at z_old for samples where that is lower."""
        y, weight, z = self.y[rows], self.sample_weight[rows], s.z[rows]
        result = self.loss.prox(a, y, weight, z, self.weights.nu)
        no_worse = self._objective(result.z, a, y, weight) <= self._objective(z, a, y, weight)
        z_new = torch.where(no_worse[:, None], result.z, z)
        dz = sum_of_squares(z.sub_(z_new))
        z.copy_(z_new)
        return self._terms(z, a, y, weight, dz)

    def measure(self, s: LayerState, rows: slice, a: Tensor, p_next: TileSource | None, ws: Workspace) -> Tensor:
        """The terms of L_rho as they are."""
        return self._terms(s.z[rows], a, self.y[rows], self.sample_weight[rows], None)

    def gradients(self, s: LayerState, rows: slice, a: Tensor, p_next: TileSource | None) -> Tensor:
        """|R'(z) + nu (z - a)|²."""
        z = s.z[rows]
        return sum_of_squares(self._slope(z, a, self.y[rows], self.sample_weight[rows]))

    def _objective(self, z: Tensor, a: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        return self.loss.value(z, y, weight).add_((z - a).square_().sum(1), alpha=self.weights.nu / 2)

    def _slope(self, z: Tensor, a: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        return self.loss.gradient(z, y, weight).add_(z - a, alpha=self.weights.nu)

    def _terms(self, z: Tensor, a: Tensor, y: Tensor, weight: Tensor, dz: Tensor | None) -> Tensor:
        moved = {} if dz is None else {"dz": dz}
        return _measured(
            z,
            fit=sum_of_squares(z - a),
            risk=sum_of_rows(self.loss.value(z, y, weight)),
            prox_residual=sum_of_squares(self._slope(z, a, y, weight)),
            **moved,
        )


class Block:
    """One layer: state, solver and closing, and the phases of an iteration."""

    def __init__(self, state: LayerState, solver: Solver, closing: Closing, weights: Weights, ws: Workspace) -> None:
        self.state = state
        self._solver = solver
        self._closing = closing
        self._weights = weights
        self._ws = ws
        self._certain = LayerReport()

    def p_phase(self, m: TileSource | None, after_chunk: AfterChunk | None = None) -> None:
        """Update p from the left neighbour's m; the first layer has none, and p is the data."""
        drop = self._solver.p_phase(self.state, m, self._ws, after_chunk)
        self._certain = LayerReport(drop=drop, paper_drop=drop)

    def W_phase(self, ridge: float) -> None:
        """Update W and b; `ridge` is lambda."""
        step = self._solver.W_phase(self.state, ridge, self._ws)
        self._certain.drop += step.drop
        self._certain.paper_drop += step.paper_drop

    def z_phase(self, p_next: TileSource | None, ridge: float, after_chunk: AfterChunk | None = None) -> LayerReport:
        """Update z and q from the right neighbour's new p; returns what was measured."""
        s, ws = self.state, self._ws
        sums = ws.sum("measured", len(MEASURED), dtype=torch.float64)
        for index, chunk in enumerate(ws.tiling.chunks()):
            for rows in chunk:
                a = self._solver.a_tile(s, rows, ws)
                sums.add(self._closing.step(s, rows, a, p_next, ws))
            sums.close_chunk()
            if after_chunk is not None:
                after_chunk(index)
        return self._report(sums.take(), ridge)

    def measure(self, p_next: TileSource | None, ridge: float) -> LayerReport:
        """The terms of L_rho at the present point."""
        s, ws = self.state, self._ws
        self._certain = LayerReport()
        sums = ws.sum("measured", len(MEASURED), dtype=torch.float64)
        for chunk in ws.tiling.chunks():
            for rows in chunk:
                a = sub.linear(s.p[rows], s.W, s.b, ws.tile(0, rows.stop - rows.start, len(s.b)))
                sums.add(self._closing.measure(s, rows, a, p_next, ws))
            sums.close_chunk()
        return self._report(sums.take(), ridge)

    def stationarity(self, m: TileSource | None, p_next: TileSource | None, ridge: float) -> float:
        """The squared norm of L_rho's partial gradients in this layer's p, W, b, z, q and u (Lemma 3, Theorem 2)."""
        s, ws, nu, rho = self.state, self._ws, self._weights.nu, self._weights.rho
        total = ws.sum("stationarity", dtype=torch.float64)
        by_W, by_b = ws.sum("cross", *s.W.shape), ws.sum("z", len(s.b))
        for chunk in ws.tiling.chunks():
            for rows in chunk:
                count = rows.stop - rows.start
                a = sub.linear(s.p[rows], s.W, s.b, ws.tile(0, count, len(s.b)))
                total.add(self._closing.gradients(s, rows, a, p_next))
                e = a.sub_(s.z[rows])
                by_W.add_product(e.t(), s.p[rows])
                by_b.add(e.sum(0))
                if m is not None:
                    m_tile, g = m(rows, ws.tile(1, count, s.p.shape[1])), ws.tile(2, count, s.p.shape[1])
                    total.add(sum_of_squares(sub.p_gradient(e, s.W, s.p[rows], m_tile, nu, rho, g)))
            for one in (total, by_W, by_b):
                one.close_chunk()
        G = by_W.take().mul_(nu).add_(s.W, alpha=self._kept(ridge))
        return float(total.take() + sum_of_squares(G) + sum_of_squares(by_b.take()[None] * nu))

    def message(self, rows: slice, out: Tensor) -> Tensor:
        """m = rho q - u of these rows, for the right neighbour."""
        s = self.state
        assert s.q is not None
        assert isinstance(self._closing, HiddenClosing)
        f = self._closing.activation.forward(s.z[rows], out)
        return sub.message(s.q[rows], f, self._weights.nu, self._weights.rho)

    def p_tile(self, rows: slice, out: Tensor) -> Tensor:
        """p of these rows, for the left neighbour."""
        return self.state.p[rows]

    def begin_stage(self) -> None:
        """Fix s, the unit of damping and ridge, for the growth stage that begins."""
        s, ws, width = self.state, self._ws, self.state.p.shape[1]
        total = ws.sum("p sum", width, dtype=torch.float64)
        squares = ws.sum("p squares", width, dtype=torch.float64)
        for chunk in ws.tiling.chunks():
            for rows in chunk:
                total.add(s.p[rows].double().sum(0))
            total.close_chunk()
        mean = total.take() / ws.tiling.num_samples
        for chunk in ws.tiling.chunks():
            for rows in chunk:
                squares.add((s.p[rows].double() - mean).square_().sum(0))
            squares.close_chunk()
        scale = float(squares.take().mean())
        # A layer whose input does not vary has no scale of its own; any fixed unit will do. One that overflows is
        # found by the first factorisation.
        s.gram_scale = min(scale, torch.finfo(ws.dtype).max) if scale > 0 else 1.0

    def _kept(self, ridge: float) -> float:
        return self._weights.nu * self.state.gram_scale * ridge + self._weights.l2

    def _report(self, sums: Tensor, ridge: float) -> LayerReport:
        measured = dict(zip(MEASURED, sums.tolist(), strict=True))
        square = float(sum_of_squares(self.state.W))
        ridge_term = self._weights.nu * self.state.gram_scale * ridge / 2 * square
        return dataclasses.replace(self._certain, ridge=ridge_term, l2=self._weights.l2 / 2 * square, **measured)
