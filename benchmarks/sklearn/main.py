"""Does `PdADMMClassifier` take MLPClassifier's place?

Accuracy on held-out samples, mean over folds, and the seconds of a fit, on three small data sets and two larger
generated ones with ten hidden layers. MLPClassifier (Adam) has its defaults but for `hidden_layer_sizes`, and features
scaled by StandardScaler, as we scale inside. Every fit of a row sees the same folds, one after the other, in one run.
All columns may use the same cores: MLPClassifier and ours with n_jobs=1 by threads, ours with n_jobs=2 by processes.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from benchmarks.common import Row, make_parser, parse, report, seconds
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_digits, load_wine, make_classification, make_gaussian_quantiles
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import StratifiedKFold
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from pdadmm import PdADMMClassifier

Samples = tuple[Any, Any]


def generated() -> Samples:
    X, y = make_classification(
        20_000, 50, n_informative=20, n_redundant=10, n_classes=5, n_clusters_per_class=3, random_state=0
    )
    return X, y


def quantiles() -> Samples:
    X, y = make_gaussian_quantiles(n_samples=20_000, n_features=10, n_classes=5, random_state=0)
    return X, y


DATA: dict[str, tuple[Callable[[], Samples], tuple[int, ...], int]] = {
    "digits": (lambda: load_digits(return_X_y=True), (100,), 2),
    "breast cancer": (lambda: load_breast_cancer(return_X_y=True), (100,), 2),
    "wine": (lambda: load_wine(return_X_y=True), (100,), 2),
    "digits, deep": (lambda: load_digits(return_X_y=True), (100,) * 10, 2),
    "make_classification": (generated, (64,) * 10, 1),
    "make_gaussian_quantiles": (quantiles, (64,) * 10, 1),
}
"""The samples, the hidden widths, and how many of five folds are fitted."""


def candidates(hidden: tuple[int, ...], seed: int) -> dict[str, Any]:
    return {
        "MLP": make_pipeline(StandardScaler(), MLPClassifier(hidden, random_state=seed)),
        "ours": PdADMMClassifier(hidden, random_state=seed),
        "ours, n_jobs=2": PdADMMClassifier(hidden, random_state=seed, n_jobs=2),
    }


def measure(name: str, seed: int) -> Row:
    load, hidden, folds = DATA[name]
    X, y = load()
    scores: dict[str, list[float]] = {}
    times: dict[str, list[float]] = {}
    splits = list(StratifiedKFold(5, shuffle=True, random_state=seed).split(X, y))[:folds]
    for train, test in splits:
        for label, candidate in candidates(hidden, seed).items():
            estimator = clone(candidate)
            took = seconds(lambda estimator=estimator, train=train: estimator.fit(X[train], y[train]))  # type: ignore[misc]
            times.setdefault(label, []).append(took)
            scores.setdefault(label, []).append(estimator.score(X[test], y[test]))
    assert scores["ours"] == scores["ours, n_jobs=2"], "workers changed the result"
    mean = {label: float(np.mean(found)) for label, found in times.items()}
    return {
        "data": name,
        "samples × features": f"{len(X):,} × {X.shape[1]}",
        "hidden": f"{len(hidden)} × {hidden[0]}",
        "MLP, accuracy": float(np.mean(scores["MLP"])),
        "ours, accuracy": float(np.mean(scores["ours"])),
        "MLP, s": mean["MLP"],
        "ours, s": mean["ours"],
        "ours, n_jobs=2, s": mean["ours, n_jobs=2"],
        "ours to MLP": mean["ours"] / mean["MLP"],
        "n_jobs=2 to MLP": mean["ours, n_jobs=2"] / mean["MLP"],
    }


COLUMNS = {
    "data": "",
    "samples × features": "",
    "hidden": "",
    "MLP, accuracy": ".3f",
    "ours, accuracy": ".3f",
    "MLP, s": ".2f",
    "ours, s": ".2f",
    "ours, n_jobs=2, s": ".2f",
    "ours to MLP": ".2f",
    "n_jobs=2 to MLP": ".2f",
}


def main() -> None:
    parser = make_parser(__doc__, rounds=1)
    parser.add_argument("--data", action="append", choices=DATA, help="repeatable; default: all")
    parser.add_argument("--seed", type=int, default=0, help="of folds and first weights")
    given = parse(parser)
    warnings.simplefilter("ignore", ConvergenceWarning)  # MLPClassifier's, at its default max_iter
    rows = [measure(name, given.seed) for name in given.data or DATA]
    report(given, "PdADMMClassifier beside MLPClassifier", COLUMNS, rows)


if __name__ == "__main__":
    main()
