"""The estimators as a scikit-learn user meets them."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
import torch
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import pdadmm
from pdadmm import Config, Dataset, Observer, Part, PdADMMClassifier, PdADMMRegressor
from pdadmm.errors import DivergenceError, UserError
from pdadmm.patience import Patience

IRIS: tuple[Any, Any] = load_iris(return_X_y=True)
DIABETES: tuple[Any, Any] = load_diabetes(return_X_y=True)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def classifier(**options: Any) -> PdADMMClassifier:
    return PdADMMClassifier(**{"hidden_layer_sizes": (16, 16), "max_iter": 20, "random_state": 0, **options})


def regressor(**options: Any) -> PdADMMRegressor:
    return PdADMMRegressor(**{"hidden_layer_sizes": (16, 16), "max_iter": 20, "random_state": 0, **options})


def same(one: Any, other: Any) -> bool:
    pairs = zip(one.coefs_ + one.intercepts_, other.coefs_ + other.intercepts_, strict=True)
    return all(np.array_equal(a, b) for a, b in pairs)


def by_hand(estimator: Any, X: Any) -> Any:
    """The network as coefs_ and intercepts_ say, in plain numpy."""
    for coef, intercept in zip(estimator.coefs_[:-1], estimator.intercepts_[:-1], strict=True):
        X = np.maximum(X @ coef + intercept, 0)
    return X @ estimator.coefs_[-1] + estimator.intercepts_[-1]


def test_defaults_are_those_of_the_configuration() -> None:
    params, config = PdADMMClassifier().get_params(), Config()
    for name in ("solver", "rho", "nu", "device"):
        assert params[name] == getattr(config, name)
    assert (params["max_iter"], params["alpha"]) == (config.epochs, config.l2)
    shared = set(params) - {"class_weight"}
    assert {name: params[name] for name in shared} == {name: PdADMMRegressor().get_params()[name] for name in shared}
    assert PdADMMClassifier((8,), "tanh").get_params() == params | {"hidden_layer_sizes": (8,), "activation": "tanh"}


def test_method_reaches_any_option_of_the_training() -> None:
    X, y = IRIS
    options = {
        "ridge": np.float64(0.02),
        "grow": "off",
        "ridge_epochs": np.int64(9),
        "dtype": "float64",
        "scaling": "minmax",
    }
    config = Config(
        hidden=(16, 16), epochs=20, ridge=0.02, grow="off", ridge_epochs=9, dtype="float64", scaling="minmax"
    )
    data = Dataset("iris", Part(X, y), None, tuple("abcd"))
    model = pdadmm.train(config, data, Observer(on_note=lambda note: None)).model
    found = classifier(method=options).fit(X, y)
    np.testing.assert_allclose(found.predict_proba(X), model.predict_proba(X), rtol=1e-9)
    assert clone(found).get_params()["method"] == options


def test_a_fit_is_the_librarys_run() -> None:
    X, y = IRIS
    config = Config(hidden=(16, 16), epochs=20, seed=3, scaling="standard")
    data = Dataset("iris", Part(X, y), None, tuple("abcd"))
    model = pdadmm.train(config, data, Observer(on_note=lambda note: None)).model
    found = classifier(random_state=3).fit(X, y)
    np.testing.assert_array_equal(found.predict(X), model.predict(X))
    np.testing.assert_allclose(found.predict_proba(X), model.predict_proba(X), atol=1e-5)


def test_coefs_are_for_the_features_as_given() -> None:
    X, y = IRIS
    X = X * [1, 1e3, 1e-3, 1] + [0, 1e5, 0, -7]
    found = classifier().fit(X, y)
    z = by_hand(found, X)
    np.testing.assert_allclose(found.decision_function(X), z, rtol=1e-9, atol=1e-9)
    assert found.score(X, y) > 0.9
    assert [coef.shape for coef in found.coefs_] == [(4, 16), (16, 16), (16, 3)]
    assert (found.n_layers_, found.n_outputs_, found.out_activation_, found.n_iter_) == (4, 3, "softmax", 20)
    X, y = DIABETES
    values = regressor().fit(X, y)
    np.testing.assert_allclose(values.predict(X), by_hand(values, X)[:, 0], rtol=1e-9)


@pytest.mark.parametrize(
    "labels", [np.array(["no", "yes"]), np.array([False, True]), np.array([-1, 7]), np.array(["a", "b"], dtype=object)]
)
def test_two_classes_of_any_kind(labels: Any) -> None:
    X, y = load_breast_cancer(return_X_y=True)
    found = classifier().fit(X, labels[y])
    assert found.predict(X).dtype == labels.dtype
    assert found.classes_.tolist() == labels.tolist()
    assert found.score(X, labels[y]) > 0.95
    odds, proba = found.decision_function(X), found.predict_proba(X)
    assert odds.shape == (len(X),)
    np.testing.assert_array_equal(odds > 0, found.predict(X) == labels[1])
    np.testing.assert_allclose(np.log(proba), found.predict_log_proba(X), atol=1e-8)
    assert (found.n_outputs_, found.coefs_[-1].shape) == (2, (16, 2))


def test_regression_of_several_columns_and_by_huber() -> None:
    X, y = DIABETES
    both = regressor().fit(X, np.column_stack([y, -3 * y + 1000]))
    assert both.predict(X).shape == (len(X), 2)
    assert both.score(X, np.column_stack([y, -3 * y + 1000])) > 0.4
    spoiled = y.copy()
    spoiled[::10] += 5000
    errors = [
        np.abs(regressor(loss=loss, method={"huber_delta": 0.02}).fit(X, spoiled).predict(X) - y)
        for loss in ("squared_error", "huber")
    ]
    assert np.median(errors[1]) < np.median(errors[0])


def test_logistic_is_our_sigmoid() -> None:
    assert same(*(classifier(activation=name).fit(*IRIS) for name in ("logistic", "sigmoid")))


def test_alpha_shrinks_the_weights() -> None:
    sizes = [np.linalg.norm(classifier(alpha=alpha).fit(*IRIS).coefs_[0]) for alpha in (0.0, 1.0)]
    assert sizes[1] < 0.5 * sizes[0]


def test_weights_of_samples_and_classes() -> None:
    X, y = IRIS
    rng = np.random.default_rng(0)
    weight = rng.integers(0, 3, len(y)).astype(float)
    kept = weight > 0
    assert same(classifier().fit(X, y, weight), classifier().fit(X[kept], y[kept], weight[kept]))
    assert same(classifier().fit(X, y, weight), classifier().fit(X, y, 4 * weight))
    assert not same(classifier().fit(X, y, weight), classifier().fit(X[kept], y[kept]))
    by_class = {0: 1.0, 1: 2.0, 2: 5.0}
    expected = classifier().fit(X, y, np.array([1.0, 2.0, 5.0])[y])
    assert same(classifier(class_weight=by_class).fit(X, y), expected)
    rare = np.concatenate([np.arange(60), np.arange(100, 150)])  # ten of class 1
    balanced = classifier(class_weight="balanced").fit(X[rare], y[rare])
    factors = len(rare) / (3 * np.bincount(y[rare]))
    assert same(balanced, classifier().fit(X[rare], y[rare], factors[y[rare]]))
    assert not same(regressor().fit(X, y, weight + 1), regressor().fit(X, y))


def test_warm_start_goes_on_from_the_weights() -> None:
    X, y = IRIS
    found = classifier(warm_start=True, max_iter=5, hidden_layer_sizes=(16,)).fit(X, y)
    first, loss = [coef.copy() for coef in found.coefs_], found.loss_
    found.fit(X, y)
    assert found.n_iter_ == 5
    assert len(found.loss_curve_) == 10
    assert found.loss_ < loss
    fresh = classifier(max_iter=5, hidden_layer_sizes=(16,)).fit(X, y)
    assert all(np.array_equal(a, b) for a, b in zip(first, fresh.coefs_, strict=True))
    assert found.loss_curve_[5] < found.loss_curve_[0]
    with pytest.raises(UserError, match="classes of the fit before"):
        found.fit(X, y + 1)
    values = regressor(warm_start=True).fit(*DIABETES)
    loss = values.loss_
    assert values.fit(*DIABETES).loss_ < loss


def test_early_stopping_holds_samples_out() -> None:
    found = classifier(early_stopping=True, validation_fraction=0.2, max_iter=500, n_iter_no_change=5).fit(*IRIS)
    scores = found.validation_scores_
    assert scores is not None
    assert len(scores) == found.n_iter_ < 500
    assert found.best_validation_score_ == max(scores) > 0.8
    assert found.best_loss_ is None
    assert all(score * 30 == pytest.approx(round(score * 30)) for score in scores)
    assert len(found.coefs_) == 3  # it did not stop before the network had grown
    values = regressor(early_stopping=True, max_iter=500, n_iter_no_change=5).fit(*DIABETES)
    assert values.n_iter_ < 500


def test_tol_ends_a_fit() -> None:
    found = classifier(tol=1e-2, n_iter_no_change=2, max_iter=500).fit(*IRIS)
    assert found.n_iter_ < 500
    assert found.loss_ == found.loss_curve_[-1]
    assert found.validation_scores_ is None
    assert found.best_loss_ == min(found.loss_curve_)


def test_patience_counts_rows_of_the_whole_network_alone() -> None:
    rule = Patience("objective", tol=0.1, rounds=1, layers=2)
    for layers, objective, is_over in [(1, 9, False), (1, 9, False), (1, 9, False), (2, 9, False), (2, 8.5, False)]:
        rule.see({"layers": layers, "objective": objective})
        assert rule.is_over == is_over
    rule.see({"layers": 2, "objective": 8.2})  # two rows in a row that were no better by a tenth
    assert rule.is_over
    score = Patience("test_accuracy", tol=0, rounds=0, layers=1)
    for value, is_over in [(0.5, False), (0.6, False), (0.6, True)]:
        score.see({"layers": 1, "test_accuracy": value, "objective": 0})
        assert score.is_over == is_over


def test_pickles_are_small_and_copies_equal(tmp_path: Path) -> None:
    X, y = IRIS
    found = classifier(hidden_layer_sizes=(100, 100)).fit(X, y)
    content = pickle.dumps(found)
    assert len(content) < 8 * sum(coef.size for coef in found.coefs_) + 8000
    assert b"torch" not in content
    joblib.dump(found, tmp_path / "found.joblib")
    for other in (pickle.loads(content), copy.deepcopy(found), joblib.load(tmp_path / "found.joblib", mmap_mode="r")):
        assert same(found, other)
        np.testing.assert_array_equal(found.predict_proba(X), other.predict_proba(X))
    again = clone(found)
    assert again.get_params() == found.get_params()
    with pytest.raises(NotFittedError):
        again.predict(X)


def test_sparse_features_give_what_dense_ones_give() -> None:
    X, y = IRIS
    dense, sparse = classifier().fit(X, y), classifier().fit(csr_array(X), y)
    assert same(dense, sparse)
    np.testing.assert_array_equal(dense.predict_proba(X), sparse.predict_proba(csr_array(X)))


def test_sparse_features_that_memory_cannot_hold_are_refused() -> None:
    X = csr_array((np.ones(3), ([0, 1, 2], [0, 5, 2**40])), shape=(3, 2**41))
    with pytest.raises(MemoryError, match="TruncatedSVD"):
        classifier().fit(X, [0, 1, 1])


def test_a_grid_over_rho_nu_and_widths_in_a_pipeline_of_pandas() -> None:
    frame = load_iris(as_frame=True)
    X, y = frame.data, frame.target.map(lambda index: frame.target_names[index])
    assert isinstance(X, pd.DataFrame)
    grid = {
        "pdadmmclassifier__rho": [0.003, 0.03],
        "pdadmmclassifier__nu": [0.01, 0.1],
        "pdadmmclassifier__hidden_layer_sizes": [(8,), (16, 16)],
    }
    search = GridSearchCV(make_pipeline(StandardScaler(), classifier(max_iter=10)), grid, cv=2, error_score="raise")
    search.fit(X, y)
    assert len(search.cv_results_["params"]) == 8
    assert search.best_score_ > 0.9
    alone = classifier().fit(X, y)
    assert alone.feature_names_in_.tolist() == X.columns.tolist()
    with pytest.raises(ValueError, match="feature names"):
        alone.predict(X[X.columns[::-1]])


def test_cross_validation() -> None:
    assert cross_val_score(classifier(), *IRIS, cv=3).min() > 0.85
    assert (
        cross_val_score(regressor(hidden_layer_sizes=(8,), method={"ridge_final": 0.1}), *DIABETES, cv=3).mean() > 0.25
    )


def test_mistakes_are_named_before_any_work() -> None:
    X, y = IRIS
    mistakes: list[tuple[dict[str, Any], str]] = [
        ({"rho": -1.0}, "rho must be above 0; got -1"),
        ({"max_iter": 0}, "'max_iter' parameter"),
        ({"activation": "swish"}, "activation must be one of relu, .* got 'swish'"),
        ({"solver": "adam"}, "solver must be one of exact, .* got 'adam'"),
        ({"hidden_layer_sizes": (8, 0)}, "hidden widths"),
        ({"method": {"grow": "backwards"}}, "grow must be"),
        (
            {"method": {"ridgefinal": 0.1}},
            "method must have .* got 'ridgefinal' .did you mean ridge_final.*; known: .*z_relax",
        ),
        ({"method": {"nu": 0.1}}, "method must not have 'nu', which the fit's own parameters"),
        ({"method": {"shards": 2}}, "method must have .* got 'shards'"),
        ({"method": {"ridge": "much"}}, "ridge must be a number; got 'much'"),
        ({"method": "ridge"}, "method must be a mapping of options"),
        ({"n_jobs": 0}, "n_jobs"),
        ({"device": "toaster"}, "device must be"),
    ]
    for options, words in mistakes:
        with pytest.raises(ValueError, match=words):
            classifier(**options).fit(X, y)
    with pytest.raises(UserError, match="one class"):
        classifier().fit(X, np.zeros(len(X)))
    with pytest.raises(DivergenceError):
        classifier(method={"scaling": "none"}).fit(X * 1e30, y)


def test_verbose_prints_a_line_an_iteration(capsys: pytest.CaptureFixture[str]) -> None:
    classifier(verbose=True, max_iter=3, early_stopping=True).fit(*IRIS)
    out = capsys.readouterr().out
    assert [f"Iteration {number}, loss = " in out for number in (1, 2, 3, 4)] == [True, True, True, False]
    assert out.count("Validation score: ") == 3
    classifier(max_iter=3).fit(*IRIS)
    assert capsys.readouterr() == ("", "")


def test_a_fit_leaves_torchs_threads_alone() -> None:
    torch.set_num_threads(3)
    classifier(max_iter=1).fit(*IRIS)
    assert torch.get_num_threads() == 3
