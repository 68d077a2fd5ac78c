"""Read numpy's .npz: either X and y, or X_train and y_train with X_test and y_test.

Weights are w, w_train and w_test. Arrays with more dimensions, such as images, are flattened to rows. Pickled
objects are refused, because loading them runs code from the file.
"""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from pdadmm.data.arrays import Array, generated_names, shorten
from pdadmm.data.tables import Table
from pdadmm.errors import UserError

# RuntimeError and NotImplementedError: zip members that are encrypted or packed in an unknown way.
_BROKEN = (ValueError, EOFError, OSError, RuntimeError, NotImplementedError, zipfile.BadZipFile, zlib.error)


def read_npz(path: Path) -> tuple[Table, Table | None]:
    """The training part and, where the file has one, the test part."""
    with _opened(path) as file:
        if "X_train" not in file and "y_train" not in file:
            return _part(path, file, ""), None
        train = _part(path, file, "_train")
        has_test = "X_test" in file or "y_test" in file
        return train, _part(path, file, "_test") if has_test else None


def read_npz_features(path: Path) -> Table:
    """X, or else X_test, without targets."""
    with _opened(path) as file:
        key = "X_test" if "X" not in file and "X_test" in file else "X"
        X = _flat(_array(path, file, key))
        return Table(X, None, None, _names(X))


@contextmanager
def _opened(path: Path) -> Iterator[Mapping[str, object]]:
    # np.load would take a text for a pickle and a .npy for an array, with messages that name neither.
    if not zipfile.is_zipfile(path):
        raise UserError(f"{path} is not a .npz file: it is not a zip archive, or is cut short")
    try:
        file = np.load(path, allow_pickle=False)
    except _BROKEN as error:
        raise UserError(f"{path} is not a .npz file: {error}") from None
    with file:
        yield file


def _part(path: Path, file: Mapping[str, object], suffix: str) -> Table:
    X = _flat(_array(path, file, "X" + suffix))
    y = _array(path, file, "y" + suffix)
    weight = _array(path, file, "w" + suffix) if "w" + suffix in file else None
    return Table(X, y, weight, _names(X))


def _array(path: Path, file: Mapping[str, object], key: str) -> Array:
    if key not in file:
        raise UserError(
            f"{path} must have X and y, or X_train, y_train, X_test and y_test; "
            f"it lacks {key!r}, keys: {shorten(sorted(file)) or 'none'}"
        )
    try:
        array = file[key]
    except _BROKEN as error:
        if "allow_pickle" in str(error):
            raise UserError(
                f"{path}: {key} must be an array of numbers or texts; got Python objects "
                f"(save {key}.astype(str) or {key}.astype(float))"
            ) from None
        raise UserError(f"{path} is not a .npz file: {key} cannot be read: {error}") from None
    if not isinstance(array, np.ndarray):
        raise UserError(f"{path} is not a .npz file: {key} is not an array")
    return array


def _flat(X: Array) -> Array:
    """Images and the like as rows; the checks name what has fewer dimensions."""
    return X.reshape(len(X), math.prod(X.shape[1:])) if X.ndim > 2 else X


def _names(X: Array) -> tuple[str, ...]:
    return generated_names(X.shape[1] if X.ndim == 2 else 0)
