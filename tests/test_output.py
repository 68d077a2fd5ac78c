"""The output layer that is evaluated and saved: the minimum of its problem, and nothing else is touched by it."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
import torch
from torch import Tensor

import pdadmm
from pdadmm.config import Config
from pdadmm.engine import output
from pdadmm.engine.output import fit_output, with_fitted_output
from pdadmm.engine.problem import Problem
from pdadmm.math.losses import get_loss
from pdadmm.math.tiles import Tiling, Workspace
from pdadmm.observer import silent
from problems import make_engine, make_problem

LOSSES = ("cross_entropy", "squared", "huber")
RIDGE = 0.01


def features(problem: Problem, width: int = 12) -> Tensor:
    """What some hidden layer might give out; its columns are far from independent, and have a mean."""
    assert problem.train.x is not None
    mixing = torch.randn(problem.num_features, width, generator=torch.Generator().manual_seed(1), dtype=problem.dtype)
    return (problem.train.x @ mixing + 0.5).clamp_(min=0)


def workspace(problem: Problem, width: int = 12, tile_rows: int = 64) -> Workspace:
    return Workspace(Tiling(problem.num_samples, tile_rows, width=width), width, 0, problem.dtype, problem.device)


def fitted(config: Config, problem: Problem, h: Tensor, ridge: float = RIDGE) -> tuple[Tensor, Tensor]:
    W, b = h.new_zeros(problem.num_outputs, h.shape[1]), h.new_zeros(problem.num_outputs)
    return fit_output(get_loss(config), problem, W, b, h, ridge, workspace(problem, h.shape[1]))


def risk(config: Config, problem: Problem, h: Tensor, W: Tensor, b: Tensor, ridge: float = RIDGE) -> Tensor:
    """The function that is to be minimised, written down once more."""
    assert problem.train.y is not None
    assert problem.sample_weight is not None
    loss, weight = get_loss(config), problem.sample_weight
    centred = h - (weight[:, None] * h).sum(0) / weight.sum()
    scale = (weight[:, None] * centred.square()).sum(0).mean()
    value: Tensor = loss.value(h @ W.t() + b, problem.train.y, weight).sum()
    return value + loss.curvature * ridge * scale / 2 * W.square().sum()


@pytest.mark.parametrize("loss", LOSSES)
def test_it_goes_to_the_minimum(loss: str, monkeypatch: pytest.MonkeyPatch) -> None:
    config = Config(loss=loss, dtype="float64").resolved()
    problem = make_problem(config)
    h = features(problem)
    monkeypatch.setattr(output, "STEPS", 3000)
    monkeypatch.setattr(output, "LEAST_CHANGE", 0.0)
    W, b = (value.requires_grad_() for value in fitted(config, problem, h))
    slopes = torch.autograd.grad(risk(config, problem, h, W, b), (W, b))
    zero_W, zero_b = (torch.zeros_like(value, requires_grad=True) for value in (W, b))
    first = torch.autograd.grad(risk(config, problem, h, zero_W, zero_b), (zero_W, zero_b))
    for slope, before in zip(slopes, first, strict=True):
        assert slope.norm() < 1e-8 * before.norm()


@pytest.mark.parametrize("loss", LOSSES)
def test_its_few_steps_take_most_of_the_way(loss: str, monkeypatch: pytest.MonkeyPatch) -> None:
    config = Config(loss=loss, dtype="float64").resolved()
    problem = make_problem(config)
    h = features(problem)
    zero = h.new_zeros(problem.num_outputs, h.shape[1]), h.new_zeros(problem.num_outputs)
    few = float(risk(config, problem, h, *fitted(config, problem, h)))
    monkeypatch.setattr(output, "STEPS", 3000)
    least = float(risk(config, problem, h, *fitted(config, problem, h)))
    assert least <= few < least + 0.05 * (float(risk(config, problem, h, *zero)) - least)


def test_a_squared_loss_needs_one_step(monkeypatch: pytest.MonkeyPatch) -> None:
    config = Config(loss="squared", dtype="float64").resolved()
    problem = make_problem(config)
    h = features(problem)
    many = fitted(config, problem, h)
    monkeypatch.setattr(output, "STEPS", 1)
    for one, other in zip(fitted(config, problem, h), many, strict=True):
        assert torch.allclose(one, other, rtol=1e-9, atol=1e-9)


def test_a_weight_counts_as_so_many_samples() -> None:
    config = Config(dtype="float64").resolved()
    problem = make_problem(config, samples=300)
    h, y, x = features(problem), problem.train.y, problem.train.x
    assert y is not None
    assert x is not None
    times = torch.arange(300) % 3
    weighted = dataclasses.replace(problem, sample_weight=times.double())
    repeated = Problem.whole(
        x.repeat_interleave(times, 0), y.repeat_interleave(times), torch.ones(300, dtype=x.dtype), problem.num_outputs
    )
    for one, other in zip(
        fitted(config, weighted, h), fitted(config, repeated, h.repeat_interleave(times, 0)), strict=True
    ):
        assert torch.allclose(one, other, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("size", [0.1, 1.0, 5.0])
def test_no_loss_curves_more_than_it_says(loss: str, size: float) -> None:
    one, generator = get_loss(Config(loss=loss)), torch.Generator().manual_seed(0)
    z, other, y = (size * torch.randn(500, 4, generator=generator, dtype=torch.float64) for _ in range(3))
    target, weight = y if one.real_valued else y.argmax(1), torch.ones(500, dtype=torch.float64)
    change = one.gradient(z, target, weight) - one.gradient(other, target, weight)
    assert bool((change.norm(dim=1) <= (one.curvature + 1e-12) * (z - other).norm(dim=1)).all())


def test_what_cannot_be_fitted_stays() -> None:
    config = Config().resolved()
    problem = make_problem(config)
    h = features(problem)
    h[3, 2] = math.inf
    W, b = torch.ones(3, 12), torch.zeros(3)
    for one, other in zip(
        fit_output(get_loss(config), problem, W, b, h, RIDGE, workspace(problem)), (W, b), strict=True
    ):
        assert torch.equal(one, other)


def test_features_that_do_not_vary_give_the_shares_of_the_classes() -> None:
    config = Config(dtype="float64").resolved()
    problem = make_problem(config)
    assert problem.train.y is not None
    assert problem.sample_weight is not None
    W, b = fitted(config, problem, torch.full((600, 12), 2.0, dtype=torch.float64))
    shares = torch.zeros(3, dtype=torch.float64).index_add_(0, problem.train.y, problem.sample_weight)
    outputs = b + W.sum(1) * 2
    assert torch.allclose(outputs.softmax(0), shares / shares.sum(), atol=0.01)


def test_the_tiles_do_not_matter() -> None:
    config = Config().resolved()
    problem = make_problem(config, samples=3000)
    h, loss = features(problem), get_loss(config)
    W, b = torch.zeros(3, 12), torch.zeros(3)
    some, others = (fit_output(loss, problem, W, b, h, RIDGE, workspace(problem, 12, rows)) for rows in (64, 512))
    assert all(torch.equal(one, other) for one, other in zip(some, others, strict=True))


def test_an_engine_fits_what_its_network_gives_out() -> None:
    config = Config(hidden=(10, 10), grow="off").resolved()
    problem = make_problem(config)
    engine = make_engine(config, problem)
    engine.begin_stage(0.1)
    for _ in range(3):
        engine.iterate(0.1)
    plain, before = engine.network(), engine.evaluation.score(problem.train, 600)
    seconds = engine.evaluation.fit_output(RIDGE)
    assert seconds > 0
    assert engine.evaluation.fit_output(RIDGE) == 0  # it is there already
    network = engine.network()
    assert all(torch.equal(one, other) for one, other in zip(network.weights[:-1], plain.weights[:-1], strict=True))
    loss = get_loss(config)
    other = with_fitted_output(plain, loss, problem, RIDGE)
    assert torch.allclose(network.weights[-1], other.weights[-1], rtol=1e-3, atol=1e-5)
    assert problem.train.x is not None
    assert problem.train.y is not None
    accuracy = float((network.forward(problem.train.x).argmax(1) == problem.train.y).double().mean())
    assert engine.evaluation.score(problem.train, 600) == accuracy
    engine.iterate(0.1)
    assert torch.equal(engine.network().weights[-1], engine.blocks[-1].state.W)  # a new iteration, a new fit
    assert before != accuracy


def run(**options: Any) -> pdadmm.trainer.Result:
    config = Config(hidden=(30,) * 4, epochs=20, threads=1, **options)
    return pdadmm.train(config, pdadmm.load_data("digits"), silent())


def test_iterates_and_certificate_know_nothing_of_it() -> None:
    on, off = run(), run(fit_output="off")
    ignored = {"seconds", "train_accuracy", "test_accuracy"}
    rows, others = ([{k: row[k] for k in row.keys() - ignored} for row in r.history] for r in (on, off))
    assert rows == others
    for one, other in zip(on.model.network.weights[:-1], off.model.network.weights[:-1], strict=True):
        assert torch.equal(one, other)
    assert not torch.equal(on.model.network.weights[-1], off.model.network.weights[-1])
    assert on.history[-1]["train_accuracy"] >= off.history[-1]["train_accuracy"]


@pytest.mark.parametrize("options", [{}, {"solver": "linearized", "nu": 0.1, "fit_output": "on"}], ids=str)
def test_the_model_is_what_was_evaluated(options: dict[str, Any]) -> None:
    result, data = run(**options), pdadmm.load_data("digits")
    assert data.test is not None
    for part, name in ((data.train, "train_accuracy"), (data.test, "test_accuracy")):
        assert result.model.evaluate(part)["accuracy"] == pytest.approx(result.history[-1][name], abs=1e-9)


def test_how_often_is_evaluated_does_not_matter() -> None:
    often, once = run(), run(evaluate_every=20)
    for one, other in zip(often.model.network.weights, once.model.network.weights, strict=True):
        assert torch.equal(one, other)
