"""Three interchangeable ways to take the p- and W-steps of a layer.

| solver         | p-step, W-step                             | products | arrays     |
|----------------|--------------------------------------------|----------|------------|
| `exact`        | minimise, by Cholesky, with damping, ridge | 5        | p, z, q    |
| `linearized`   | one gradient step, closed-form step size   | 4        | p, z, q, a |
| `backtracking` | one gradient step, the authors' search     | 4        | p, z, q, a |

A solver walks the samples itself and says how wide a scratch array of all samples it needs for a layer. `p_phase` steps
p, unless it is the data, and collects the sums for `W_phase`, which steps W and b at the ridge lambda. Both return by
how much L_rho is certain to fall, `W_phase` the paper's bound of it (Lemma 1) too. `a_tile` yields a = p Wᵀ + b after
the steps, each tile once, for the z-step that follows.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pdadmm.config import Config
from pdadmm.math import subproblems as sub
from pdadmm.math.state import AfterChunk, LayerState, TileSource
from pdadmm.math.subproblems import Weights
from pdadmm.math.tiles import SUM_ROWS, Chunk, TreeSum, Workspace, row_norms, sum_of_rows, within


def get_solver(config: Config, weights: Weights) -> Solver:
    """The solver that the configuration names."""
    if config.solver == "exact":
        return Exact(weights)
    return Linearized(
        weights,
        one_step=config.solver == "backtracking" or config.step_size == "one",
        search=config.solver == "backtracking",
    )


def linear_tile(s: LayerState, rows: slice, ws: Workspace) -> Tensor:
    """a = p Wᵀ + b of these rows."""
    return sub.linear(s.p[rows], s.W, s.b, ws.tile(0, rows.stop - rows.start, len(s.b)))


class Exact:
    """Proximal minimisation: p by the inverse of an n × n matrix, (W, b) jointly by ridge regression."""

    carries_a = False

    def __init__(self, weights: Weights) -> None:
        self._weights = weights
        self._input_gram: tuple[Tensor, Tensor] | None = None

    def scratch_width(self, n_in: int, n_out: int) -> int:
        """None."""
        return 0

    def p_phase(
        self, s: LayerState, m: TileSource | None, ws: Workspace, after_chunk: AfterChunk | None = None
    ) -> float:
        """p = (nu (z - b) W + m)(nu WᵀW + rho I)⁻¹, and the sums pᵀp, zᵀp, Σp, Σz."""
        nu, rho, relax = self._weights.nu, self._weights.rho, self._weights.p_relax
        system = None if s.is_input else sub.p_system(s.W, s.b, nu, rho)
        moved = ws.sum("moved", dtype=torch.float64)
        for index, chunk in enumerate(ws.chunks()):
            if system is not None:
                assert m is not None
                norms = ws.row_values(1, chunk.rows.stop - chunk.rows.start)
                for rows in chunk.tiles:
                    p, room = s.p[rows], (rows.stop - rows.start, s.p.shape[1])
                    m_tile = m(rows, ws.tile(0, *room))
                    p_new = sub.p_exact(s.z[rows], s.W, m_tile, system, nu, ws.tile(1, *room))
                    if relax != 1:
                        torch.lerp(p, p_new, relax, out=p_new)
                    row_norms(p.sub_(p_new), norms[0, within(rows, chunk)])
                    p.copy_(p_new)
                    s.round_p(rows)
                moved.add(sum_of_rows(norms[0], squared=True))
                moved.close_chunk()
            self._collect(s, chunk, ws)
            if after_chunk is not None:
                after_chunk(index)
        return 0.0 if s.is_input else (1 / relax - 0.5) * rho * float(moved.take())

    def carry_sums(self, s: LayerState, ws: Workspace) -> None:
        """Collect the sums of the window where p and z are, to be carried along while other windows are visited."""
        for chunk in ws.chunks():
            self._collect(s, chunk, ws)
        self._take(s, ws)

    def _collect(self, s: LayerState, chunk: Chunk, ws: Workspace) -> None:
        """A chunk's part of the sums; those of the data alone are not needed."""
        p, z = s.p[chunk.rows], s.z[chunk.rows]
        cross, z_sum, *of_p = self._sums(s, ws)
        cross.add_product(z, p)
        z_sum.add(z.sum(0))
        if of_p:
            gram, p_sum = of_p
            gram.add_gram(p)
            p_sum.add(p.sum(0))
        _close(cross, z_sum, *of_p)

    def _sums(self, s: LayerState, ws: Workspace) -> list[TreeSum]:
        n_out, n_in = s.W.shape
        sums = [ws.sum(f"cross{s.lane}", n_out, n_in), ws.sum(f"z{s.lane}", n_out)]
        return sums if s.is_input else [*sums, ws.sum(f"gram{s.lane}", n_in, n_in), ws.sum(f"p{s.lane}", n_in)]

    def _take(self, s: LayerState, ws: Workspace) -> list[Tensor]:
        """The sums over all samples: those of the window are new, those of other windows are as they were left."""
        taken = [one.take() for one in self._sums(s, ws)]
        if ws.window is None:
            return taken
        s.carried[ws.window] = [one.clone() for one in taken]
        totals = [torch.zeros_like(one) for one in taken]
        for window in sorted(s.carried):
            for total, part in zip(totals, s.carried[window], strict=True):
                total.add_(part)
        return totals

    def regress(self, s: LayerState, ridge: float, ws: Workspace) -> None:
        """W and b where they fit z best, wherever they were: a first W-step without damping."""
        for chunk in ws.chunks():
            self._collect(s, chunk, ws)
        self._W_step(s, ridge, 0.0, 1.0, ws)

    def W_phase(self, s: LayerState, ridge: float, ws: Workspace) -> tuple[float, float]:
        """The W-step from the sums of the p-phase."""
        return self._W_step(s, ridge, self._weights.damping, self._weights.W_relax, ws)

    def _W_step(self, s: LayerState, ridge: float, delta: float, relax: float, ws: Workspace) -> tuple[float, float]:
        """W towards (C_zp + s delta W_old)(C_pp + s (delta + lambda))⁻¹, of centred sums; b = mean(z) - W mean(p).

        In a layer that joined as the identity, s lambda I is added to what is divided.
        """
        nu, l2 = self._weights.nu, self._weights.l2
        count = ws.tiling.num_samples
        cross, z_sum, *of_p = self._take(s, ws)
        z_mean = z_sum / count
        if of_p:
            p_mean = of_p[1] / count
            gram = of_p[0].addr_(p_mean, p_mean, alpha=-count)
        else:
            gram, p_mean = self._data_gram(s, ws)
        cross.addr_(z_mean, p_mean, alpha=-count)
        if s.is_inserted:
            cross.diagonal().add_(s.gram_scale * ridge)
        W, drop = sub.W_exact(gram, cross, s.W, s.gram_scale * delta, s.gram_scale * ridge + l2 / nu, relax)
        b = z_mean - W @ p_mean
        # |p ΔWᵀ + 1 Δbᵀ|² = tr(ΔW C ΔWᵀ) + N |ΔW mean(p) + Δb|², of which the step knows the first part
        shift = (W - s.W) @ p_mean + (b - s.b)
        s.W, s.b = W, b
        drop = nu * (drop + count / 2 * float(sum_of_rows(shift, squared=True)))
        return drop, drop

    def a_tile(self, s: LayerState, rows: slice, ws: Workspace) -> Tensor:
        """The fifth product."""
        return linear_tile(s, rows, ws)

    def _data_gram(self, s: LayerState, ws: Workspace) -> tuple[Tensor, Tensor]:
        """The centred Gram matrix of the data, to be overwritten, and their mean.

        Computed once, exact to float64: raw features may have large offsets.
        """
        if self._input_gram is None:
            mean, sums = ws.mean(s.p), ws.sum("x gram", s.p.shape[1], s.p.shape[1], dtype=torch.float64)
            for rows in ws.tiling.walk(sums):
                sums.add_gram(ws.exact(s.p[rows]).sub_(mean))
            self._input_gram = sums.take().to(s.p.dtype), mean.to(s.p.dtype)
        gram, p_mean = self._input_gram
        return gram.clone(), p_mean


class Linearized:
    """One gradient step for p and for W, the paper's scheme, with a = p Wᵀ + b carried along.

    The step sizes are at their closed-form minimum: one per sample (tau) and per neuron (theta), or one per layer.
    With `search`, they are the authors' instead: from 10, doubled until the minimum is passed.
    """

    carries_a = True

    def __init__(self, weights: Weights, one_step: bool, search: bool) -> None:
        self._weights = weights
        self._one_step = one_step
        self._search = search
        self._pending: tuple[Tensor, Tensor] | None = None

    def scratch_width(self, n_in: int, n_out: int) -> int:
        """p Gᵀ; with one step size for all samples, g and g Wᵀ must be kept until it is known."""
        return n_in + n_out if self._one_step else n_out

    def p_phase(
        self, s: LayerState, m: TileSource | None, ws: Workspace, after_chunk: AfterChunk | None = None
    ) -> float:
        """p -= g/tau and a -= g Wᵀ/tau, and the sums (a - z)ᵀp, Σ(a - z), Σp."""
        assert s.a is not None
        (n_out, n_in), nu, rho = s.W.shape, self._weights.nu, self._weights.rho
        gradient, e_sum, p_sum = self._sums(s, ws)
        drop = ws.sum("moved", dtype=torch.float64)
        one_tau = stored = None
        if self._one_step and not s.is_input:
            one_tau, stored = self._one_tau(s, m, ws), ws.scratch(n_in, n_out)
        # a - z; over g Wᵀ where that is kept
        e = ws.scratch(n_in, n_out)[1] if self._one_step else ws.scratch(n_out)[0]
        for index, chunk in enumerate(ws.chunks()):
            if not s.is_input:
                falls = ws.row_values(1, chunk.rows.stop - chunk.rows.start)[0]
                for rows in chunk.tiles:
                    # one tau for each sample, as a column, or one for all
                    g, gW = self._p_gradient(s, rows, m, ws) if stored is None else [part[rows] for part in stored]
                    g_square = _row_squares(g)
                    tau = sub.tau_minimum(g_square, _row_squares(gW), nu, rho) if one_tau is None else one_tau
                    falls[within(rows, chunk)] = g_square.div_(tau)[:, 0]
                    inverse = -1 / tau
                    s.p[rows].addcmul_(g, inverse)
                    s.a[rows].addcmul_(gW, inverse)
                    if s.round_p(rows):
                        sub.linear(s.p[rows], s.W, s.b, s.a[rows])
                drop.add(sum_of_rows(falls) / 2)
            for rows in chunk.tiles:
                torch.sub(s.a[rows], s.z[rows], out=e[rows])
            gradient.add_product(e[chunk.rows], s.p[chunk.rows])
            e_sum.add(e[chunk.rows].sum(0))
            p_sum.add(s.p[chunk.rows].sum(0))
            _close(gradient, e_sum, p_sum, *(() if s.is_input else (drop,)))
            if after_chunk is not None:
                after_chunk(index)
        return 0.0 if s.is_input else float(drop.take())

    def W_phase(self, s: LayerState, ridge: float, ws: Workspace) -> tuple[float, float]:
        """W -= G/theta with G = nu (a - z)ᵀp + (nu s lambda + mu) W, then b by the mean residual."""
        nu, l2, count = self._weights.nu, self._weights.l2, ws.tiling.num_samples
        kept = nu * s.gram_scale * ridge + l2
        gradient, e_sum, p_sum = self._sums(s, ws)
        e_mean, p_mean = e_sum.take() / count, p_sum.take() / count
        G = gradient.take().mul_(nu).add_(s.W, alpha=kept)
        if s.is_inserted:
            G.diagonal().sub_(nu * s.gram_scale * ridge)
        G_square = G.square().sum(1)
        theta = self._theta(G_square, self._product_pG(s, G, ws), kept)
        db = (G @ p_mean).div_(theta).sub_(e_mean)
        drop_W = float((G_square / theta).double().sum()) / 2
        db_square = float(db.double().square().sum())
        s.W = s.W - G / theta[:, None]
        s.b = s.b + db
        self._pending = (-1 / theta, db)
        return drop_W + nu * count / 2 * db_square, drop_W + nu / 2 * db_square

    def a_tile(self, s: LayerState, rows: slice, ws: Workspace) -> Tensor:
        """a -= p Gᵀ/theta - Δb, with the product from the scratch array."""
        assert s.a is not None
        assert self._pending is not None
        step, db = self._pending
        (pG,) = ws.scratch(len(s.b))
        return s.a[rows].addcmul_(pG[rows], step).add_(db)

    def _sums(self, s: LayerState, ws: Workspace) -> tuple[TreeSum, TreeSum, TreeSum]:
        n_out, n_in = s.W.shape
        return ws.sum(f"cross{s.lane}", n_out, n_in), ws.sum(f"z{s.lane}", n_out), ws.sum(f"p{s.lane}", n_in)

    def _p_gradient(self, s: LayerState, rows: slice, m: TileSource | None, ws: Workspace) -> tuple[Tensor, Tensor]:
        """g = nu (a - z) W + rho p - m and g Wᵀ of a tile."""
        assert s.a is not None
        assert m is not None
        count, (n_out, n_in) = rows.stop - rows.start, s.W.shape
        e = torch.sub(s.a[rows], s.z[rows], out=ws.tile(1, count, n_out))
        g = ws.tile(2, count, n_in)
        m_tile = m(rows, ws.tile(0, count, n_in))
        sub.p_gradient(e, s.W, s.p[rows], m_tile, self._weights.nu, self._weights.rho, g)
        return g, torch.mm(g, s.W.t(), out=e)

    def _one_tau(self, s: LayerState, m: TileSource | None, ws: Workspace) -> Tensor:
        """One tau for the layer: a pass that leaves g and g Wᵀ in the scratch array."""
        norms = ws.sum("norms", 2, dtype=torch.float64)
        stored = ws.scratch(s.W.shape[1], s.W.shape[0])
        for chunk in ws.chunks():
            values = ws.row_values(2, chunk.rows.stop - chunk.rows.start)
            for rows in chunk.tiles:
                found = self._p_gradient(s, rows, m, ws)
                for store, part, norm in zip(stored, found, values, strict=True):
                    store[rows] = part
                    row_norms(part, norm[within(rows, chunk)])
            norms.add(sum_of_rows(values, squared=True))
            norms.close_chunk()
        g_square, gW_square = norms.take()
        tau = sub.tau_minimum(g_square, gW_square, self._weights.nu, self._weights.rho)
        return self._searched(tau).to(ws.dtype)

    def _product_pG(self, s: LayerState, G: Tensor, ws: Workspace) -> Tensor:
        """p Gᵀ into the scratch array; returns its squared column norms."""
        (pG,) = ws.scratch(len(G))
        squares = ws.sum("squares", len(G))
        for chunk in ws.chunks(SUM_ROWS):
            torch.mm(s.p[chunk.rows], G.t(), out=pG[chunk.rows])
            for rows in chunk.tiles:
                squares.add(torch.square(pG[rows], out=ws.tile(1, rows.stop - rows.start, len(G))).sum(0))
            squares.close_chunk()
        return squares.take()

    def _theta(self, G_square: Tensor, pG_square: Tensor, kept: float) -> Tensor:
        """One theta per neuron, or one for all of them."""
        if not self._one_step:
            return sub.theta_minimum(G_square, pG_square, self._weights.nu, kept)
        one = sub.theta_minimum(G_square.double().sum(), pG_square.double().sum(), self._weights.nu, kept)
        return self._searched(one).to(G_square.dtype).expand_as(G_square)

    def _searched(self, minimum: Tensor) -> Tensor:
        """The authors' search: 10, 20, 40, … until the descent condition holds, which it does from `minimum` on."""
        if not self._search:
            return minimum
        doublings = (minimum / 10).log2().ceil().clamp_(0, 100)
        return 10 * torch.exp2(doublings)


Solver = Exact | Linearized


def _row_squares(rows: Tensor) -> Tensor:
    """|row|² of each row, as a column."""
    norms: Tensor = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    return norms.square_()


def _close(*sums: TreeSum) -> None:
    for one in sums:
        one.close_chunk()
