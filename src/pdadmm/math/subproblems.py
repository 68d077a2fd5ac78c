"""The updates of Algorithm 1 as pure functions on any number of samples.

    L_rho = R(z_L; y) + nu/2 Σ_l |z_l - a_l|² + nu/2 Σ_{l<L} |q_l - f(z_l)|²
            + Σ_{l<L} ( <u_l, p_{l+1} - q_l> + rho/2 |p_{l+1} - q_l|² ),              a_l = p_l W_lᵀ + b_l

Rows are samples. Layer l needs its left neighbour only through m_{l-1} = rho q_{l-1} - u_{l-1}, and u itself only
through u_l = nu (q_l - f(z_l)), which holds after every iteration (first lemma of the paper's appendix); so neither
m nor u is ever stored. The z- and z_L-steps belong to the activations and the losses.

Each function writes into `out`, which must not overlap its other arguments unless it says so.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from pdadmm.math.threads import one_thread


@dataclass(frozen=True)
class Weights:
    """The weights of the terms of L_rho and of the proximal terms."""

    nu: float
    rho: float
    z_prox: float  # c: weight of |z - z_old|² in the z-step
    damping: float  # delta: weight of |W - W_old|² in the exact W-step, in units of nu s
    l2: float  # mu: weight of |W|² in the objective


def linear(p: Tensor, W: Tensor, b: Tensor, out: Tensor) -> Tensor:
    """a = p Wᵀ + b."""
    return torch.addmm(b, p, W.t(), out=out)


def message(q: Tensor, f: Tensor, nu: float, rho: float) -> Tensor:
    """m = rho q - u = (rho - nu) q + nu f(z), overwriting `f` = f(z)."""
    return f.mul_(nu).add_(q, alpha=rho - nu)


def dual(q: Tensor, f: Tensor, nu: float) -> Tensor:
    """u = nu (q - f(z)), overwriting `f` = f(z)."""
    return f.sub_(q).mul_(-nu)


def p_gradient(e: Tensor, W: Tensor, p: Tensor, m: Tensor, nu: float, rho: float, out: Tensor) -> Tensor:
    """The gradient of phi in p: g = nu (a - z) W + rho p - m, with e = a - z."""
    return torch.addmm(m, e, W, beta=-1, alpha=nu, out=out).add_(p, alpha=rho)


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


def p_system(W: Tensor, nu: float, rho: float) -> Tensor:
    """(nu WᵀW + rho I)⁻¹, the matrix of the exact p-step; its condition is modest, so the inverse is safe."""
    matrix = torch.mm(W.t(), W).mul_(nu)
    matrix.diagonal().add_(rho)
    with one_thread():
        return torch.cholesky_inverse(_factor(matrix))


def p_exact(
    z: Tensor, b: Tensor, W: Tensor, m: Tensor, inverse: Tensor, nu: float, work: Tensor, out: Tensor
) -> Tensor:
    """The minimiser of phi in p: (nu (z - b) W + m) (nu WᵀW + rho I)⁻¹. Overwrites m; `work` has z's shape."""
    right = m.addmm_(torch.sub(z, b, out=work), W, alpha=nu)
    return torch.mm(right, inverse, out=out)


def W_exact(centred_gram: Tensor, centred_cross: Tensor, W: Tensor, prox: float, ridge: float) -> Tensor:
    """The minimiser over W (with b = mean(z) - W mean(p)) of

        1/2 |z - p Wᵀ - b|² + prox/2 |W - W_old|² + ridge/2 |W|²

    from the centred sums pᵀp and zᵀp.
    """
    matrix = centred_gram.clone()
    matrix.diagonal().add_(prox + ridge)
    right = torch.add(centred_cross, W, alpha=prox)
    with one_thread():
        return torch.cholesky_solve(right.t(), _factor(matrix)).t().contiguous()


def _factor(matrix: Tensor) -> Tensor:
    """The Cholesky factor, or NaN where NaN, infinity or overflow came in.

    An error would leave the other workers waiting; NaN goes through them all, and the objective tells at the end.
    """
    factor: Tensor
    factor, info = torch.linalg.cholesky_ex(matrix)
    return factor if int(info) == 0 else factor.fill_(math.nan)


def q_step(p_next: Tensor, u: Tensor, f: Tensor, nu: float, rho: float) -> Tensor:
    """q = (rho p_next + u + nu f(z)) / (rho + nu), overwriting `u`."""
    return u.add_(f, alpha=nu).add_(p_next, alpha=rho).mul_(1 / (rho + nu))
