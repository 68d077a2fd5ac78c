"""The whole way from data to a model, as a library user goes it."""

from __future__ import annotations

import dataclasses
import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import pdadmm
from pdadmm import Config, Dataset, Observer, Part
from pdadmm.engine.score import Scorer
from pdadmm.errors import DivergenceError, PdadmmWarning, UserError
from pdadmm.history import KEYS, Row
from pdadmm.session import final_ridge


def quiet(rows: list[Row] | None = None, stop_after: int = 10**9) -> Observer:
    seen: list[Row] = [] if rows is None else rows
    return Observer(on_row=seen.append, on_note=lambda note: None, should_stop=lambda: len(seen) + 1 >= stop_after)


def blobs(regression: bool = False, samples: int = 300) -> Dataset:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(samples, 5))
    score = np.tanh(X @ rng.normal(size=5)) + X[:, 0] * 0.3
    y = score * 40 + 1000 if regression else np.where(score > 0, "yes", "no")
    cut = samples * 4 // 5
    return Dataset("blobs", Part(X[:cut], y[:cut]), Part(X[cut:], y[cut:]), tuple("abcde"))


SMALL = Config(hidden=(16, 16, 16), epochs=30)


def test_digits_reach_the_promised_accuracy() -> None:
    result = pdadmm.train(Config(), pdadmm.load_data("digits"), quiet())
    assert result.history[-1]["test_accuracy"] >= 0.97
    assert result.model.network.hidden == (100,) * 9
    assert all(row["certified"] for row in result.history)


def test_rows_have_the_documented_keys_and_the_last_the_scores() -> None:
    rows: list[Row] = []
    config = Config(hidden=(16, 16, 16), epochs=7, evaluate_every=3, stationarity_every=2, nu=0.1, rho=5.0, z_prox=1.0)
    result = pdadmm.train(config, blobs(), quiet(rows))
    assert rows == result.history
    assert all(set(row) <= set(KEYS) for row in rows)
    assert [row["epoch"] for row in rows] == list(range(1, 8))
    assert ["test_accuracy" in row for row in rows] == [False, False, True, False, False, True, True]
    assert ["stationarity" in row for row in rows] == [False, True, False, True, False, True, True]
    assert all(row["c_k"] <= row["paper_drop"] and math.isfinite(row["seconds"]) for row in rows)
    assert [row.get("grown") for row in rows] == [None, None, None, 1, None, None, None]


def test_the_objective_only_falls_within_a_stage_where_the_theory_holds() -> None:
    config = Config(hidden=(16, 16, 16), epochs=30, dtype="float64", nu=0.1, rho=0.5, z_prox=1.0, ridge_epochs=30)
    rows = pdadmm.train(config, blobs(), quiet()).history
    for before, after in pairwise(rows):
        assert after["certified"]
        assert "grown" in after or after["objective"] <= before["objective"]
        assert after["ridge"] < before["ridge"]


@pytest.mark.parametrize(
    ("ridge_samples", "last_fall"),
    [(None, 21), (240, 21), (120, 11), (1, 5)],  # never more than five times as fast
)
def test_the_ridge_falls_sooner_with_many_samples(ridge_samples: int | None, last_fall: int) -> None:
    schedule = Config(ridge=0.1, ridge_final=0.001, ridge_epochs=21, ridge_samples=ridge_samples)
    config = dataclasses.replace(schedule, hidden=(8,), epochs=31, dtype="float64")
    rows = pdadmm.train(config, blobs(), quiet()).history  # on 240 samples
    assert all(row["certified"] for row in rows)
    assert rows[0]["ridge"] == 0.1
    assert [row["ridge"] <= 0.001 for row in rows] == [row["epoch"] >= last_fall for row in rows]


@pytest.mark.parametrize(
    ("samples", "features", "expected"),
    [
        (55_000, 196, 25 / 55_000),
        (10_000, 768, 25 / 10_000),  # more features than 196 change nothing
        (20_000, 49, 6.25 / 20_000),  # a quarter of them
        (100, 49, 0.005),  # never more than this
    ],
)
def test_the_last_ridge_is_by_the_shape_of_the_data(samples: int, features: int, expected: float) -> None:
    assert final_ridge(0.1, None, samples, features) == pytest.approx(expected)
    assert final_ridge(0.1, 0.03, samples, features) == 0.03  # as it is told
    assert final_ridge(1e-6, None, samples, features) == 1e-6  # it never rises


def test_a_run_ends_with_the_ridge_of_its_data() -> None:
    data = blobs()
    last = pdadmm.train(Config(hidden=(8,), epochs=5), data, quiet()).history[-1]
    assert last["ridge"] == final_ridge(0.1, None, *data.train.X.shape)


def test_epochs_of_the_ridge_that_are_given_hold_for_any_number_of_samples() -> None:
    assert Config().resolved().ridge_samples == 25_000
    given = Config(ridge_epochs=40).resolved()
    assert (given.ridge_epochs, given.ridge_samples) == (40, None)
    again = Config.from_mapping(Config(epochs=95).resolved().to_mapping()).resolved()  # as config.toml has it
    assert (again.ridge_epochs, again.ridge_samples) == (57, 25_000)


@pytest.mark.parametrize("loss", ["squared", "huber"])
def test_regression_learns_and_predicts_in_the_units_of_y(loss: str) -> None:
    data = blobs(regression=True)
    result = pdadmm.train(Config(hidden=(64, 64), epochs=60, loss=loss), data, quiet())
    assert result.history[-1]["test_r2"] > 0.93  # a linear fit reaches 0.89
    assert data.test is not None
    predicted = result.model.predict(data.test.X)
    assert predicted.shape == data.test.y.shape
    assert result.model.evaluate(data.test)["r2"] == pytest.approx(result.history[-1]["test_r2"], abs=1e-4)
    assert abs(float(predicted.astype(float).mean()) - 1000) < 20


def test_labels_come_back_as_they_were(tmp_path: Path) -> None:
    data = blobs()
    result = pdadmm.train(SMALL, data, quiet())
    assert data.test is not None
    assert set(result.model.predict(data.test.X).tolist()) == {"yes", "no"}
    path = tmp_path / "model.safetensors"
    result.model.save(path)
    loaded = pdadmm.load_model(path)
    assert (loaded.predict(data.test.X) == result.model.predict(data.test.X)).all()
    np.testing.assert_array_equal(loaded.predict_proba(data.test.X), result.model.predict_proba(data.test.X))
    assert loaded.evaluate(data.test)["accuracy"] == result.history[-1]["test_accuracy"]


def test_the_same_seed_gives_the_same_bits_and_another_does_not() -> None:
    runs = [pdadmm.train(Config(hidden=(16, 16, 16), epochs=5, seed=seed), blobs(), quiet()) for seed in (1, 1, 2)]
    first, again, other = (run.model.network.weights for run in runs)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first[0], other[0])


@pytest.mark.parametrize("options", [{}, {"solver": "linearized", "nu": 0.1}], ids=["exact", "linearized"])
def test_float32_follows_float64(options: dict[str, object]) -> None:
    ends = []
    for dtype in ("float32", "float64"):
        config = Config(hidden=(16, 16, 16), epochs=5, dtype=dtype, **options)  # type: ignore[arg-type]
        ends.append(pdadmm.train(config, blobs(), quiet()).history[-1]["objective"])
    assert ends[0] == pytest.approx(ends[1], rel=1e-3)


def test_sample_weights_of_zero_are_as_good_as_absence_to_the_loss() -> None:
    """Samples of weight 0 with wrong labels do not spoil what is learned."""
    data = blobs(samples=600)
    wrong = np.where(data.train.y == "yes", "no", "yes")
    weight = np.ones(len(wrong))
    weight[::3] = 0
    y = np.where(weight == 0, wrong, data.train.y)
    spoiled = Dataset("spoiled", Part(data.train.X, y, weight), data.test, data.feature_names)
    assert pdadmm.train(SMALL, spoiled, quiet()).history[-1]["test_accuracy"] > 0.85


def test_balanced_classes_raise_the_rare_class() -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(1000, 4))
    y = (X[:, 0] + 0.8 * rng.normal(size=1000) > 1.6).astype(int)
    data = Dataset("rare", Part(X, y), None, tuple("abcd"))
    found = []
    for class_weight in ("none", "balanced"):
        config = Config(hidden=(8,), epochs=20, class_weight=class_weight)
        found.append(int(pdadmm.train(config, data, quiet()).model.predict(X).sum()))
    assert found[1] > found[0]


def test_stopping_by_tolerance_and_on_request() -> None:
    config = Config(hidden=(16, 16), epochs=2000, grow="off", tolerance=1e-3)
    result = pdadmm.train(config, blobs(), quiet())
    assert result.status == "converged"
    assert len(result.history) < 2000
    assert "tolerance" in result.advice
    stopped = pdadmm.train(SMALL, blobs(), quiet(stop_after=4))
    assert stopped.status == "interrupted"
    assert len(stopped.history) == 4
    assert "test_accuracy" in stopped.history[-1]


def test_numbers_that_diverge_name_layer_variable_and_epoch() -> None:
    data = blobs()
    huge = Dataset("huge", Part(data.train.X * 1e30, data.train.y), None, data.feature_names)
    with pytest.raises(DivergenceError, match=r"layer \d .* in epoch \d"):
        pdadmm.train(Config(hidden=(16, 16), epochs=5, scaling="none"), huge, quiet())


def test_the_theory_warning_reaches_library_users() -> None:
    with pytest.warns(PdadmmWarning, match="outside the paper's convergence theorems"):
        pdadmm.train(Config(hidden=(8,), epochs=1, grow="off"), blobs())


def test_networks_that_cannot_grow_start_whole_and_say_so() -> None:
    notes: list[str] = []
    observer = Observer(on_note=notes.append)
    for config in (Config(hidden=(12, 8), epochs=4), Config(hidden=(8, 8, 8), epochs=4, activation="tanh")):
        result = pdadmm.train(config, blobs(), observer)
        assert all(row["layers"] == len(config.hidden) for row in result.history)
    assert sum("starts whole" in note for note in notes) == 2


def test_the_papers_algorithm_is_what_linearized_means() -> None:
    config = Config(solver="linearized").resolved()
    assert (config.grow, config.ridge, config.nu_output, config.z_prox) == ("off", 0.0, config.nu, 1.0)


def test_bad_data_is_refused_before_any_work() -> None:
    data = blobs()
    X = data.train.X.copy()
    X[3, 2] = np.nan
    with pytest.raises(UserError, match="X"):
        pdadmm.train(SMALL, Dataset("bad", Part(X, data.train.y), None, data.feature_names), quiet())


def r2(z: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    """In two batches."""
    scorer = Scorer(True, y.shape[1])
    for rows in (slice(0, 3), slice(3, None)):
        scorer.add(torch.from_numpy(z[rows]), torch.from_numpy(y[rows]))
    return scorer.result(scorer.sums, len(y))


def test_r2_is_scikit_learns() -> None:
    from sklearn.metrics import r2_score

    rng = np.random.default_rng(0)
    y, z = rng.normal(size=(50, 2)), rng.normal(size=(50, 2))
    assert r2(z, y) == pytest.approx(r2_score(y, z))
    constant = np.full((7, 1), 0.3)
    assert (r2(constant, constant), r2(constant + 1, constant)) == (1.0, 0.0)
