"""What both estimators share: parameters, the way through the trainer, and the network evaluated forward."""

from __future__ import annotations

import tempfile
from abc import abstractmethod
from collections.abc import Iterable
from contextlib import ExitStack
from numbers import Integral, Real
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from pdadmm.config import SOLVERS, Config
from pdadmm.crew import Trained, train_arrays
from pdadmm.data import Dataset, Part, Preprocessor
from pdadmm.data.arrays import Array, generated_names, row_chunks
from pdadmm.data.transforms import SCALINGS
from pdadmm.errors import UserError
from pdadmm.estimator.cores import divide
from pdadmm.estimator.folding import fold, plain_network, unfold
from pdadmm.history import Row
from pdadmm.machine import available_memory, format_bytes
from pdadmm.math.activations import activation_names
from pdadmm.patience import Patience
from pdadmm.rundir import MODEL_FILE
from pdadmm.session import final_ridge

_ALIASES: dict[str, str] = {"logistic": "sigmoid"}
_SEEDS = 2**31 - 1


def _at_least(least: float, kind: type = Real, closed: str = "left", most: float | None = None) -> Any:
    return Interval(kind, least, most, closed=closed)


class BasePdADMM(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A fully connected network, trained by pdADMM; `PdADMMClassifier` documents the parameters."""

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "hidden_layer_sizes": ["array-like", _at_least(1, Integral)],
        "activation": [StrOptions({*activation_names(), *_ALIASES})],
        "solver": [StrOptions(set(SOLVERS))],
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
        "scaling": [StrOptions(set(SCALINGS))],
        "rho": [_at_least(0, closed="neither"), None],
        "nu": [_at_least(0, closed="neither"), None],
        "nu_output": [_at_least(0, closed="neither"), None],
        "z_relax": [Interval(Real, 1, 2, closed="left"), None],
        "damping": [_at_least(0)],
        "ridge": [_at_least(0), None],
        "ridge_final": [_at_least(0), None],
        "batches": [_at_least(1, Integral)],
        "grow": [str, None],
        "dtype": [StrOptions({"float32", "float64"})],
        "device": [str],
    }

    @property
    @abstractmethod
    def _loss(self) -> str:
        """The name of the loss in `pdadmm.Config`."""

    @abstractmethod
    def _encode(self, y: Array, reset: bool) -> Array:
        """Targets as the trainer takes them; `reset` learns them anew."""

    @abstractmethod
    def _stratify(self, y: Array) -> Array | None:
        """By what a validation part is stratified."""

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

    def _fit(self, X: Any, y: Any, sample_weight: Any, weigh: Any) -> Self:
        """Check, split, train, and keep what is left of it; `weigh` gives the weights of classes."""
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
        weight = _to_mean_one(weigh(target, weight))
        random = check_random_state(self.random_state)
        data = self._dataset(_dense(X), target, weight, random)
        if not goes_on:
            self.loss_curve_: list[float] = []
            self._scores: list[float] = []
        with ExitStack() as stack:
            start = self._start(stack) if goes_on else None
            trained = self._train(data, start, random)
        self._keep(trained, len(data.train.X))
        return self

    def _dataset(self, X: Array, y: Array, weight: Array | None, random: np.random.RandomState) -> Dataset:
        """The training part and, for early stopping, a validation part."""
        names = generated_names(X.shape[1])
        if not self.early_stopping:
            return Dataset(type(self).__name__, Part(X, y, weight), None, names)
        train, test = train_test_split(
            np.arange(len(X)), test_size=self.validation_fraction, random_state=random, stratify=self._stratify(y)
        )
        parts = [Part(X[rows], y[rows], None if weight is None else weight[rows]) for rows in (train, test)]
        return Dataset(type(self).__name__, parts[0], Part(parts[1].X, parts[1].y), names)

    def _train(self, data: Dataset, start: Path | None, random: np.random.RandomState) -> Trained:
        config = self._config(data.train.X.shape, start, random)
        score = "test_accuracy" if self._loss == "cross_entropy" else "test_r2"
        key = score if self.early_stopping else "objective"
        patience = Patience(key, float(self.tol), int(self.n_iter_no_change), len(config.hidden))

        def show(row: Row) -> None:
            if not self.verbose:
                return
            print(f"Iteration {row['epoch']}, loss = {row['objective'] / len(data.train.X):.8f}", flush=True)
            if self.early_stopping:
                print(f"Validation score: {row[score]:f}", flush=True)

        trained = train_arrays(config, data, patience, show, print if self.verbose else lambda note: None)
        if self.early_stopping:
            self._scores += [row[score] for row in trained.history]
        return trained

    def _config(self, shape: tuple[int, ...], start: Path | None, random: np.random.RandomState) -> Config:
        sizes = self.hidden_layer_sizes
        hidden = tuple(int(size) for size in sizes) if isinstance(sizes, Iterable) else (int(sizes),)
        cores = divide(self.n_jobs, len(hidden) + 1)
        is_seed = isinstance(self.random_state, Integral)
        ridge, ridge_final = self.ridge, self.ridge_final
        if start is not None:  # what was learned is not to be forgotten under the first ridge of a new run
            first = (0.1 if self.solver == "exact" else 0.0) if ridge is None else ridge
            ridge = ridge_final = final_ridge(first, ridge_final, *shape)
        return Config(
            hidden=hidden,
            activation=self._activation_here(),
            loss=self._loss,
            huber_delta=float(getattr(self, "huber_delta", 1.0)),
            solver=self.solver,
            l2=float(self.alpha),
            epochs=int(self.max_iter),
            seed=int(self.random_state) if is_seed else int(random.randint(_SEEDS)),
            scaling=self.scaling,
            rho=self.rho,
            nu=self.nu,
            nu_output=self.nu_output,
            z_relax=self.z_relax,
            damping=self.damping,
            ridge=ridge,
            ridge_final=ridge_final,
            batches=int(self.batches),
            grow=self.grow,
            dtype=self.dtype,
            device=self.device,
            init_from=None if start is None else str(start),
            workers=cores.processes,
            threads=cores.threads,
            evaluate_every=1 if self.early_stopping else int(self.max_iter),
            stationarity_every=0,
        )

    def _activation_here(self) -> str:
        """What our activations call it."""
        name = str(self.activation)
        return _ALIASES.get(name, name)

    def _start(self, stack: ExitStack) -> Path:
        """The present weights as a file, from which the trainer starts; it is gone with the stack."""
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pdadmm-")))
        model = unfold(self.coefs_, self.intercepts_, self._activation_here(), self._preprocessor, self.dtype)
        model.save(folder / MODEL_FILE)
        return folder / MODEL_FILE

    def _keep(self, trained: Trained, samples: int) -> None:
        self.coefs_, self.intercepts_ = fold(trained.model)
        self._preprocessor: Preprocessor = trained.model.preprocessor
        self._activation = trained.model.network.activations.name
        self.n_iter_ = len(trained.history)
        self.loss_curve_ += [row["objective"] / samples for row in trained.history]
        self.validation_scores_ = list(self._scores) if self.early_stopping else None
        self.best_validation_score_ = max(self._scores) if self.early_stopping else None
        self.best_loss_ = None if self.early_stopping else min(self.loss_curve_)

    def _outputs(self, X: Any) -> Array:
        """The last layer's outputs in float64, whatever the network was trained in; sparse X is densified by rows."""
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csr", dtype=(np.float64, np.float32), reset=False)
        network = plain_network(self.coefs_, self.intercepts_, self._activation)
        out = np.empty((X.shape[0], self.n_outputs_))
        for rows in row_chunks(np.broadcast_to(0.0, X.shape)):
            part = X[rows].toarray() if _is_sparse(X) else X[rows]
            out[rows] = network.forward(torch.from_numpy(np.array(part, dtype=np.float64, order="C"))).numpy()
        return out


def _is_sparse(X: Any) -> bool:
    return hasattr(X, "toarray")


def _without_zeros(X: Any, y: Array, weight: Array) -> tuple[Any, Array, Array]:
    """Samples of weight 0 are as good as absent."""
    kept = np.flatnonzero(weight)
    if not len(kept):
        raise UserError(f"sample_weight must not be all zero; got {len(weight)} zeros")
    return (X, y, weight) if len(kept) == len(weight) else (X[kept], y[kept], weight[kept])


def _to_mean_one(weight: Array | None) -> Array | None:
    """Only the ratios of weights count, so that nu and rho mean the same with weights as without."""
    return None if weight is None else weight / weight.mean()


def _dense(X: Any) -> Array:
    """X itself, or a dense copy: the arrays of the layers are dense and larger anyway."""
    if not _is_sparse(X):
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
