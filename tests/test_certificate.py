"""Descent and convergence, as the theory has them, for every solver and activation in float64."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from pdadmm.config import Config
from pdadmm.engine.problem import method_weights
from pdadmm.math.activations import activation_names, get_activation
from pdadmm.math.lagrangian import TOLERANCE, LayerReport, Theory, certain_drop, objective
from problems import ALL_SOLVERS, make_engine, make_problem, solver_id

ITERATIONS = 300
NU = 0.1
SOLVERS = [options for options in ALL_SOLVERS if "step_size" not in options]
# One step size per layer is checked too, with one activation.
CASES = [(options, name) for options in SOLVERS for name in activation_names()] + [(ALL_SOLVERS[2], "relu")]


def theory_rho(activation: str) -> float:
    """4.1 nu S², and above (√17 + 1) nu/2 as well."""
    return max(4.1 * NU * get_activation(activation).lipschitz ** 2, 2.6 * NU)


def run(config: Config, ridge_first: float = 0.0, ridge_last: float = 0.0) -> list[tuple[list[LayerReport], float]]:
    """The reports of each iteration with the fall of L_rho, both sides at the iteration's ridge."""
    engine = make_engine(config, make_problem(config, samples=150))
    weights = method_weights(config)
    value = objective(engine.begin_stage(ridge_first), weights)
    result = []
    for k in range(ITERATIONS):
        ridge = ridge_first + (ridge_last - ridge_first) * k / (ITERATIONS - 1)
        if ridge_first:
            value = objective([b.measure(engine._p_after(i), ridge) for i, b in enumerate(engine.blocks)], weights)
        reports = engine.iterate(ridge)
        after = objective(reports, weights)
        result.append((reports, value - after))
        value = after
    return result


def assert_certified(steps: Sequence[tuple[list[LayerReport], float]], config: Config) -> None:
    weights = method_weights(config)
    for k, (reports, fall) in enumerate(steps):
        needed = certain_drop(reports, weights)
        assert fall >= needed - TOLERANCE * (1 + abs(objective(reports, weights))), (k, fall, needed)


@pytest.mark.parametrize("at_theory", [True, False], ids=["theory", "rho=nu"])
@pytest.mark.parametrize(("options", "activation"), CASES, ids=lambda v: v if isinstance(v, str) else solver_id(v))
def test_every_iteration_falls_by_the_certificate(options: dict[str, str], activation: str, at_theory: bool) -> None:
    rho = theory_rho(activation) if at_theory else NU
    config = Config(
        **options,  # type: ignore[arg-type]
        activation=activation,
        hidden=(8, 8, 8),
        nu=NU,
        rho=rho,
        z_prox=1.0,
        dtype="float64",
    ).resolved()
    steps = run(config)
    assert_certified(steps, config)
    theory = Theory(method_weights(config), get_activation(activation).lipschitz)
    assert theory.holds == at_theory
    if at_theory:
        bounds = [theory.paper_drop(reports) for reports, _ in steps]
        residuals = [math.sqrt(sum(report.residual for report in reports)) for reports, _ in steps]
        least = [min(bounds[: k + 1]) for k in range(ITERATIONS)]
        rate = [(k + 1) * c_k for k, c_k in enumerate(least)]
        print(
            f"{solver_id(options)} {activation}: residual {residuals[-1] / max(residuals):.2e} of its maximum, "
            f"k c_k {rate[-1] / max(rate):.2e} of its maximum"
        )
        # Lemma 1 itself: the paper's bound is a lower bound of the fall, too.
        assert all(fall >= bound - TOLERANCE * (1 + abs(fall)) for (_, fall), bound in zip(steps, bounds, strict=True))
        if options["solver"] != "backtracking":
            assert residuals[-1] < 0.01 * max(residuals)
            assert rate[-1] < 0.1 * max(rate)


@pytest.mark.parametrize("z_relax", [1.0, 1.8])
@pytest.mark.parametrize("z_prox", [0.1, 0.0])
def test_the_projects_own_setting_is_certified(z_prox: float, z_relax: float) -> None:
    """Small z-prox, falling ridge, damping, L2, at rho = nu and below."""
    for rho in (NU, 0.3 * NU):
        config = Config(
            hidden=(8, 8, 8),
            nu=NU,
            rho=rho,
            z_prox=z_prox,
            z_relax=z_relax,
            l2=0.01,
            dtype="float64",
            output_tolerance=1e-2,
        ).resolved()
        assert_certified(run(config, 0.03, 0.001), config)


def test_a_coarse_output_solver_is_certified_by_its_residual() -> None:
    config = Config(
        hidden=(8, 8), nu=NU, dtype="float64", output_solver="fista", output_steps=2, output_tolerance=1e-9
    ).resolved()
    steps = run(config)
    assert max(reports[-1].prox_residual for reports, _ in steps) > 1e-6
    assert_certified(steps, config)


def test_the_warning_has_the_numbers() -> None:
    config = Config(nu=0.01, rho=0.01, z_prox=1.0).resolved()
    warning = Theory(method_weights(config), 1.0).warning()
    assert warning is not None
    assert "rho = 0.01" in warning
    assert "0.04" in warning
    enough = Config(nu=0.01, rho=0.041, z_prox=1.0).resolved()
    assert Theory(method_weights(enough), 1.0).warning() is None


def test_theory_constants_vanish_at_their_bounds() -> None:
    """C_1 is 0 at rho = 4 nu S²/c, C_2 at (√17 + 1) nu/2."""

    def theory(rho: float, z_prox: float) -> Theory:
        return Theory(method_weights(Config(nu=0.2, rho=rho, z_prox=z_prox).resolved()), 0.5)

    assert pytest.approx(0, abs=1e-15) == theory(4 * 0.2 * 0.25 / 0.3, 0.3).C_1
    assert pytest.approx(0, abs=1e-15) == theory((math.sqrt(17) + 1) * 0.1, 0.3).C_2
