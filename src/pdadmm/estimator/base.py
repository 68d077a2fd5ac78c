"""What both estimators share: parameters, the way through the trainer, and the network evaluated forward."""

from __future__ import annotations

import dataclasses
import tempfile
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import KW_ONLY, dataclass
from numbers import Integral, Real
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, _fit_context
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from pdadmm.config import Config
from pdadmm.crew import train_arrays
from pdadmm.data import Dataset, Part, Preprocessor
from pdadmm.data.arrays import Array, generated_names, row_chunks
from pdadmm.errors import UserError
from pdadmm.estimator.cores import divide
from pdadmm.folding import fold, unfold
from pdadmm.history import Row
from pdadmm.machine import available_memory, format_bytes
from pdadmm.math.activations import get_activations
from pdadmm.model import Model
from pdadmm.network import Network
from pdadmm.options import config_of_fit
from pdadmm.patience import Patience
from pdadmm.rundir import MODEL_FILE
from pdadmm.session import final_ridge

_ALIASES: dict[str, str] = {"logistic": "sigmoid"}
_SEEDS = 2**31 - 1


def _at_least(least: float, kind: type = Real, closed: str = "left", most: float | None = None) -> Any:
    return Interval(kind, least, most, closed=closed)


@dataclass(repr=False, eq=False)
class BasePdADMM(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A fully connected network, trained by pdADMM; `PdADMMClassifier` documents the parameters."""

    hidden_layer_sizes: int | Sequence[int] = (100,)
    activation: str = "relu"
    _: KW_ONLY
    solver: str = "exact"
    nu: float | None = None
    rho: float | None = None
    method: Mapping[str, Any] | None = None
    alpha: float = 0.0
    max_iter: int = 100
    tol: float = 1e-4
    random_state: int | np.random.RandomState | None = None
    warm_start: bool = False
    early_stopping: bool = False
    validation_fraction: float = 0.1
    n_iter_no_change: int = 10
    verbose: bool | int = False
    n_jobs: int | None = None
    device: str = "cpu"

    # `pdadmm.Config` checks the others, which it has by the same names.
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "hidden_layer_sizes": ["array-like", _at_least(1, Integral)],
        "alpha": [_at_least(0)],
        "max_iter": [_at_least(1, Integral)],
        "tol": [_at_least(0)],
        "random_state": ["random_state"],
        "warm_start": ["boolean"],
        "early_stopping": ["boolean"],
        "validation_fraction": [_at_least(0, closed="neither", most=1)],
        "n_iter_no_change": [_at_least(1, Integral)],
        "verbose": ["verbose"],
        "n_jobs": [Integral, None],
    }

    @property
    @abstractmethod
    def _loss(self) -> str:
        """The name of the loss in `pdadmm.Config`."""

    @abstractmethod
    def _encode(self, y: Array, reset: bool) -> Array:
        """Targets as the trainer takes them; `reset` learns them anew."""

    def _weigh(self, y: Array, weight: Array | None) -> Array | None:
        """The weights of the samples."""
        return weight

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "coefs_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    @property
    def n_layers_(self) -> int:
        """Layers of the network, input and output included."""
        check_is_fitted(self)
        return len(self.coefs_) + 1

    @property
    def n_outputs_(self) -> int:
        """Outputs of the network: classes, two of them as well, or columns of y."""
        check_is_fitted(self)
        return len(self.intercepts_[-1])

    @property
    def loss_(self) -> float:
        """The last of `loss_curve_`."""
        check_is_fitted(self)
        return float(self.loss_curve_[-1])

    @_fit_context(prefer_skip_nested_validation=True)  # type: ignore[untyped-decorator]
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train on these samples; samples of weight 0 are as good as absent, and only the ratios of weights count."""
        goes_on = self.warm_start and self.__sklearn_is_fitted__()
        X, y = validate_data(
            self,
            X,
            y,
            accept_sparse=("csr", "csc"),
            dtype=(np.float64, np.float32),
            order="C",
            multi_output=True,
            reset=not goes_on,
        )
        weight = None if sample_weight is None else _check_sample_weight(sample_weight, X, ensure_non_negative=True)
        if weight is not None:
            X, y, weight = _without_zeros(X, y, weight)
        target = self._encode(y, reset=not goes_on)
        weight = self._weigh(target, weight)
        if weight is not None:  # only the ratios count, so that nu and rho mean the same with weights as without
            weight = weight / weight.mean()
        random = check_random_state(self.random_state)
        data = self._dataset(_dense(X), target, weight, random)
        config = self._config(random)
        if not goes_on:
            self.loss_curve_: list[float] = []
            self._scores: list[float] = []
        with ExitStack() as stack:
            if goes_on:
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pdadmm-")))
                config = self._going_on(config, data.train.X.shape, folder / MODEL_FILE)
            model, history = self._train(config, data)
        self._keep(model, history, len(data.train.X))
        return self

    def _dataset(self, X: Array, y: Array, weight: Array | None, random: np.random.RandomState) -> Dataset:
        """The training part and, for early stopping, a validation part."""
        names = generated_names(X.shape[1])
        if not self.early_stopping:
            return Dataset(type(self).__name__, Part(X, y, weight), None, names)
        by = y if self._loss == "cross_entropy" else None
        train, test = train_test_split(
            np.arange(len(X)), test_size=self.validation_fraction, random_state=random, stratify=by
        )
        part = Part(X[train], y[train], None if weight is None else weight[train])
        return Dataset(type(self).__name__, part, Part(X[test], y[test]), names)

    def _config(self, random: np.random.RandomState) -> Config:
        sizes = self.hidden_layer_sizes
        hidden = tuple(int(size) for size in sizes) if isinstance(sizes, Iterable) else (int(sizes),)
        workers, threads = divide(self.n_jobs, len(hidden) + 1)
        seed = self.random_state if isinstance(self.random_state, int | np.integer) else random.randint(_SEEDS)
        return config_of_fit(
            self.solver,
            self.nu,
            self.rho,
            self.method,
            hidden=hidden,
            activation=self._activation_here(),
            loss=self._loss,
            class_weight="none",  # the samples' weights have it
            l2=float(self.alpha),
            epochs=int(self.max_iter),
            seed=int(seed),
            device=self.device,
            workers=workers,
            threads=threads,
            evaluate_every=1 if self.early_stopping else int(self.max_iter),
            stationarity_every=0,
        )

    def _activation_here(self) -> str:
        """What our activations call it."""
        name = str(self.activation)
        return _ALIASES.get(name, name)

    def _going_on(self, config: Config, shape: tuple[int, ...], file: Path) -> Config:
        """To start from the present weights, which the file takes, under the last ridge: the first would undo them."""
        network = unfold(self._network(self._activation_here()), self._preprocessor)
        network = network.to(getattr(torch, config.dtype), torch.device("cpu"))
        Model(network, self._preprocessor).save(file)
        first = config.resolved().ridge
        assert first is not None
        ridge = final_ridge(first, config.ridge_final, *shape)
        return dataclasses.replace(config, ridge=ridge, ridge_final=ridge, init_from=str(file))

    def _train(self, config: Config, data: Dataset) -> tuple[Model, list[Row]]:
        score = "test_accuracy" if self._loss == "cross_entropy" else "test_r2"
        key = score if self.early_stopping else "objective"
        patience = Patience(key, float(self.tol), int(self.n_iter_no_change), len(config.hidden))

        def show(row: Row) -> None:
            if not self.verbose:
                return
            print(f"Iteration {row['epoch']}, loss = {row['objective'] / len(data.train.X):.8f}", flush=True)
            if self.early_stopping:
                print(f"Validation score: {row[score]:f}", flush=True)

        model, history = train_arrays(config, data, patience, show, print if self.verbose else lambda note: None)
        if self.early_stopping:
            self._scores += [row[score] for row in history]
        return model, history

    def _keep(self, model: Model, history: list[Row], samples: int) -> None:
        self._preprocessor: Preprocessor = model.preprocessor
        network = fold(model.network, self._preprocessor)
        self.coefs_ = [np.array(W.numpy().T, order="C") for W in network.weights]
        self.intercepts_ = [b.numpy() for b in network.biases]
        self._activation = network.activations.name
        self.n_iter_ = len(history)
        self.loss_curve_ += [row["objective"] / samples for row in history]
        self.validation_scores_ = list(self._scores) if self.early_stopping else None
        self.best_validation_score_ = max(self._scores) if self.early_stopping else None
        self.best_loss_ = None if self.early_stopping else min(self.loss_curve_)

    def _network(self, activation: str) -> Network:
        """`coefs_` and `intercepts_` as a network; copies, because arrays of a mapped pickle cannot be written to."""
        weights = [torch.from_numpy(np.array(coef.T, order="C")) for coef in self.coefs_]
        biases = [torch.from_numpy(np.array(intercept)) for intercept in self.intercepts_]
        return Network(weights, biases, get_activations(activation, len(weights) - 1))

    def _outputs(self, X: Any) -> Array:
        """The last layer's outputs in float64, whatever the network was trained in; sparse X is densified by rows."""
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csr", dtype=(np.float64, np.float32), reset=False)
        network = self._network(self._activation)
        out = np.empty((X.shape[0], self.n_outputs_))
        for rows in row_chunks(np.broadcast_to(0.0, X.shape)):
            part = X[rows].toarray() if hasattr(X, "toarray") else X[rows]
            out[rows] = network.forward(torch.from_numpy(np.array(part, dtype=np.float64, order="C"))).numpy()
        return out


def _without_zeros(X: Any, y: Array, weight: Array) -> tuple[Any, Array, Array]:
    """Samples of weight 0 are as good as absent."""
    kept = np.flatnonzero(weight)
    if not len(kept):
        raise UserError(f"sample_weight must not be all zero; got {len(weight)} zeros")
    return (X, y, weight) if len(kept) == len(weight) else (X[kept], y[kept], weight[kept])


def _dense(X: Any) -> Array:
    """X itself, or a dense copy: the arrays of the layers are dense and larger anyway."""
    if not hasattr(X, "toarray"):
        dense: Array = X
        return dense
    needed, free = int(np.prod(X.shape, dtype=np.int64)) * X.dtype.itemsize, available_memory()
    if free is not None and needed > free:
        raise MemoryError(
            f"sparse X must be made dense, because scaled features and the layers' arrays are; that takes "
            f"{format_bytes(needed)} for shape {X.shape}, and {format_bytes(free)} are free: reduce its columns first, "
            f"for example by TruncatedSVD"
        )
    return np.ascontiguousarray(X.toarray())
