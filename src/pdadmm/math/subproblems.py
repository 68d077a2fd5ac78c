"""The updates of Algorithm 1 as pure functions on any number of samples.

    L_rho = R(z_L; y) + nu/2 Σ_l |z_l - a_l|² + nu/2 Σ_{l<L} |q_l - f(z_l)|²
            + Σ_{l<L} ( <u_l, p_{l+1} - q_l> + rho/2 |p_{l+1} - q_l|² ),              a_l = p_l W_lᵀ + b_l

Rows are samples. Layer l needs its left neighbour only through m_{l-1} = rho q_{l-1} - u_{l-1}, and u itself only
through u_l = nu (q_l - f(z_l)), which holds after every iteration (first lemma of the paper's appendix); so neither
m nor u is ever stored. The z- and z_L-steps belong to the activations and the losses.

Each function writes into `out`, which must not overlap its other arguments unless it says so.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pdadmm.math.factor import Factor
from pdadmm.math.tiles import panels, sum_of_squares


@dataclass(frozen=True)
class Weights:
    """The weights of the terms of L_rho and of the proximal terms."""

    nu: float
    rho: float
    z_prox: float  # c: weight of |z - z_old|² in the z-step
    damping: float  # delta: weight of |W - W_old|² in the exact W-step, in units of nu s
    l2: float  # mu: weight of |W|² in the objective
    nu_output: float  # nu of the output layer's |z - a|²
    p_relax: float = 1.0  # omega: how far the exact p-step goes, its minimiser being at 1
    W_relax: float = 1.0  # the same of the exact W-step
    z_relax: float = 1.0  # the same of a hidden layer's z-step, where its subproblem is one parabola

    def of_output(self) -> Weights:
        """The same as the output layer sees them."""
        return replace(self, nu=self.nu_output)


def linear(p: Tensor, W: Tensor, b: Tensor, out: Tensor) -> Tensor:
    """a = p Wᵀ + b."""
    return torch.addmm(b, p, W.t(), out=out)


def message(q: Tensor, f: Tensor, nu: float, rho: float) -> Tensor:
    """m = rho q - u = (rho - nu) q + nu f(z), overwriting `f` = f(z)."""
    return f.mul_(nu).add_(q, alpha=rho - nu)


def scaled_dual(q: Tensor, f: Tensor) -> Tensor:
    """u/nu = q - f(z), overwriting `f` = f(z)."""
    return torch.sub(q, f, out=f)


def p_gradient(e: Tensor, W: Tensor, p: Tensor, m: Tensor, nu: float, rho: float, out: Tensor) -> Tensor:
    """The gradient of phi in p: g = nu (a - z) W + rho p - m, with e = a - z."""
    return torch.sub(torch.mul(p, rho, out=out), m, out=out).addmm_(e, W, alpha=nu)


def tau_minimum(g_square: Tensor, gW_square: Tensor, nu: float, rho: float) -> Tensor:
    """The smallest tau with phi(p - g/tau) <= U(p - g/tau; tau): rho + nu |g Wᵀ|²/|g|².

    phi is quadratic, so with this tau the step is also the exact line search. A zero gradient gets tau = rho, and a
    zero step.
    """
    tiny = torch.finfo(g_square.dtype).tiny
    return gW_square.div(g_square.clamp(min=tiny)).mul_(nu).add_(rho)


def theta_minimum(G_square: Tensor, pG_square: Tensor, nu: float, l2: float) -> Tensor:
    """The smallest theta likewise: nu |p Gᵀ|²/|G|² + mu, for the gradient G in W.

    Where the gradient is zero any theta gives a zero step; it is 1 there, so that nothing is divided by zero.
    """
    tiny = torch.finfo(G_square.dtype).tiny
    theta = pG_square.div(G_square.clamp(min=tiny)).mul_(nu).add_(l2)
    return torch.where(theta > 0, theta, 1.0)


def p_system(W: Tensor, b: Tensor, nu: float, rho: float) -> tuple[Tensor, Tensor]:
    """What the exact p-step multiplies by and adds: (nu WᵀW + rho I)⁻¹ and the row - nu bᵀW (nu WᵀW + rho I)⁻¹.

    The condition of the matrix is modest, so its inverse is safe. Only the lower half of WᵀW is computed and used.
    """
    n = W.shape[1]
    matrix = W.new_empty(n, n)
    for panel in panels(n):
        torch.mm(W[:, panel.start :].t(), W[:, panel], out=matrix[panel.start :, panel])
    matrix.mul_(nu).diagonal().add_(rho)
    inverse = Factor(matrix).inverse()
    return inverse, torch.mv(inverse, torch.mv(W.t(), b)).mul_(-nu)


def p_exact(z: Tensor, W: Tensor, m: Tensor, system: tuple[Tensor, Tensor], nu: float, out: Tensor) -> Tensor:
    """The minimiser of phi in p: (nu (z - b) W + m) (nu WᵀW + rho I)⁻¹. Overwrites m."""
    return linear(m.addmm_(z, W, alpha=nu), *system, out)  # the inverse is its own transpose


def W_exact(
    centred_gram: Tensor, centred_cross: Tensor, W: Tensor, prox: float, ridge: float, relax: float = 1.0
) -> tuple[Tensor, float]:
    """W + omega (W* - W) with W* the minimiser (with b = mean(z) - W mean(p)) of

        1/2 |z - p Wᵀ - b|² + prox/2 |W - W_old|² + ridge/2 |W|²

    from the centred sums pᵀp, whose lower half is used, and zᵀp; overwrites both. Also returned is by how much the
    function falls without its proximal term, beside what b contributes: (omega - omega²/2) |D L|² + omega² prox/2 |D|²
    with D = W* - W and L Lᵀ = pᵀp + (prox + ridge) I.
    """
    centred_gram.diagonal().add_(prox + ridge)
    factor = Factor(centred_gram)
    change = factor.solve(centred_cross.add_(W, alpha=prox)) - W
    drop = (relax - relax**2 / 2) * factor.length_squared(change) + relax**2 * prox / 2 * sum_of_squares(change)
    return W.add(change, alpha=relax), float(drop)


def q_step(p_next: Tensor, v: Tensor, f: Tensor, nu: float, rho: float) -> Tensor:
    """q = (rho p_next + u + nu f(z)) / (rho + nu), overwriting `v` = u/nu."""
    return torch.lerp(v.add_(f), p_next, rho / (rho + nu), out=v)
