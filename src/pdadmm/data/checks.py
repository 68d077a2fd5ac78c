"""Find what is wrong with the user's data before any work starts, and say where it is.

Rows and columns are counted from 0, as numpy does. Nothing here makes a temporary of the size of X.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pdadmm.data.arrays import Array, row_chunks, shorten
from pdadmm.data.dataset import Dataset, Part
from pdadmm.data.labels import as_labels
from pdadmm.errors import UserError

# Of weights, whose sums over the samples float32 must hold.
_SMALLEST, _LARGEST = 1e-30, 1e30


def check_part(
    part: Part,
    where: str,
    regression: bool,
    feature_names: Sequence[str] = (),
    one_class_allowed: bool = False,
    is_finite: bool = False,
) -> Part:
    """The part, with labels as int64, bool or str; raise UserError unless it can be trained on.

    `where` names it, such as `digits (training part)`. `one_class_allowed` is for a test part, which may well hold
    samples of one class only; `is_finite` for features in which no NaN or infinity can be.
    """
    check_features(part.X, where, feature_names, is_finite)
    for name, values in (("y", part.y), ("weight", part.weight)):
        if values is not None and values.ndim == 0:
            raise UserError(f"{name} of {where} must be an array, one entry per sample; got a single value")
        if values is not None and len(values) != len(part.X):
            raise UserError(
                f"{name} of {where} must have one entry per sample of X; got {len(values)} for {len(part.X)} samples"
            )
    y = part.y
    if regression:
        _check_real_targets(y, where)
    else:
        y = as_labels(y, where)
        if not one_class_allowed and (y == y[0]).all():
            raise UserError(f"y of {where} must have at least two classes; got only {y[0].item()!r}")
    if part.weight is not None:
        _check_weights(part.weight, where)
    return part if y is part.y else replace(part, y=y)


def check_dataset(dataset: Dataset, regression: bool) -> Dataset:
    """Check both parts, and that the test part asks nothing that the training part cannot teach.

    The result is marked as checked, so that it is not walked again by the next who must be sure.
    """
    if dataset.checked_for == regression:
        return dataset
    train, test, names = dataset.train, dataset.test, dataset.feature_names
    train = check_part(train, f"{dataset.name} (training part)", regression, names)
    if test is None:
        return replace(dataset, train=train, checked_for=regression)
    where = f"{dataset.name} (test part)"
    if test.X.ndim == 2 and test.X.shape[1] != train.X.shape[1]:
        raise UserError(
            f"X of {where} must have the training part's {train.X.shape[1]} features; got {test.X.shape[1]}"
        )
    test = check_part(test, where, regression, names, one_class_allowed=True)
    if regression:
        if test.y.shape[1:] != train.y.shape[1:]:
            raise UserError(
                f"y of {where} must have as many columns as the training part's; "
                f"got shapes {test.y.shape} and {train.y.shape}"
            )
    else:
        # Sets of Python values, because numpy would compare the text '1' and the number 1 as equal texts.
        known = set(np.unique(train.y).tolist())
        unknown = [label for label in np.unique(test.y).tolist() if label not in known]
        if unknown:
            raise UserError(f"y of {where} must only have classes of the training part; got unknown {shorten(unknown)}")
    return replace(dataset, train=train, test=test, checked_for=regression)


def check_features(X: Array, where: str, feature_names: Sequence[str] = (), is_finite: bool = False) -> None:
    """Raise UserError unless X is a 2-D array of finite real numbers with samples and features."""
    if X.ndim != 2:
        raise UserError(f"X of {where} must be 2-D, samples by features; got shape {X.shape}")
    if X.shape[0] == 0:
        raise UserError(f"X of {where} must have at least one sample; got shape {X.shape}")
    if X.shape[1] == 0:
        raise UserError(f"X of {where} must have at least one feature; got shape {X.shape}")
    if X.dtype.kind not in "biuf":
        raise UserError(f"X of {where} must be real numbers; got type {X.dtype}")
    if not is_finite:
        _check_finite(X, f"X of {where}", feature_names)


def _check_real_targets(y: Array, where: str) -> None:
    if y.dtype.kind not in "biuf":
        raise UserError(
            f"y of {where} must be real numbers in regression; got type {y.dtype}. For classes use --loss cross_entropy"
        )
    if y.ndim not in (1, 2) or y.size == 0:
        raise UserError(f"y of {where} must be 1-D, or 2-D with a column per output; got shape {y.shape}")
    _check_finite(y, f"y of {where}")


def _check_weights(weight: Array, where: str) -> None:
    name = f"weight of {where}"
    if weight.ndim != 1:
        raise UserError(f"{name} must be 1-D, one number per sample; got shape {weight.shape}")
    if weight.dtype.kind not in "biuf":
        raise UserError(f"{name} must be real numbers; got type {weight.dtype}")
    _check_finite(weight, name)
    if weight.min() < 0:
        row = int(weight.argmin())
        raise UserError(f"{name} must not be negative; got {weight[row]} at row {row}")
    if weight.max() == 0:
        raise UserError(f"{name} must not be all zero; got {len(weight)} zeros")
    if not _SMALLEST <= weight.max() <= _LARGEST:
        raise UserError(f"the largest {name} must be from {_SMALLEST:g} to {_LARGEST:g}; got {weight.max()}")


def _check_finite(values: Array, name: str, column_names: Sequence[str] = ()) -> None:
    """Raise UserError with the number of NaN and infinities and the place of the first."""
    if values.dtype.kind != "f":
        return
    count, first = 0, (0, 0)
    table = values if values.ndim == 2 else values[:, np.newaxis]
    for rows in row_chunks(table):
        finite = np.isfinite(table[rows])
        if finite.all():
            continue
        if count == 0:
            row, column = np.argwhere(~finite)[0].tolist()
            first = (rows.start + row, column)
        count += finite.size - int(np.count_nonzero(finite))
    if count:
        row, column = first
        place = f"row {row}"
        if values.ndim == 2:
            place += f", column {column}"
            if column < len(column_names):
                place += f" ({column_names[column]!r})"
        raise UserError(
            f"{name} must be finite; got {count} NaN or infinite, the first ({table[first]}) at {place}; leave such "
            f"samples out, or put numbers in their place"
        )
