"""Small helpers for big arrays: walk them in runs of rows, and settle on a float type."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

# Elements per run: a float64 temporary of 2 MiB, which stays in a core's cache.
CHUNK_ELEMENTS = 1 << 18
# Above this, float32 no longer holds every whole number.
FLOAT32_WHOLE = 1 << 24


def row_chunks(X: Array) -> Iterator[slice]:
    """Slices that cover the rows of X in order, each of about `CHUNK_ELEMENTS` elements."""
    row_elements = max(1, X.size // max(1, len(X)))
    step = max(1, CHUNK_ELEMENTS // row_elements)
    for start in range(0, len(X), step):
        yield slice(start, min(start + step, len(X)))


def as_float(X: Array) -> Array:
    """X in its `float_type`.

    Floats in the machine's byte order are returned without a copy; what is not a number at all is returned as it
    is, for the checks to name.
    """
    return X.astype(float_type(X), copy=False)


def float_type(X: Array) -> np.dtype[Any]:
    """float32 where that loses nothing (float16, float32, whole numbers up to 2²⁴), else float64."""
    if X.dtype.kind not in "biuf":
        return X.dtype
    return np.dtype(np.float32 if _fits_float32(X) else np.float64)


def _fits_float32(X: Array) -> bool:
    if X.dtype.kind == "f":
        return X.dtype.itemsize <= 4
    if X.dtype.itemsize <= 2 or X.size == 0:
        return True
    # Python's integers, because -X.min() overflows at the type's own end.
    return int(X.min()) >= -FLOAT32_WHOLE and int(X.max()) <= FLOAT32_WHOLE


def is_mapped(X: Array) -> bool:
    """Whether the numbers are in a file, so that they take no memory of their own."""
    base: object = X
    while isinstance(base, np.ndarray) and not isinstance(base, np.memmap):
        base = base.base
    return isinstance(base, np.memmap)


def generated_names(count: int) -> tuple[str, ...]:
    """x0, x1, …: the names of features that came without any."""
    return tuple(f"x{index}" for index in range(count))


def shorten(values: list[Any], limit: int = 10) -> str:
    """The first values for an error message, and how many there are in all where that is more."""
    shown = ", ".join(repr(value) for value in values[:limit])
    return shown if len(values) <= limit else f"{shown}, … ({len(values)} in all)"
