"""dlADMM against a plain reference whose every step is checked, and the descent that its theory promises."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import Tensor

from brute import minimise_1d
from pdadmm.config import Config
from pdadmm.engine.placement import from_counts
from pdadmm.engine.problem import Problem
from pdadmm.engine.world import World
from pdadmm.math import tiles
from pdadmm.math.activations import activation_names, get_activation, get_activations
from pdadmm.math.losses import get_loss
from pdadmm.method import Ground
from pdadmm.observer import silent
from pdadmm.rivals.dladmm import DlAdmm
from problems import make_problem

OPTIONS = [
    {"nu": 0.3, "rho": 2.0, "activation": "relu"},
    {"nu": 0.3, "rho": 2.0, "activation": "tanh", "l2": 0.4},
    {"nu": 1e-3, "rho": 1e-2, "activation": "leaky_relu", "loss": "squared", "l2": 0.1},
    {"nu": 2.0, "rho": 0.5, "activation": "hardtanh", "loss": "huber"},
    {"nu": 0.3, "rho": 2.0, "activation": "tanh,leaky_relu"},
]


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiles, "MOST_ROWS", 50)


def make(options: dict[str, object]) -> tuple[Config, Problem, DlAdmm]:
    shared = {"method": "dladmm", "hidden": (6, 5), "dtype": "float64", "output_tolerance": 1e-12}
    config = Config(**{**shared, **options}).resolved()  # type: ignore[arg-type]
    problem = make_problem(config)
    activations = get_activations(config.activation, len(config.hidden))
    placement = from_counts([len(config.hidden) + 1])
    ground = Ground(config, problem, 0, activations, placement, World(), silent())
    return config, problem, DlAdmm.begin(ground, None, 0)


class Reference:
    """The algorithm as its paper has it, on whole arrays, with autograd for the gradients."""

    def __init__(self, config: Config, problem: Problem, session: DlAdmm) -> None:
        assert config.nu is not None
        assert config.rho is not None
        assert problem.train.x is not None
        assert problem.train.y is not None
        assert problem.sample_weight is not None
        self.nu, self.rho, self.l2 = config.nu, config.rho, config.l2
        self.f, self.loss = get_activations(config.activation, len(config.hidden)), get_loss(config)
        self.x, self.y, self.weight = problem.train.x, problem.train.y, problem.sample_weight
        self.W, self.b = [W.clone() for W in session.weights], [b.clone() for b in session.biases]
        self.z: list[Tensor] = []
        self.q: list[Tensor] = []
        h = self.x
        for W, b in zip(self.W, self.b, strict=True):
            self.z.append(h @ W.t() + b)
            if len(self.z) < len(self.W):
                h = self.f[len(self.q)].forward(self.z[-1], torch.empty_like(self.z[-1]))
                self.q.append(h)
        self.z[-1] = self.loss.initial(self.z[-1], self.y)
        self.u = torch.zeros_like(self.z[-1])
        self.last = len(self.W) - 1
        self.value = self.lagrangian()

    def a(self, layer: int) -> Tensor:
        return (self.q[layer - 1] if layer else self.x) @ self.W[layer].t() + self.b[layer]

    def risk(self) -> Tensor:
        return self.loss.value(self.z[-1], self.y, self.weight).sum()

    def smooth(self) -> Tensor:
        """L_rho but for the risk and f(z), which autograd cannot follow."""
        total = self.l2 / 2 * sum((W.square().sum() for W in self.W), torch.zeros((), dtype=torch.float64))
        for layer in range(self.last):
            f = self.f[layer].forward(self.z[layer], torch.empty_like(self.z[layer]))
            total = total + self.nu / 2 * (self.z[layer] - self.a(layer)).square().sum()
            total = total + self.nu / 2 * (self.q[layer] - f).square().sum()
        r = self.z[-1] - self.a(self.last)
        return total + (self.u * r).sum() + self.rho / 2 * r.square().sum()

    def lagrangian(self) -> float:
        return float(self.smooth() + self.risk())

    def check(self, what: str) -> None:
        """No step may raise L_rho."""
        value = self.lagrangian()
        assert value <= self.value + 1e-10 * (1 + abs(self.value)), what
        self.value = value

    def gradient(self, variables: list[Tensor], layer: int) -> Tensor:
        leaf = variables[layer] = variables[layer].clone().requires_grad_()
        (slope,) = torch.autograd.grad(self.smooth(), leaf)
        variables[layer] = leaf.detach()
        return slope

    def term(self, layer: int) -> float:
        return self.rho if layer == self.last else self.nu

    def step_q(self, layer: int) -> None:
        g = self.gradient(self.q, layer)
        bend = self.nu * g.square().sum(1) + self.term(layer + 1) * (g @ self.W[layer + 1].t()).square().sum(1)
        self.q[layer] = self.q[layer] - g * (g.square().sum(1) / bend)[:, None]
        self.check(f"q {layer}")

    def step_z(self, layer: int) -> None:
        a, z = self.a(layer), self.z[layer]
        if layer == self.last:
            self.z[layer] = self.loss.prox(a - self.u / self.rho, self.y, self.weight, z, self.rho)[0]
        else:
            self.z[layer] = self.f[layer].z_step(a, self.q[layer], z, 0.0, torch.empty_like(z))
        self.check(f"z {layer}")

    def step_b(self, layer: int) -> None:
        slope = self.gradient(self.b, layer)
        self.b[layer] = self.b[layer] - slope / (self.term(layer) * len(self.x))
        self.check(f"b {layer}")

    def step_W(self, layer: int) -> None:
        G = self.gradient(self.W, layer)
        before = self.q[layer - 1] if layer else self.x
        bend = self.term(layer) * (before @ G.t()).square().sum(0) + self.l2 * G.square().sum(1)
        self.W[layer] = self.W[layer] - G * (G.square().sum(1) / bend)[:, None]
        self.check(f"W {layer}")

    def epoch(self) -> None:
        for layer in reversed(range(self.last + 1)):
            if layer < self.last:
                self.step_q(layer)
            for step in (self.step_z, self.step_b, self.step_W):
                step(layer)
        for layer in range(self.last + 1):
            for step in (self.step_W, self.step_b, self.step_z):
                step(layer)
            if layer < self.last:
                self.step_q(layer)
        self.u = self.u + self.rho * (self.z[-1] - self.a(self.last))
        self.value = self.lagrangian()


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_epochs_are_those_of_the_reference_whose_steps_never_rise(options: dict[str, object]) -> None:
    config, problem, session = make(options)
    reference = Reference(config, problem, session)
    for epoch in range(1, 9):
        row = session.iterate(epoch)
        reference.epoch()
        assert row["objective"] == pytest.approx(reference.value, rel=1e-7)
        residual = reference.z[-1] - reference.a(reference.last)
        assert row["residual"] == pytest.approx(float(residual.norm()), rel=1e-5, abs=1e-9)
    for mine, other in zip(session.weights + session.biases, reference.W + reference.b, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("activation", ["relu", "sigmoid"])
def test_the_objective_falls_where_rho_is_large_enough(activation: str) -> None:
    """Above twice the Lipschitz constant of the risk's gradient, as the theory needs: no weight is above 1.5."""
    _, _, session = make({"nu": 0.1, "rho": 2.0, "activation": activation})
    values = [session.iterate(epoch)["objective"] for epoch in range(1, 41)]
    assert all(later <= earlier + 1e-9 for earlier, later in pairwise(values))
    assert values[-1] < 0.7 * values[0]


def test_tiles_do_not_change_the_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = []
    for tile_rows in (50, 600):
        monkeypatch.setattr(tiles, "MOST_ROWS", tile_rows)
        _, _, session = make({"nu": 0.3, "rho": 2.0})
        rows.append([session.iterate(epoch)["objective"] for epoch in range(1, 4)])
    assert rows[0] == rows[1]


@pytest.mark.parametrize("name", activation_names())
def test_z_is_the_minimiser_without_a_proximal_term_too(name: str) -> None:
    f, generator = get_activation(name), torch.Generator().manual_seed(0)
    a, q, z_old = (3 * torch.randn(300, generator=generator, dtype=torch.float64) for _ in range(3))

    def subproblem(z: Tensor) -> Tensor:
        return (z - a[:, None]) ** 2 + (q[:, None] - f.forward(z, torch.empty_like(z))) ** 2

    found = subproblem(f.z_step(a, q, z_old, 0.0, torch.empty_like(a))[:, None])[:, 0]
    bound = torch.full_like(a, 30.0)
    assert float((found - minimise_1d(subproblem, -bound, bound)).max()) < 1e-5
