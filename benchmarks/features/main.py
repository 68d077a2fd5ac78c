"""Should the last ridge be lower where the data has few features?

By default it is 25/N, with fewer than 196 features in proportion less. Here the estimators learn tables of few features
with that default, with 25/N (`by samples alone`), and beside them scikit-learn's multilayer perceptron does, with its
defaults and scaled features. Scores (accuracy or R²) are of held-out samples, means over seeds, which are those of the
split and of the first weights. Nothing is timed.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from benchmarks.common import Row, make_parser, parse, report
from sklearn.datasets import (
    load_breast_cancer,
    load_diabetes,
    load_wine,
    make_classification,
    make_friedman1,
    make_gaussian_quantiles,
    make_hastie_10_2,
    make_moons,
)
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from pdadmm import PdADMMClassifier, PdADMMRegressor
from pdadmm.session import MOST_FINAL_RIDGE, RIDGE_PER_SAMPLE

Samples = tuple[Any, Any]
HIDDEN = (64,) * 4


def clusters(flipped: float) -> Samples:
    X, y = make_classification(6000, 50, n_informative=20, n_classes=5, flip_y=flipped, random_state=0)
    return X, y


def product() -> Samples:
    generator = np.random.default_rng(0)
    X = generator.uniform(-2, 2, (4000, 2))
    return X, np.sin(2 * X[:, 0]) * X[:, 1] + 0.05 * generator.normal(size=len(X))


DATA: dict[str, tuple[Callable[[], Samples], int]] = {
    "gaussian quantiles": (lambda: make_gaussian_quantiles(n_samples=6000, n_features=10, random_state=0), 4000),
    "hastie": (lambda: make_hastie_10_2(6000, random_state=0), 3000),
    "clusters": (lambda: clusters(0.01), 4000),
    "clusters, 30 % noise": (lambda: clusters(0.3), 4000),
    "moons": (lambda: make_moons(1500, noise=0.3, random_state=0), 500),
    "breast cancer": (lambda: load_breast_cancer(return_X_y=True), 380),
    "wine": (lambda: load_wine(return_X_y=True), 110),
    "friedman1 (R²)": (lambda: make_friedman1(3000, noise=1.0, random_state=0), 1500),
    "sin(2x) y (R²)": (product, 2000),
    "diabetes (R²)": (lambda: load_diabetes(return_X_y=True), 300),
}
"""The samples, and how many of them are trained on."""


def candidates(samples: int, regression: bool, seed: int) -> dict[str, Any]:
    ours, theirs = (PdADMMRegressor, MLPRegressor) if regression else (PdADMMClassifier, MLPClassifier)
    alone = min(MOST_FINAL_RIDGE, RIDGE_PER_SAMPLE / samples)
    return {
        "by samples alone": ours(HIDDEN, method={"ridge_final": alone}, random_state=seed),
        "default": ours(HIDDEN, random_state=seed),
        "MLP": make_pipeline(StandardScaler(), theirs(hidden_layer_sizes=HIDDEN, random_state=seed)),
    }


def measure(name: str, seeds: range) -> Row:
    load, samples = DATA[name]
    X, y = load()
    regression = y.dtype.kind == "f" and len(np.unique(y)) > 10
    scores: dict[str, list[float]] = {}
    for seed in seeds:
        kept = None if regression else y
        X_train, X_test, y_train, y_test = train_test_split(X, y, train_size=samples, random_state=seed, stratify=kept)
        for label, estimator in candidates(samples, regression, seed).items():
            scores.setdefault(label, []).append(estimator.fit(X_train, y_train).score(X_test, y_test))
    means = {label: float(np.mean(found)) for label, found in scores.items()}
    return {"data": name, "samples": samples, "features": X.shape[1], **means}


COLUMNS = {"data": "", "samples": ",", "features": "", "by samples alone": ".3f", "default": ".3f", "MLP": ".3f"}


def main() -> None:
    parser = make_parser(__doc__, rounds=1)
    parser.add_argument("--data", action="append", choices=DATA, help="repeatable; default: all")
    parser.add_argument("--seeds", type=int, default=3, help="average over this many")
    given = parse(parser)
    warnings.simplefilter("ignore", ConvergenceWarning)  # MLP's, at its default max_iter
    rows = [measure(name, range(given.seeds)) for name in given.data or DATA]
    report(given, "The last ridge by the number of features", COLUMNS, rows)


if __name__ == "__main__":
    main()
