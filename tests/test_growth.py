"""Growth: schedules, which layers exist when, and that what was learned is kept."""

from __future__ import annotations

import pytest
import torch

from pdadmm import growth
from pdadmm.config import Config
from pdadmm.engine.core import Engine
from pdadmm.engine.problem import method_weights
from pdadmm.errors import UserError
from pdadmm.math.activations import Activations, activation_names, get_activation, get_activations
from pdadmm.math.lagrangian import TOLERANCE, certain_drop, objective
from pdadmm.network import Network, deepen
from problems import ALL_SOLVERS, make_problem, solver_id


def relu(hidden: tuple[int, ...]) -> list[growth.Kind]:
    return [(width, "relu") for width in hidden]


@pytest.mark.parametrize(
    ("text", "depth", "epochs", "pairs"),
    [
        ("off", 9, 100, [(0, 9)]),
        ("auto", 9, 100, [(0, 2), (50, 9)]),
        ("auto", 9, 10, [(0, 2), (5, 9)]),
        ("auto", 9, 1, [(0, 9)]),
        ("auto", 2, 100, [(0, 2)]),
        ("1+1@2", 3, 100, [(0, 1), (2, 2), (4, 3)]),
        ("2+3@5", 9, 100, [(0, 2), (5, 5), (10, 8), (15, 9)]),
        ("0:5,20:all", 9, 100, [(0, 5), (20, 9)]),
        ("0:5,20:all", 4, 100, [(0, 4), (20, 4)]),
    ],
)
def test_schedules(text: str, depth: int, epochs: int, pairs: list[tuple[int, int]]) -> None:
    assert growth.parse_schedule(text, depth, epochs) == pairs


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sometimes", "must be off, auto"),
        ("1:2,5:9", "begin at epoch 0"),
        ("0:0,5:9", "at least one layer"),
        ("0:2,5:4,3:9", "rising epochs"),
        ("0:4,5:2", "rising epochs and depths"),
        ("0:2,5:4", "all 9 hidden layers"),
        ("0:2,100:9", "only 100 epochs"),
        ("0+1@2", "at least 1"),
    ],
)
def test_schedules_that_make_no_sense(text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        growth.parse_schedule(text, 9, 100)


def test_layers_join_behind_the_first_of_their_width() -> None:
    hidden = (20, 20, 20, 10, 10, 5)
    found = growth.stages(relu(hidden), [(0, 1), (3, 4), (6, 6)])
    assert [(stage.epoch, stage.layers) for stage in found] == [
        (0, (0, 3, 5)),
        (3, (0, 1, 3, 5)),
        (6, (0, 1, 2, 3, 4, 5)),
    ]


def test_where_no_width_repeats_there_is_one_stage() -> None:
    assert len(growth.stages(relu((30, 20, 10)), [(0, 1), (3, 3)])) == 1
    assert growth.why_not(relu((30, 20, 10)), {"relu"}) is not None
    assert growth.why_not([(20, "tanh"), (20, "tanh")], {"relu"}) is not None
    assert growth.why_not(relu((20, 20)), {"relu"}) is None


@pytest.mark.parametrize("options", ALL_SOLVERS, ids=solver_id)
@pytest.mark.parametrize("activation", ["relu", "hardtanh", "identity"])
def test_growing_keeps_the_function(options: dict[str, str], activation: str) -> None:
    config = Config(**options, activation=activation, hidden=(9, 9, 9, 6, 6), dtype="float64").resolved()  # type: ignore[arg-type]
    problem = make_problem(config)
    x = problem.train.x
    assert x is not None
    engine = Engine(config, problem, (0, 3))
    engine.build()
    engine.begin_stage(0.01)
    for _ in range(5):
        engine.iterate(0.01)
    before = engine.network().forward(x)
    engine.grow((0, 1, 2, 3, 4))
    assert [len(block.state.b) for block in engine.blocks] == [9, 9, 9, 6, 6, 3]
    torch.testing.assert_close(engine.network().forward(x), before)
    engine.begin_stage(0.01)
    engine.iterate(0.01)
    for block in engine.blocks:
        state = block.state
        if state.a is not None:
            torch.testing.assert_close(state.a, state.p @ state.W.T + state.b)


@pytest.mark.parametrize("options", ALL_SOLVERS, ids=solver_id)
def test_the_ridge_pulls_a_layer_that_joined_to_the_identity(options: dict[str, str]) -> None:
    config = Config(**options, hidden=(9, 9, 9), dtype="float64").resolved()  # type: ignore[arg-type]
    problem, ridge = make_problem(config), 3.0
    weights = method_weights(config)
    engine = Engine(config, problem, (0,))
    engine.build()
    engine.begin_stage(ridge)
    engine.iterate(ridge)
    engine.grow((0, 1, 2))
    reports = engine.begin_stage(ridge)
    assert [report.ridge > 0 for report in reports] == [True, False, False, True]
    assert [block.state.is_inserted for block in engine.blocks] == [False, True, True, False]
    joined, after = engine.blocks[1], engine.blocks[2]
    message, p_after = engine.blocks[0].message, after.p_tile
    assert joined.stationarity(message, p_after, 0.0) == joined.stationarity(message, p_after, 100.0)
    before = objective(reports, weights)
    for _ in range(10):
        reports = engine.iterate(ridge)
        now = objective(reports, weights)
        assert before - now >= certain_drop(reports, weights) - TOLERANCE * (1 + abs(now))
        before = now
    if config.solver == "exact":
        for _ in range(60):  # W goes past its minimiser and comes back
            engine.iterate(1e9)
        assert torch.allclose(joined.state.W, torch.eye(9, dtype=torch.float64), atol=1e-4)
        assert torch.allclose(engine.blocks[0].state.W, torch.zeros(9, 7, dtype=torch.float64), atol=1e-4)


def test_a_fresh_output_layer_is_drawn_anew() -> None:
    config = Config(hidden=(9, 9), grow_output="fresh").resolved()
    engine = Engine(config, make_problem(config), (0,))
    engine.build()
    engine.begin_stage(0.0)
    engine.iterate(0.0)
    before = engine.network().weights[-1]
    engine.grow((0, 1))
    after = engine.network().weights[-1]
    assert not torch.allclose(before, after)
    assert set(engine.blocks[-1].state.z.unique().tolist()) == {-1.0, 1.0}


@pytest.mark.parametrize("activation", activation_names())
def test_deepening_keeps_the_function_where_f_is_idempotent(activation: str) -> None:
    f = get_activation(activation)
    shapes = [(6, 4), (8, 6), (3, 8)]
    generator = torch.Generator().manual_seed(0)
    weights, biases = [torch.randn(s, generator=generator) for s in shapes], [torch.randn(s[0]) for s in shapes]
    network = Network(weights, biases, Activations((f, f)))
    deeper = deepen(network, (6, 6, 6, 8, 8), get_activations(activation, 5))
    assert deeper.hidden == (6, 6, 6, 8, 8)
    x = torch.randn(20, 4, generator=generator)
    assert torch.allclose(network.forward(x), deeper.forward(x), atol=1e-5) == f.idempotent


def test_what_cannot_be_reached_by_deepening_is_refused() -> None:
    with pytest.raises(UserError, match="6,7 cannot be reached from 6"):
        growth.embed(relu((6,)), relu((6, 7)))
    with pytest.raises(UserError, match="cannot be reached"):
        growth.embed(relu((6, 8)), relu((6, 6)))


def test_an_identity_layer_joins_behind_a_layer_with_its_activation() -> None:
    mixed = [(6, "tanh"), (6, "relu"), (6, "relu"), (6, "hardtanh")]
    assert growth.joining(mixed) == [2]
    assert growth.why_not(mixed, {"relu"}) is None
    assert "tanh" in str(growth.why_not([(6, "tanh"), (6, "tanh"), (6, "relu")], {"relu"}))
    assert "same activation" in str(growth.why_not([(6, "tanh"), (6, "relu")], {"relu"}))
    assert growth.embed([(6, "tanh"), (6, "relu")], [(6, "tanh"), (6, "relu"), (6, "relu")]) == [0, 1, None]
    with pytest.raises(UserError, match="and its activation"):
        growth.embed([(6, "tanh"), (6, "relu")], [(6, "tanh"), (6, "tanh"), (6, "hardtanh")])


@pytest.mark.parametrize("options", ALL_SOLVERS, ids=solver_id)
def test_growing_with_mixed_activations_keeps_the_function(options: dict[str, str]) -> None:
    config = Config(**options, hidden=(9, 9, 9, 5), activation="tanh,2xrelu,leaky_relu", dtype="float64").resolved()  # type: ignore[arg-type]
    problem = make_problem(config, samples=300)
    engine = Engine(config, problem, (0, 1, 3))
    engine.build()
    engine.begin_stage(0.02)
    engine.iterate(0.02)
    assert problem.train.x is not None
    before = engine.network().forward(problem.train.x)
    assert engine.network().activations.name == "tanh,relu,leaky_relu"
    engine.grow((0, 1, 2, 3))
    assert engine.network().activations.name == config.activation
    assert torch.allclose(engine.network().forward(problem.train.x), before, atol=1e-12)
