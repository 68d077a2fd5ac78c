"""scikit-learn's own checks of estimators, all of them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from sklearn.utils.estimator_checks import parametrize_with_checks

from pdadmm import PdADMMClassifier, PdADMMRegressor

_WEIGHTS = (
    "a weight is the sample's weight in the loss; the layers' own equations, which ADMM adds, count every sample once, "
    "so a sample of weight 2 is not the same as two samples"
)
EXPECTED_FAILURES = {
    "check_sample_weight_equivalence_on_dense_data": _WEIGHTS,
    "check_sample_weight_equivalence_on_sparse_data": _WEIGHTS,
}


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Arrays this small gain nothing from threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def expected_failures(estimator: Any) -> dict[str, str]:
    return EXPECTED_FAILURES


@parametrize_with_checks(  # type: ignore[untyped-decorator]
    [
        PdADMMClassifier(hidden_layer_sizes=(16, 16), max_iter=15),
        # A tenth of the checks' data is less than a sample of each class.
        PdADMMClassifier(hidden_layer_sizes=(16,), max_iter=15, early_stopping=True, validation_fraction=0.3),
        PdADMMRegressor(hidden_layer_sizes=(16, 16), max_iter=15),
    ],
    expected_failed_checks=expected_failures,
)
def test_scikit_learns_checks(estimator: Any, check: Any) -> None:
    check(estimator)


def test_the_check_that_scipy_must_be_told_of() -> None:
    """The check of array API input is skipped unless scipy finds this variable when it is imported."""
    options = ("-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-rs", "-k", "scikit_learns_checks and array_api")
    command = [sys.executable, "-m", "pytest", __file__, *options]
    env = {**os.environ, "SCIPY_ARRAY_API": "1"}
    found = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert found.returncode == 0, found.stdout
    assert "SKIPPED" not in found.stdout
    assert "..." in found.stdout
