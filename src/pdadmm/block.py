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
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from pdadmm.math import subproblems as sub
from pdadmm.math.activations import Activation
from pdadmm.math.lagrangian import LayerReport
from pdadmm.math.losses import Loss
from pdadmm.math.solvers import Exact, Solver, linear_tile
from pdadmm.math.state import AfterChunk, LayerState, TileSource
from pdadmm.math.subproblems import Weights
from pdadmm.math.tiles import SUM_ROWS, Workspace, row_norms, sum_of_rows, sum_of_squares, within

# Tile slot 0 may hold a tile of `a`, slot 4 one of the next layer's p.
_SLOTS = (1, 2, 3)

MEASURED = ("fit", "gap", "residual", "dz", "dq", "q", "prox_residual", "coupling", "risk")
"""What is measured of each row of a layer: norms up to `prox_residual`, then <u/nu, p - q> and R."""

FIT, GAP, RESIDUAL, DZ, DQ, Q, PROX_RESIDUAL, COUPLING, RISK = range(len(MEASURED))


@dataclass(frozen=True)
class HiddenClosing:
    """What follows the linear part of a hidden layer: q = f(z), relaxed, and tied to the next layer's p.

    What it measures goes into `measured`, a row for each of MEASURED and a column for each sample.
    """

    activation: Activation
    weights: Weights
    tile_rows = None  # as many as the cache likes

    def step(
        self, s: LayerState, rows: slice, a: Tensor, p_next: TileSource | None, ws: Workspace, measured: Tensor
    ) -> None:
        """z by the activation, then q = (rho p_next + u + nu f(z)) / (rho + nu)."""
        assert s.q is not None
        assert p_next is not None
        w, activation, z, q = self.weights, self.activation, s.z[rows], s.q[rows]
        z_new, f, v = (ws.tile(slot, *z.shape) for slot in _SLOTS)
        p = p_next(rows, ws.tile(4, *z.shape))
        if s.rounded_m is None:
            sub.scaled_dual(q, activation.forward(z, v))
        else:
            v.copy_(s.rounded_m[rows]).sub_(q, alpha=w.rho).mul_(-1 / w.nu)  # u = rho q - m
        activation.z_step(a, q, z, w.z_prox, z_new)
        if w.z_relax != 1:
            z_new, f = activation.beyond(z, z_new, w.z_relax, f), z_new
        row_norms(z.sub_(z_new), measured[DZ])
        z.copy_(z_new)
        q_new = sub.q_step(p, v, activation.forward(z_new, f), w.nu, w.rho)
        row_norms(q.sub_(q_new), measured[DQ])
        q.copy_(q_new)
        self._terms(z_new, q_new, a, p, f, measured)

    def measure(
        self, s: LayerState, rows: slice, a: Tensor, p_next: TileSource | None, ws: Workspace, measured: Tensor
    ) -> None:
        """The terms of L_rho as they are."""
        assert s.q is not None
        assert p_next is not None
        z, q, f = (ws.tile(slot, *s.z[rows].shape) for slot in _SLOTS)
        p = p_next(rows, ws.tile(4, *z.shape))
        self.activation.forward(z.copy_(s.z[rows]), f)
        self._terms(z, q.copy_(s.q[rows]), a, p, f, measured)

    @staticmethod
    def _terms(z: Tensor, q: Tensor, a: Tensor, p: Tensor, f: Tensor, measured: Tensor) -> None:
        """From f = f(z); overwrites z, q and f, which must be tiles."""
        row_norms(q, measured[Q])
        row_norms(z.sub_(a), measured[FIT])
        v = sub.scaled_dual(q, f)
        row_norms(v, measured[GAP])
        r = torch.sub(p, q, out=q)
        row_norms(r, measured[RESIDUAL])
        torch.sum(r.mul_(v), 1, out=measured[COUPLING])

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
    """What follows the linear part of the output layer: R(z_L; y) for these targets and sample weights."""

    loss: Loss
    y: Tensor
    sample_weight: Tensor
    weights: Weights
    tile_rows = SUM_ROWS  # its solver stops tile by tile, so its bits depend on them

    def step(
        self, s: LayerState, rows: slice, a: Tensor, p_next: TileSource | None, ws: Workspace, measured: Tensor
    ) -> None:
        """z by the prox of R, kept at z_old for samples where that is lower."""
        y, weight, z = self.y[rows], self.sample_weight[rows], s.z[rows]
        found, _ = self.loss.prox(a, y, weight, z, self.weights.nu)
        no_worse = self._objective(found, a, y, weight) <= self._objective(z, a, y, weight)
        z_new = torch.where(no_worse[:, None], found, z)
        row_norms(z.sub_(z_new), measured[DZ])
        z.copy_(z_new)
        self._terms(z, a, y, weight, measured)

    def measure(
        self, s: LayerState, rows: slice, a: Tensor, p_next: TileSource | None, ws: Workspace, measured: Tensor
    ) -> None:
        """The terms of L_rho as they are."""
        self._terms(s.z[rows], a, self.y[rows], self.sample_weight[rows], measured)

    def gradients(self, s: LayerState, rows: slice, a: Tensor, p_next: TileSource | None) -> Tensor:
        """|R'(z) + nu (z - a)|²."""
        z = s.z[rows]
        return sum_of_squares(self._slope(z, a, self.y[rows], self.sample_weight[rows]))

    def _objective(self, z: Tensor, a: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        return self.loss.value(z, y, weight).add_((z - a).square_().sum(1), alpha=self.weights.nu / 2)

    def _slope(self, z: Tensor, a: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        return self.loss.gradient(z, y, weight).add_(z - a, alpha=self.weights.nu)

    def _terms(self, z: Tensor, a: Tensor, y: Tensor, weight: Tensor, measured: Tensor) -> None:
        row_norms(z - a, measured[FIT])
        row_norms(self._slope(z, a, y, weight), measured[PROX_RESIDUAL])
        measured[RISK] = self.loss.value(z, y, weight)


Closing = HiddenClosing | OutputClosing


class Block:
    """One layer: state, solver and closing, and the phases of an iteration."""

    def __init__(self, state: LayerState, solver: Solver, closing: Closing, weights: Weights, ws: Workspace) -> None:
        self.state = state
        self._solver = solver
        self._closing = closing
        self._weights = weights
        self._ws = ws
        self._certain = LayerReport()

    @property
    def certain(self) -> float:
        """The certain fall of L_rho by the last p-, W- and b-steps."""
        return self._certain.drop

    def carry_sums(self) -> None:
        """Collect what the W-step needs of the window, where p and z are."""
        assert isinstance(self._solver, Exact)
        self._solver.carry_sums(self.state, self._ws)

    def regress(self, ridge: float) -> None:
        """Fit W and b to the present p and z."""
        assert isinstance(self._solver, Exact)
        self._solver.regress(self.state, ridge, self._ws)

    def p_phase(self, m: TileSource | None, after_chunk: AfterChunk | None = None) -> None:
        """Update p from the left neighbour's m; the first layer has none, and p is the data."""
        drop = self._solver.p_phase(self.state, m, self._ws, after_chunk)
        self._certain = LayerReport(drop=drop, paper_drop=drop)

    def W_phase(self, ridge: float) -> None:
        """Update W and b; `ridge` is lambda."""
        drop, paper_drop = self._solver.W_phase(self.state, ridge, self._ws)
        self._certain.drop += drop
        self._certain.paper_drop += paper_drop

    def z_phase(self, p_next: TileSource | None, ridge: float, after_chunk: AfterChunk | None = None) -> LayerReport:
        """Update z and q from the right neighbour's new p; returns what was measured."""
        sums = self._visit(self._solver.a_tile, self._closing.step, p_next, after_chunk)
        return self._report(sums, ridge)

    def measure(self, p_next: TileSource | None, ridge: float) -> LayerReport:
        """The terms of L_rho at the present point."""
        self._certain = LayerReport()
        return self._report(self._visit(linear_tile, self._closing.measure, p_next), ridge)

    def _visit(
        self,
        a_tile: Callable[[LayerState, slice, Workspace], Tensor],
        close: Callable[..., None],
        p_next: TileSource | None,
        after_chunk: AfterChunk | None = None,
    ) -> Tensor:
        """Close every tile by a step or a measurement; returns the sums of what was measured."""
        s, ws = self.state, self._ws
        sums = ws.sum("measured", len(MEASURED), dtype=torch.float64)
        for index, chunk in enumerate(ws.chunks(self._closing.tile_rows)):
            measured = ws.row_values(len(MEASURED), chunk.rows.stop - chunk.rows.start)
            for rows in chunk.tiles:
                close(s, rows, a_tile(s, rows, ws), p_next, ws, measured[:, within(rows, chunk)])
            norms, values = measured[:COUPLING], measured[COUPLING:]
            sums.add(torch.cat([sum_of_rows(norms, squared=True), sum_of_rows(values)]))
            sums.close_chunk()
            if after_chunk is not None:
                after_chunk(index)
        return sums.take()

    def stationarity(self, m: TileSource | None, p_next: TileSource | None, ridge: float) -> float:
        """The squared norm of L_rho's partial gradients in this layer's p, W, b, z, q and u (Lemma 3, Theorem 2)."""
        s, ws, nu, rho = self.state, self._ws, self._weights.nu, self._weights.rho
        total = ws.sum("stationarity", dtype=torch.float64)
        by_W, by_b = ws.sum("cross", *s.W.shape), ws.sum("z", len(s.b))
        for rows in ws.tiling.walk(total, by_W, by_b):
            a = linear_tile(s, rows, ws)
            total.add(self._closing.gradients(s, rows, a, p_next))
            e = a.sub_(s.z[rows])
            by_W.add_product(e, s.p[rows])
            by_b.add(e.sum(0))
            if m is not None:
                m_tile, g = (ws.tile(slot, *s.p[rows].shape) for slot in (1, 2))
                total.add(sum_of_squares(sub.p_gradient(e, s.W, s.p[rows], m(rows, m_tile), nu, rho, g)))
        G = by_W.take().mul_(nu).add_(s.W, alpha=self._kept(ridge))
        if s.is_inserted:
            G.diagonal().sub_(nu * s.gram_scale * ridge)
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
        s, ws = self.state, self._ws
        mean, squares = ws.mean(s.p), ws.sum("p squares", s.p.shape[1], dtype=torch.float64)
        for rows in ws.tiling.walk(squares):
            squares.add(ws.exact(s.p[rows]).sub_(mean).square_().sum(0))
        scale = float(squares.take().mean())
        # A layer whose input does not vary has no scale of its own; any fixed unit will do. One that overflows is
        # found by the first factorisation.
        s.gram_scale = min(scale, torch.finfo(ws.dtype).max) if scale > 0 else 1.0

    def _kept(self, ridge: float) -> float:
        return self._weights.nu * self.state.gram_scale * ridge + self._weights.l2

    def _report(self, sums: Tensor, ridge: float) -> LayerReport:
        measured = dict(zip(MEASURED, sums.tolist(), strict=True))
        measured["coupling"] *= self._weights.nu  # <u, p - q>, of which <u/nu, p - q> was measured
        W, square = self.state.W, float(sum_of_squares(self.state.W))
        pulled = square
        if self.state.is_inserted:
            pulled = float(sum_of_squares(W - torch.eye(len(W), dtype=W.dtype, device=W.device)))
        ridge_term = self._weights.nu * self.state.gram_scale * ridge / 2 * pulled
        return dataclasses.replace(self._certain, ridge=ridge_term, l2=self._weights.l2 / 2 * square, **measured)
