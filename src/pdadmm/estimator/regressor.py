"""`PdADMMRegressor`: real values, one column or several, by squared or Huber loss."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import RegressorMixin, _fit_context
from sklearn.utils._param_validation import Interval, StrOptions

from pdadmm.data.arrays import Array
from pdadmm.errors import UserError
from pdadmm.estimator.base import BasePdADMM

_LOSSES = {"squared_error": "squared", "huber": "huber"}


class PdADMMRegressor(RegressorMixin, BasePdADMM):  # type: ignore[misc]  # scikit-learn has no types
    """A deep fully connected regressor, trained without backpropagation, its layers in parallel.

    Parameters and attributes are those of `PdADMMClassifier`, without classes and their weights. y is (n,) or (n, k);
    it is standardised inside, and predictions are in its units.

    Parameters
    ----------
    loss : {"squared_error", "huber"}, default "squared_error"
        What is made small.
    huber_delta : float, default 1
        Where the Huber loss turns linear, in units of y's spread.

    Attributes
    ----------
    validation_scores_ : list of float
        R² on the validation part, or None without early stopping.
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **BasePdADMM._parameter_constraints,
        "loss": [StrOptions(set(_LOSSES))],
        "huber_delta": [Interval(Real, 0, None, closed="neither")],
    }
    out_activation_ = "identity"

    def __init__(
        self,
        hidden_layer_sizes: int | Sequence[int] = (100,),
        activation: str = "relu",
        *,
        loss: str = "squared_error",
        huber_delta: float = 1.0,
        solver: str = "exact",
        alpha: float = 0.0,
        max_iter: int = 100,
        tol: float = 1e-4,
        random_state: int | np.random.RandomState | None = None,
        warm_start: bool = False,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 10,
        verbose: bool | int = False,
        n_jobs: int | None = None,
        scaling: str = "standard",
        rho: float | None = None,
        nu: float | None = None,
        nu_output: float | None = None,
        z_relax: float | None = None,
        damping: float = 0.03,
        ridge: float | None = None,
        ridge_final: float | None = None,
        batches: int = 1,
        grow: str | None = None,
        dtype: str = "float32",
        device: str = "cpu",
    ) -> None:
        self.hidden_layer_sizes = hidden_layer_sizes
        self.activation = activation
        self.loss = loss
        self.huber_delta = huber_delta
        self.solver = solver
        self.alpha = alpha
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.warm_start = warm_start
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.verbose = verbose
        self.n_jobs = n_jobs
        self.scaling = scaling
        self.rho = rho
        self.nu = nu
        self.nu_output = nu_output
        self.z_relax = z_relax
        self.damping = damping
        self.ridge = ridge
        self.ridge_final = ridge_final
        self.batches = batches
        self.grow = grow
        self.dtype = dtype
        self.device = device

    @property
    def _loss(self) -> str:
        return _LOSSES[self.loss]

    @_fit_context(prefer_skip_nested_validation=True)  # type: ignore[untyped-decorator]
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train on these samples; samples of weight 0 are as good as absent, and only the ratios of weights count."""
        return self._fit(X, y, sample_weight, lambda target, weight: weight)

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

    def _stratify(self, y: Array) -> Array | None:
        return None
