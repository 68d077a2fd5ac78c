"""`PdADMMClassifier`: classes by softmax and cross-entropy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils import compute_class_weight
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from pdadmm.data.arrays import Array, shorten
from pdadmm.errors import UserError
from pdadmm.estimator.base import BasePdADMM


@dataclass(repr=False, eq=False, kw_only=True)
class PdADMMClassifier(ClassifierMixin, BasePdADMM):  # type: ignore[misc]  # scikit-learn has no types
    """A deep fully connected classifier, trained without backpropagation, its layers in parallel.

    It takes the place of `sklearn.neural_network.MLPClassifier`; docs/sklearn.md says where the two differ.

    Parameters
    ----------
    hidden_layer_sizes : array-like of int, default (100,)
        The widths of the hidden layers.
    activation : str, default "relu"
        "relu", "leaky_relu", "hardtanh", "identity", "tanh", "sigmoid" or, the same, "logistic".
    solver : {"exact", "linearized", "backtracking"}, default "exact"
        How the weights are found; the last two are the paper's.
    nu, rho : float or None, default None
        Weights of the layers' equations z = W p + b, and of p = q between layers; None chooses well.
    method : mapping or None, default None
        All other options of the training, by their names in `pdadmm.Config`, such as `{"ridge": 0.01, "grow": "off"}`.
        Features are scaled inside unless it has `"scaling": "none"`; `coefs_` and `intercepts_` are for the features
        as they are given. `"dtype"` is the arithmetic of the training; predictions are evaluated in float64.
    alpha : float, default 0
        alpha/2 |W|² beside the summed loss, as scikit-learn has it. The loss reaches hidden layers through equations of
        weight `nu`, so it acts more strongly here: 1e-4 does nothing, 1 much. The ridge acts beside it.
    max_iter : int, default 100
        Iterations; each goes over all samples. Ridge and growth are planned by it.
    tol, n_iter_no_change : float, default 1e-4; int, default 10
        Training ends after more than `n_iter_no_change` iterations in a row that lower the loss by less than `tol`
        times its value, or raise the validation score by less than `tol`; not before the network has all its layers.
    random_state : int, RandomState or None
        Of the first weights and of the validation part. An int is the seed of `pdadmm.Config` itself.
    warm_start : bool, default False
        Go on from the weights (and the scaling) of the last fit, without growth and at the last ridge.
    early_stopping, validation_fraction : bool, default False; float, default 0.1
        Hold out a (stratified) share of the samples and watch its score. The weights are those of the last iteration.
    verbose : bool or int, default False
        Print a line an iteration, and notes.
    n_jobs : int or None, default None
        Processes that the layers are spread over, with the same result; -1 for all cores. Inside joblib's workers it
        divides the worker's share of the cores.
    class_weight : dict, "balanced" or None
        Weights of the classes in the loss.
    device : str, default "cpu"
        torch's name of the device that trains.

    Attributes
    ----------
    classes_ : ndarray
        The labels.
    coefs_, intercepts_ : list of ndarray
        Weights (n_in, n_out) and biases of each layer, in float64, for the features as given.
    loss_curve_, loss_, best_loss_ : list of float, float, float
        The objective (the augmented Lagrangian) by the number of samples, its last and its least value.
    validation_scores_, best_validation_score_ : list of float, float
        Accuracies on the validation part, or None without early stopping.
    n_iter_, n_layers_, n_outputs_, out_activation_, n_features_in_, feature_names_in_
        As scikit-learn has them; `n_outputs_` is the number of classes, with two classes as well.
    """

    class_weight: Mapping[Any, float] | str | None = None

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **BasePdADMM._parameter_constraints,
        "class_weight": [dict, StrOptions({"balanced"}), None],
    }
    out_activation_ = "softmax"

    def predict(self, X: Any) -> Array:
        """The label of each sample."""
        indices = self._outputs(X).argmax(axis=1)
        found: Array = self.classes_[indices]
        return found

    def predict_proba(self, X: Any) -> Array:
        """A probability for each class, in the order of `classes_`."""
        found: Array = np.exp(self.predict_log_proba(X))
        return found

    def predict_log_proba(self, X: Any) -> Array:
        """Their logarithms, exact also where a probability rounds to 0."""
        z = self._outputs(X)
        z -= z.max(axis=1, keepdims=True)
        found: Array = z - np.log(np.exp(z).sum(axis=1, keepdims=True))
        return found

    def decision_function(self, X: Any) -> Array:
        """The outputs before softmax; with two classes the log-odds of the second, one number a sample."""
        z = self._outputs(X)
        return z[:, 1] - z[:, 0] if z.shape[1] == 2 else z

    @property
    def _loss(self) -> str:
        return "cross_entropy"

    def _encode(self, y: Array, reset: bool) -> Array:
        y = column_or_1d(y, warn=True)
        check_classification_targets(y)
        classes, indices = np.unique(y, return_inverse=True)
        if reset:
            if len(classes) < 2:
                raise UserError(
                    f"y must have at least two classes with samples of weight above 0; got one class, "
                    f"{shorten(y[:1].tolist())}"
                )
            self.classes_: Array = classes
        elif not np.array_equal(classes, self.classes_):
            raise UserError(
                f"y must have the classes of the fit before with warm_start, {shorten(self.classes_.tolist())}; "
                f"got {shorten(classes.tolist())}"
            )
        found: Array = indices.astype(np.int64)
        return found

    def _weigh(self, y: Array, weight: Array | None) -> Array | None:
        """The samples' weights times those of their classes."""
        if self.class_weight is None:
            return weight
        by_class = compute_class_weight(
            self.class_weight, classes=self.classes_, y=self.classes_[y], sample_weight=weight
        )
        own: Array = by_class[y]
        return own if weight is None else own * weight
