"""The fast path against the plain reference, for every solver, activation and loss."""

from __future__ import annotations

import pytest
import torch

from pdadmm.config import Config
from pdadmm.engine.problem import method_weights
from pdadmm.math import tiles
from pdadmm.math.activations import activation_names
from pdadmm.math.lagrangian import objective
from pdadmm.math.losses import loss_names
from pdadmm.math.subproblems import Weights
from problems import ALL_SOLVERS, make_engine, make_problem, solver_id
from reference import Reference

# Odd sizes: the last tile of a chunk is smaller than the others, and widths differ from layer to layer.
# The output's solver stops tile by tile, so it is asked for all digits where tiles are compared with whole arrays.
MIXED = "tanh,leaky_relu,sigmoid,relu"
SHAPE = {"hidden": (9, 12, 12, 5), "output_tolerance": 1e-13}


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiles, "MOST_ROWS", 37)


def compare(config: Config, iterations: int, ridge: float) -> float:
    problem = make_problem(config)
    engine = make_engine(config, problem)
    weights: Weights = method_weights(config)
    began = objective(engine.begin_stage(ridge), weights)
    reference = Reference.of(engine, config, problem)
    assert began == pytest.approx(float(reference.lagrangian(ridge)), rel=1e-5)
    for _ in range(iterations):
        reports = engine.iterate(ridge)
        reference.iterate(ridge)
    assert objective(reports, weights) == pytest.approx(float(reference.lagrangian(ridge)), rel=1e-5)
    return reference.largest_difference(engine.blocks)


@pytest.mark.parametrize("activation", [*activation_names(), MIXED])
@pytest.mark.parametrize("options", ALL_SOLVERS, ids=solver_id)
def test_ten_iterations_in_float64(options: dict[str, str], activation: str) -> None:
    config = Config(**options, **SHAPE, activation=activation, dtype="float64", nu=0.1, rho=0.2, l2=0.01).resolved()  # type: ignore[arg-type]
    assert compare(config, 10, ridge=0.02) < 1e-10


@pytest.mark.parametrize("activation", activation_names())
@pytest.mark.parametrize("options", ALL_SOLVERS, ids=solver_id)
def test_z_past_its_minimiser_in_float64(options: dict[str, str], activation: str) -> None:
    given = {**options, **SHAPE, "activation": activation, "dtype": "float64", "nu": 0.1, "rho": 0.2, "l2": 0.01}
    config = Config.from_mapping({**given, "z_relax": 1.8}).resolved()
    assert compare(config, 10, ridge=0.02) < 1e-10


@pytest.mark.parametrize("loss", loss_names())
@pytest.mark.parametrize("options", ALL_SOLVERS, ids=solver_id)
def test_every_loss_in_float64(options: dict[str, str], loss: str) -> None:
    config = Config(**options, **SHAPE, loss=loss, dtype="float64").resolved()  # type: ignore[arg-type]
    assert compare(config, 10, ridge=0.0) < 1e-10


@pytest.mark.parametrize(
    "chosen", [{"activation": name} for name in activation_names()] + [{"loss": name} for name in loss_names()], ids=str
)
@pytest.mark.parametrize("options", ALL_SOLVERS, ids=solver_id)
def test_one_iteration_in_float32(
    options: dict[str, str], chosen: dict[str, str], request: pytest.FixtureRequest
) -> None:
    if (options["solver"], chosen.get("activation")) == ("exact", "sigmoid"):
        reason = "p has a large mean and little spread: centring pᵀp after it is summed loses digits in float32"
        request.applymarker(pytest.mark.xfail(strict=True, reason=reason))
    config = Config(**options, **chosen, **{**SHAPE, "output_tolerance": 1e-6}).resolved()  # type: ignore[arg-type]
    assert config.w_relax is not None
    # A step that goes further than the minimiser takes the rounding of the minimiser along.
    assert compare(config, 1, ridge=0.02) < 1e-5 * config.w_relax


@pytest.mark.parametrize("options", ALL_SOLVERS, ids=solver_id)
@pytest.mark.parametrize("activation", ["relu", "hardtanh", "tanh", MIXED])
def test_stationarity_is_the_norm_of_autograds_gradients(options: dict[str, str], activation: str) -> None:
    config = Config(**options, **SHAPE, activation=activation, dtype="float64", nu=0.1, rho=0.3, l2=0.01).resolved()  # type: ignore[arg-type]
    problem = make_problem(config)
    engine = make_engine(config, problem)
    engine.begin_stage(0.02)
    for _ in range(3):
        engine.iterate(0.02)
    reference = Reference.of(engine, config, problem)
    variables = [reference.p[1:], reference.W, reference.b, reference.z, reference.q, reference.u]
    leaves = [variable.requires_grad_() for group in variables for variable in group]
    gradients = torch.autograd.grad(reference.lagrangian(0.02), leaves)
    with torch.no_grad():
        by_autograd = float(sum((g**2).sum() for g in gradients)) ** 0.5
    found = engine.stationarity(0.02)
    # At a kink autograd takes one side; ours takes the least element, so it may be smaller there.
    assert found <= by_autograd * (1 + 1e-9)
    assert found == pytest.approx(by_autograd, rel=1e-9 if activation == "tanh" else 0.05)


@pytest.mark.parametrize("options", ALL_SOLVERS, ids=solver_id)
def test_bits_do_not_depend_on_the_number_of_threads(options: dict[str, str]) -> None:
    """Widths where factorisations are threaded, and an output with few rows."""
    before = torch.get_num_threads()
    ends = []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            config = Config(**options, hidden=(230, 230), epochs=3).resolved()  # type: ignore[arg-type]
            engine = make_engine(config, make_problem(config, samples=1500, features=70, outputs=10))
            engine.begin_stage(0.02)
            reports = [engine.iterate(0.02) for _ in range(3)]
            ends.append((engine, reports))
    finally:
        torch.set_num_threads(before)
    (one, one_reports), (two, two_reports) = ends
    for left, right in zip(one.blocks, two.blocks, strict=True):
        for name in ("W", "b", "p", "z", "q"):
            mine, theirs = getattr(left.state, name), getattr(right.state, name)
            assert mine is theirs is None or torch.equal(mine, theirs), name
    assert one_reports == two_reports


@pytest.mark.parametrize("activation", ["relu", "hardtanh", "tanh", "sigmoid", "tanh,leaky_relu"])
@pytest.mark.parametrize("options", ALL_SOLVERS, ids=solver_id)
def test_bits_do_not_depend_on_the_tiles(
    options: dict[str, str], activation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = []
    for rows in (64, 256, 4096):
        monkeypatch.setattr(tiles, "MOST_ROWS", rows)
        config = Config(**options, hidden=(70, 100), activation=activation).resolved()  # type: ignore[arg-type]
        engine = make_engine(config, make_problem(config, samples=1300))
        engine.begin_stage(0.02)
        reports = [engine.iterate(0.02) for _ in range(2)]
        ends.append((engine, reports))
    first, first_reports = ends[0]
    for other, other_reports in ends[1:]:
        for left, right in zip(first.blocks, other.blocks, strict=True):
            for name in ("W", "b", "p", "z", "q"):
                mine, theirs = getattr(left.state, name), getattr(right.state, name)
                assert mine is theirs is None or torch.equal(mine, theirs), name
        assert first_reports == other_reports
