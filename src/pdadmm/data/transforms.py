"""The map from the user's features and targets to those of the network, and back; stored with the model."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from pdadmm.data.arrays import Array, generated_names, row_chunks, shorten
from pdadmm.data.dataset import Part
from pdadmm.data.labels import as_labels
from pdadmm.data.tables import row_number
from pdadmm.errors import UserError

_SMALLEST = float(np.finfo(np.float32).tiny)
SCALINGS = ("standard", "global", "minmax", "none")
_LABEL_TYPES = {"b": "bool", "i": "int", "U": "str"}
_NUMPY_TYPES: dict[str, type[np.generic]] = {"bool": np.bool_, "int": np.int64, "str": np.str_}


@dataclass(frozen=True, eq=False)
class Preprocessor:
    """Features become (X - shift) / scale; targets become class indices, or standardised real values."""

    shift: Array
    """(d,) float64: mean, minimum or 0 of the training part's features."""
    scale: Array
    """(d,) float64: deviation, range or 1; 1 for a feature that is constant."""
    feature_names: tuple[str, ...]
    classes: Array | None
    """The labels (int64, bool or str) in the order of the outputs, sorted where we chose it; None in regression."""
    target_shift: Array | None = None
    """(k,) float64: mean of y in regression."""
    target_scale: Array | None = None
    """(k,) float64: deviation of y in regression."""
    target_is_1d: bool = True
    """Whether y was given as (N,), so that predictions are too."""

    @classmethod
    def fit(cls, train: Part, scaling: str, regression: bool, feature_names: Sequence[str] | None = None) -> Self:
        """Learn the map from a training part that `check_part` has passed; sample weights play no role."""
        names = generated_names(train.X.shape[1]) if feature_names is None else tuple(feature_names)
        if len(names) != train.X.shape[1]:
            raise UserError(f"feature_names must name every feature; got {len(names)} for {train.X.shape[1]} features")
        shift, scale = _fit_scaling(train.X, scaling, names)
        if not regression:
            return cls(shift, scale, names, np.unique(as_labels(train.y, "the training data")))
        y = train.y.reshape(len(train.y), -1)
        target_names = tuple(f"y column {column}" for column in range(y.shape[1]))
        target_shift, target_scale = _fit_scaling(y, "standard", target_names)
        return cls(shift, scale, names, None, target_shift, target_scale, train.y.ndim == 1)

    @property
    def regression(self) -> bool:
        """Whether targets are real values."""
        return self.classes is None

    @property
    def num_features(self) -> int:
        """The network's number of inputs."""
        return len(self.shift)

    @property
    def num_outputs(self) -> int:
        """The network's number of outputs: classes, or columns of y."""
        if self.classes is not None:
            return len(self.classes)
        assert self.target_shift is not None
        return len(self.target_shift)

    def features(
        self,
        X: Array,
        dtype: npt.DTypeLike,
        out: Array | None = None,
        row_name: Callable[[int], str] = row_number,
    ) -> Array:
        """X scaled, as `out` or a new C-contiguous array of `dtype`; nothing else of X's size is made on the way."""
        if X.ndim != 2 or X.shape[1] != self.num_features:
            got = f"{X.shape[1]} features" if X.ndim == 2 else f"shape {X.shape}"
            raise UserError(f"X must be 2-D with the model's {self.num_features} features; got {got}")
        if X.dtype.kind not in "biuf":
            raise UserError(f"X must be real numbers; got type {X.dtype}")
        scaled = np.empty(X.shape, dtype=dtype) if out is None else out
        plain = not self.shift.any() and bool((self.scale == 1).all())
        # Overflow becomes infinite, which is found and named below.
        with np.errstate(over="ignore", invalid="ignore"):
            for rows in row_chunks(X):
                scaled[rows] = X[rows] if plain else (X[rows] - self.shift) / self.scale
                finite = np.isfinite(scaled[rows])
                if not finite.all():
                    row, column = np.argwhere(~finite)[0].tolist()
                    raise UserError(
                        f"X must be finite, also when scaled to {scaled.dtype}; "
                        f"got {X[rows.start + row, column]} at {row_name(rows.start + row)}, "
                        f"column {column} ({self.feature_names[column]!r})"
                    )
        return scaled

    def targets(self, y: Array) -> Array:
        """(N,) int64 indices into `classes`; in regression (N, k) float64, standardised."""
        if self.classes is not None:
            labels, rows = np.unique(as_labels(y, "the data"), return_inverse=True)
            # A dict of Python's values, because numpy would compare the text '1' and the number 1 as equal texts.
            place = {label: index for index, label in enumerate(self.classes.tolist())}
            if unknown := [label for label in labels.tolist() if label not in place]:
                known = shorten(self.classes.tolist())
                raise UserError(f"y must only have classes of the training data ({known}); got {shorten(unknown)}")
            return np.array([place[label] for label in labels.tolist()], np.int64)[rows]
        if y.dtype.kind not in "biuf":
            raise UserError(f"y must be real numbers in regression; got type {y.dtype}")
        columns = y[:, np.newaxis] if y.ndim == 1 else y
        if columns.ndim != 2 or columns.shape[1] != self.num_outputs:
            raise UserError(f"y must have the model's {self.num_outputs} outputs; got shape {y.shape}")
        standardised: Array = (columns - self.target_shift) / self.target_scale
        return standardised

    def decode(self, indices: Array) -> Array:
        """The labels, in the user's own type, that class indices stand for."""
        assert self.classes is not None, "regression has no classes"
        labels: Array = self.classes[indices]
        return labels

    def restore(self, z: Array) -> Array:
        """Outputs of a regression in y's units; (N,) if y was, else (N, k)."""
        assert self.regression, "classes are decoded, not restored"
        values: Array = z.reshape(len(z), self.num_outputs) * self.target_scale + self.target_shift
        return values[:, 0] if self.target_is_1d else values

    def to_tensors(self) -> dict[str, Array]:
        """The numbers, as float64 arrays."""
        tensors = {"preprocess.shift": self.shift, "preprocess.scale": self.scale}
        if self.target_shift is not None and self.target_scale is not None:
            tensors["preprocess.target_shift"] = self.target_shift
            tensors["preprocess.target_scale"] = self.target_scale
        return tensors

    def to_metadata(self) -> dict[str, str]:
        """All the rest, as JSON texts."""
        values: dict[str, Any] = {"regression": self.regression, "feature_names": self.feature_names}
        if self.classes is not None:
            values["classes"] = self.classes.tolist()
            values["label_type"] = _LABEL_TYPES[self.classes.dtype.kind]
        else:
            values["target_is_1d"] = self.target_is_1d
        return {f"preprocess.{name}": json.dumps(value) for name, value in values.items()}

    @classmethod
    def from_stored(cls, tensors: Mapping[str, Array], metadata: Mapping[str, str]) -> Self:
        """The same object again; entries of other owners are ignored."""
        try:
            shift, scale = tensors["preprocess.shift"], tensors["preprocess.scale"]
            names = tuple(json.loads(metadata["preprocess.feature_names"]))
            if json.loads(metadata["preprocess.regression"]):
                target_shift = tensors["preprocess.target_shift"]
                target_scale = tensors["preprocess.target_scale"]
                is_1d = bool(json.loads(metadata["preprocess.target_is_1d"]))
                stored = cls(shift, scale, names, None, target_shift, target_scale, is_1d)
            else:
                label_type = _NUMPY_TYPES[json.loads(metadata["preprocess.label_type"])]
                labels = json.loads(metadata["preprocess.classes"])
                stored = cls(shift, scale, names, np.array(labels, dtype=label_type))
        except KeyError as error:
            raise UserError(f"the model must have its preprocessing stored; it lacks {error}") from None
        except (TypeError, ValueError) as error:
            raise UserError(f"the model's stored preprocessing is damaged: {error}") from None
        if not len(shift) == len(scale) == len(names):
            raise UserError(
                f"the model's stored shift, scale and names must be of equal length; "
                f"got {len(shift)}, {len(scale)} and {len(names)}"
            )
        return stored


def _fit_scaling(X: Array, scaling: str, names: Sequence[str]) -> tuple[Array, Array]:
    if scaling not in SCALINGS:
        raise UserError(f"scaling must be one of {', '.join(SCALINGS)}; got {scaling!r}")
    if scaling == "none":
        largest = max(float(np.abs(X[rows]).max()) for rows in row_chunks(X))
        if 0 < largest < _SMALLEST:
            raise UserError(
                f"features must be larger than {_SMALLEST:.2g} without a scaling, or they count as zero; the largest "
                f"is {largest}; give --scaling standard, or other units"
            )
        return np.zeros(X.shape[1]), np.ones(X.shape[1])
    minimum, maximum, mean, deviation = column_statistics(X)
    with np.errstate(over="ignore"):
        spread = {
            "standard": deviation,
            # One unit for all features, as pixels have: a pixel that is almost always dark is not blown up.
            "global": np.full_like(deviation, np.sqrt(np.mean(deviation**2))),
            "minmax": maximum - minimum,
        }[scaling]
    shift = minimum if scaling == "minmax" else mean
    too_wide = np.flatnonzero(~np.isfinite(spread))
    if too_wide.size:
        column = int(too_wide[0])
        raise UserError(
            f"the spread of {names[column]!r} must fit in float64; "
            f"its values go from {minimum[column]} to {maximum[column]}"
        )
    # Where differences are so small that their squares vanish, their range is the unit.
    spread = np.where(spread == 0, maximum - minimum, spread)
    # A mean of equal numbers may be off by rounding, and a deviation of rounding errors would blow them up.
    constant = minimum == maximum
    return np.where(constant, minimum, shift), np.where(constant, 1.0, spread)


def column_statistics(X: Array) -> tuple[Array, Array, Array, Array]:
    """Minimum, maximum, mean and deviation of every column, in float64: first the mean, then the squares around it.

    Both are sums of differences (from the first row, then from the mean), so a large common offset cancels
    before it can swallow the digits that differ; E[x²] - E[x]² would subtract two large, almost equal numbers.
    """
    count, width = X.shape
    origin = X[0].astype(np.float64)
    minimum, maximum = origin.copy(), origin.copy()
    total = np.zeros(width)
    # Overflow becomes an infinite statistic, which the caller reports with the feature's name.
    with np.errstate(over="ignore", invalid="ignore"):
        for rows in row_chunks(X):
            block = X[rows].astype(np.float64)
            np.minimum(minimum, block.min(axis=0), out=minimum)
            np.maximum(maximum, block.max(axis=0), out=maximum)
            block -= origin
            total += block.sum(axis=0)
        mean = origin + total / count
        squares, residue = np.zeros(width), np.zeros(width)
        for rows in row_chunks(X):
            block = X[rows] - mean
            residue += block.sum(axis=0)
            np.square(block, out=block)
            squares += block.sum(axis=0)
        # The residue would be 0 but for rounding of the mean; taking it off repairs the variance.
        variance = np.maximum(squares - residue**2 / count, 0.0) / count
    return minimum, maximum, mean, np.sqrt(variance)
