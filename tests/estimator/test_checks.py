"""scikit-learn's own checks of estimators, all of them."""

from __future__ import annotations

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
        PdADMMRegressor(hidden_layer_sizes=(16, 16), max_iter=15),
    ],
    expected_failed_checks=expected_failures,
)
def test_scikit_learns_checks(estimator: Any, check: Any) -> None:
    check(estimator)
