"""Every loss: gradient against autograd, prox against brute force."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from brute import minimise_rows
from pdadmm.config import Config
from pdadmm.errors import UserError
from pdadmm.math.losses import Loss, get_loss, loss_names

NAMES = loss_names()
CLASSES = 5


def sample(name: str, rows: int, scale: float, seed: int = 0) -> tuple[Loss, Tensor, Tensor, Tensor]:
    """A loss with random a, y and weights (one of them zero)."""
    generator = torch.Generator().manual_seed(seed)
    a = scale * torch.randn(rows, CLASSES, generator=generator, dtype=torch.float64)
    weight = torch.rand(rows, generator=generator, dtype=torch.float64) * 3
    weight[0] = 0
    loss = get_loss(Config(loss=name, output_tolerance=1e-9, output_steps=200))
    if loss.real_valued:
        y = torch.randn(rows, CLASSES, generator=generator, dtype=torch.float64)
    else:
        y = torch.randint(CLASSES, (rows,), generator=generator)
    return loss, a, y, weight


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("scale", [0.1, 3.0, 100.0])
def test_gradient_is_autograds(name: str, scale: float) -> None:
    loss, z, y, weight = sample(name, 50, scale)
    z.requires_grad_()
    (expected,) = torch.autograd.grad(loss.value(z, y, weight).sum(), z)
    torch.testing.assert_close(loss.gradient(z.detach(), y, weight), expected)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("nu", [1e-4, 1e-2, 1.0, 100.0])
@pytest.mark.parametrize("scale", [0.1, 3.0, 30.0])
def test_prox_is_the_minimum(name: str, nu: float, scale: float) -> None:
    loss, a, y, weight = sample(name, 40, scale)

    def objective(z: Tensor) -> Tensor:
        return loss.value(z, y, weight) + nu / 2 * ((z - a) ** 2).sum(1)

    z, _ = loss.prox(a, y, weight, torch.zeros_like(a), nu)
    best = torch.minimum(minimise_rows(objective, z), minimise_rows(objective, a))
    assert bool((objective(z) <= best + 1e-8 * (1 + best.abs())).all())


def test_newton_descends_from_anywhere_at_small_nu() -> None:
    """Far on the wrong side the Hessian is almost nu I, and an undamped step would be thrown 1/nu away."""
    loss, a, y, weight = sample("cross_entropy", 40, 1.0)
    weight = weight + 0.1
    for start in (-500.0, -50.0, 0.0, 50.0):
        z_old = torch.zeros_like(a).scatter_(1, y[:, None], start)
        z, steps = loss.prox(a, y, weight, z_old, 1e-4)
        slope = loss.gradient(z, y, weight) + 1e-4 * (z - a)
        assert float(slope.norm(dim=1).max()) < 1e-8
        assert steps < 100


def test_fista_reaches_its_tolerance_and_respects_its_cap() -> None:
    newton, a, y, weight = sample("cross_entropy", 40, 3.0)
    config = Config(output_solver="fista", output_tolerance=1e-8, output_steps=5000)
    by_fista, steps = get_loss(config).prox(a, y, weight, torch.zeros_like(a), 1e-2)
    exact, _ = newton.prox(a, y, weight, torch.zeros_like(a), 1e-2)
    torch.testing.assert_close(by_fista, exact, atol=1e-5, rtol=1e-5)
    assert 10 < steps < 5000
    _, capped = get_loss(dataclasses.replace(config, output_steps=7)).prox(a, y, weight, torch.zeros_like(a), 1e-2)
    assert capped == 7


def test_newton_at_its_solution_takes_no_step() -> None:
    """Warm starts near rounding level must not burn the whole cap."""
    loss, a, y, weight = sample("cross_entropy", 40, 3.0)
    solution, _ = loss.prox(a, y, weight, torch.zeros_like(a), 1e-2)
    _, again = get_loss(Config()).prox(a, y, weight, solution, 1e-2)
    assert again <= 2


@settings(max_examples=100, deadline=None)
@given(
    name=st.sampled_from(NAMES),
    seed=st.integers(0, 10_000),
    nu=st.floats(1e-4, 10),
    scale=st.floats(0.01, 50),
)
def test_prox_property_stationary_and_no_worse_than_neighbours(name: str, seed: int, nu: float, scale: float) -> None:
    loss, a, y, weight = sample(name, 6, scale, seed)
    z = loss.prox(a, y, weight, torch.zeros_like(a), nu)[0]
    slope = loss.gradient(z, y, weight) + nu * (z - a)
    assert float(slope.abs().max()) <= 1e-6 * (1 + nu * float(a.abs().max()))


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(UserError, match=r"one of cross_entropy, .*; got 'hinge'"):
        get_loss(Config(loss="hinge"))
