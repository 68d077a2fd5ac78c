"""What counts as a class label: whole numbers, texts and booleans, however they are stored."""

from __future__ import annotations

import numpy as np

from pdadmm.data.arrays import Array
from pdadmm.errors import UserError

# Above this, neighbouring float64 are more than 1 apart, so a float no longer names one whole number.
FLOAT64_WHOLE = 1 << 53


def as_labels(y: Array, where: str) -> Array:
    """y as a 1-D array of int64, bool or str; anything that cannot name a class is a user's mistake.

    A single column (N, 1) is taken as N labels. Floats are accepted where all are whole.
    """
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim != 1:
        hint = "; for one-hot labels give y.argmax(axis=1)" if y.ndim == 2 else ""
        raise UserError(f"y of {where} must be 1-D, one class per sample; got shape {y.shape}{hint}")
    if y.dtype.kind == "O":
        y = _from_objects(y, where)
    kind = y.dtype.kind
    if kind == "b":
        return y
    if kind in "iu":
        if kind == "u" and y.size and y.max() > np.iinfo(np.int64).max:
            raise UserError(f"y of {where} must fit in 64-bit integers; got {y.max()}")
        return y.astype(np.int64, copy=False)
    if kind == "f":
        return _from_floats(y, where)
    if kind in "UT":
        return y.astype(np.str_, copy=False)
    raise UserError(f"y of {where} must be whole numbers, texts or booleans; got type {y.dtype}")


def balanced_weights(class_indices: Array, num_classes: int) -> Array:
    """A weight per sample, n / (k · count of its class): every class weighs the same, and the mean is 1."""
    counts = np.bincount(class_indices, minlength=num_classes)
    weights: Array = len(class_indices) / (num_classes * counts[class_indices])
    return weights


def _from_objects(y: Array, where: str) -> Array:
    """Arrays of Python objects, as pandas makes them for texts; mixed types have no order to sort by."""
    values = y.tolist()
    for index, value in enumerate(values):
        if not isinstance(value, bool | int | float | str):
            raise UserError(
                f"y of {where} must be whole numbers, texts or booleans; "
                f"got {type(value).__name__} {value!r} at row {index}"
            )
    types = sorted({type(value).__name__ for value in values})
    if len(types) > 1 and types != ["float", "int"]:
        raise UserError(f"y of {where} must be labels of one type; got {' and '.join(types)}")
    labels = np.array(values)
    if labels.dtype.kind == "O":
        raise UserError(f"y of {where} must fit in 64-bit integers; got {max(values, key=abs)}")
    return labels


def _from_floats(y: Array, where: str) -> Array:
    bad = np.flatnonzero(~np.isfinite(y))
    if bad.size:
        raise UserError(
            f"y of {where} must be finite; got {bad.size} NaN or infinite, the first ({y[bad[0]]}) at row {bad[0]}"
        )
    fractional = np.flatnonzero((y != np.rint(y)) | (np.abs(y) > FLOAT64_WHOLE))
    if fractional.size:
        first = fractional[0]
        raise UserError(
            f"y of {where} must be classes (whole numbers, texts or booleans); "
            f"got {y[first]} at row {first}. For real-valued targets use --loss squared"
        )
    return y.astype(np.int64)
