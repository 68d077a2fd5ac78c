"""The p-, W-, b-, q- and u-steps against autograd and against what they claim to minimise."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from pdadmm.math import subproblems as sub

N, N_IN, N_OUT = 30, 6, 4
NU, RHO = 0.3, 0.7


def draw(*shapes: tuple[int, ...], seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]


def phi(p: Tensor, W: Tensor, b: Tensor, z: Tensor, q_prev: Tensor, u_prev: Tensor) -> Tensor:
    """The paper's phi of one layer."""
    r = p - q_prev
    return NU / 2 * ((z - p @ W.T - b) ** 2).sum() + (u_prev * r).sum() + RHO / 2 * (r**2).sum()


@pytest.fixture
def layer() -> tuple[Tensor, ...]:
    shapes = ((N, N_IN), (N_OUT, N_IN), (N_OUT,), (N, N_OUT), (N, N_IN), (N, N_IN))
    return tuple(draw(*shapes))


def test_p_gradient_is_autograds(layer: tuple[Tensor, ...]) -> None:
    p, W, b, z, q, u = layer
    (expected,) = torch.autograd.grad(phi(p.requires_grad_(), W, b, z, q, u), p)
    p = p.detach()
    e = p @ W.T + b - z
    torch.testing.assert_close(sub.p_gradient(e, W, p, RHO * q - u, NU, RHO, torch.empty_like(p)), expected)


@pytest.mark.parametrize("per_sample", [True, False])
def test_tau_is_the_smallest_that_majorises(layer: tuple[Tensor, ...], per_sample: bool) -> None:
    """With tau the bound U holds with equality at the step; with a little less it fails."""
    p, W, b, z, q, u = layer
    g = sub.p_gradient(p @ W.T + b - z, W, p, RHO * q - u, NU, RHO, torch.empty_like(p))
    over = 1 if per_sample else (0, 1)
    tau = sub.tau_minimum(g.square().sum(over, keepdim=True), (g @ W.T).square().sum(over, keepdim=True), NU, RHO)

    def excess(tau: Tensor) -> float:
        step = -g / tau
        bound = phi(p, W, b, z, q, u) + (g * step).sum() + (tau / 2 * step**2).sum()
        return float(phi(p + step, W, b, z, q, u) - bound)

    assert excess(tau) == pytest.approx(0, abs=1e-10)
    assert excess(0.99 * tau) > 1e-6
    # It is also the exact line search: no other multiple of the step is lower.
    at = [float(phi(p - scale * g / tau, W, b, z, q, u)) for scale in (0.98, 1.0, 1.02)]
    assert at[1] == min(at)


def test_theta_is_the_smallest_that_majorises(layer: tuple[Tensor, ...]) -> None:
    p, W, b, z, _, _ = layer
    l2 = 0.05

    def fit(W: Tensor) -> Tensor:
        return NU / 2 * ((z - p @ W.T - b) ** 2).sum() + l2 / 2 * (W**2).sum()

    (G,) = torch.autograd.grad(fit(W.requires_grad_()), W)
    W = W.detach()
    theta = sub.theta_minimum(G.square().sum(1), (p @ G.T).square().sum(0), NU, l2)[:, None]

    def excess(theta: Tensor) -> float:
        return float(fit(W - G / theta) - fit(W) + (G**2 / theta / 2).sum())

    assert excess(theta) == pytest.approx(0, abs=1e-9)
    assert excess(0.99 * theta) > 1e-6


def test_zero_gradients_give_finite_step_sizes() -> None:
    zero = torch.zeros(3)
    assert sub.tau_minimum(zero, zero, NU, RHO).tolist() == pytest.approx([RHO] * 3)
    assert sub.theta_minimum(zero, zero, NU, 0.0).tolist() == [1.0] * 3


def test_p_exact_is_the_minimum(layer: tuple[Tensor, ...]) -> None:
    p, W, b, z, q, u = layer
    system = sub.p_system(W, b, NU, RHO)
    best = sub.p_exact(z, W, RHO * q - u, system, NU, torch.empty_like(p))
    (slope,) = torch.autograd.grad(phi(best.requires_grad_(), W, b, z, q, u), best)
    assert float(slope.abs().max()) < 1e-12


def test_W_exact_is_the_joint_minimum_of_W_and_b(layer: tuple[Tensor, ...]) -> None:
    p, W, _, z, _, _ = layer
    prox, ridge = 0.4, 0.2
    pc, zc = p - p.mean(0), z - z.mean(0)
    best = sub.W_exact(pc.T @ pc, zc.T @ pc, W, prox, ridge)[0].requires_grad_()
    b = (z - p @ best.detach().T).mean(0).requires_grad_()
    value = ((z - p @ best.T - b) ** 2).sum() / 2 + prox / 2 * ((best - W) ** 2).sum() + ridge / 2 * (best**2).sum()
    for slope in torch.autograd.grad(value, [best, b]):
        assert float(slope.abs().max()) < 1e-12


def test_q_step_minimises_and_u_follows_from_q_and_z() -> None:
    """After the q- and u-steps u = nu (q - f(z)) exactly: the lemma that lets u go unstored."""
    p_next, u, f = draw((N, N_OUT), (N, N_OUT), (N, N_OUT))
    q = sub.q_step(p_next, u / NU, f, NU, RHO).requires_grad_()
    value = NU / 2 * ((q - f) ** 2).sum() + (u * (p_next - q)).sum() + RHO / 2 * ((p_next - q) ** 2).sum()
    (slope,) = torch.autograd.grad(value, q)
    assert float(slope.abs().max()) < 1e-12
    q = q.detach()
    u_new = u + RHO * (p_next - q)
    torch.testing.assert_close(NU * sub.scaled_dual(q, f.clone()), u_new)
    torch.testing.assert_close(sub.message(q, f.clone(), NU, RHO), RHO * q - u_new)
