"""`PdADMMRegressor`: real values, one column or several, by squared or Huber loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils._param_validation import StrOptions

from pdadmm.data.arrays import Array
from pdadmm.errors import UserError
from pdadmm.estimator.base import BasePdADMM

_LOSSES = {"squared_error": "squared", "huber": "huber"}


@dataclass(repr=False, eq=False, kw_only=True)
class PdADMMRegressor(RegressorMixin, BasePdADMM):  # type: ignore[misc]  # scikit-learn has no types
    """A deep fully connected regressor, trained without backpropagation, its layers in parallel.

    Parameters and attributes are those of `PdADMMClassifier`, without classes and their weights. y is (n,) or (n, k);
    it is standardised inside, and predictions are in its units.

    Parameters
    ----------
    loss : {"squared_error", "huber"}, default "squared_error"
        What is made small; `method={"huber_delta": 2.0}` moves where Huber's turns linear, in units of y's spread.

    Attributes
    ----------
    validation_scores_ : list of float
        R² on the validation part, or None without early stopping.
    """

    loss: str = "squared_error"

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **BasePdADMM._parameter_constraints,
        "loss": [StrOptions(set(_LOSSES))],
    }
    out_activation_ = "identity"

    @property
    def _loss(self) -> str:
        return _LOSSES[self.loss]

    def predict(self, X: Any) -> Array:
        """Values in the units of y, (n,) if y was."""
        z = self._outputs(X)
        return z[:, 0] if self._preprocessor.target_is_1d else z

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _encode(self, y: Array, reset: bool) -> Array:
        y = np.asarray(y, dtype=np.float64)
        columns = 1 if y.ndim == 1 else y.shape[1]
        if not reset and columns != self.n_outputs_:
            raise UserError(
                f"y must have the {self.n_outputs_} columns of the fit before with warm_start; got {columns}"
            )
        return y
