"""What a data set is: samples with targets, in a training part and perhaps a test part."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from pdadmm.data.arrays import Array, float_type, is_mapped, row_chunks


# Arrays have no single truth value, so these compare by identity.
@dataclass(frozen=True, eq=False)
class Part:
    """Samples in rows, with their targets."""

    X: Array
    """(N, d) features."""
    y: Array
    """(N,) class labels or real values; in regression also (N, k)."""
    weight: Array | None = None
    """(N,) weights of the samples in the risk, or None for equal ones."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """A named training part and, unless the user wants none, a test part."""

    name: str
    train: Part
    test: Part | None
    feature_names: tuple[str, ...]
    notes: tuple[str, ...] = ()
    """What the user should know about it, such as samples that are not there."""
    is_finite: bool = False
    """Whether every NaN and infinity in the features was refused already, where they were read."""
    checked_for: bool | None = None
    """Whether it was found fit for regression (True) or for classification (False); None if nobody has looked."""

    def fingerprint(self) -> str:
        """A SHA-256 of every number and label in it; where the data lies and what it is called do not count."""
        digest = hashlib.sha256()
        for part in (self.train, self.test):
            if part is not None:
                _add(digest, part.X, float_type(part.X))
                for array in (part.y, part.weight):
                    if array is not None:
                        _add(digest, array, array.dtype)
            digest.update(b"part")
        return digest.hexdigest()

    def bytes_in_memory(self) -> int:
        """What its arrays take, but for those that are in files."""
        arrays = [
            array for part in (self.train, self.test) if part is not None for array in (part.X, part.y, part.weight)
        ]
        return sum(array.nbytes for array in arrays if array is not None and not is_mapped(array))


def _add(digest: hashlib._Hash, array: Array, dtype: np.dtype[Any]) -> None:
    """An array as if it were of this type; text has no fixed width."""
    is_text = dtype.kind in "OUS"
    digest.update(f"{array.shape} {'text' if is_text else dtype.str}".encode())
    for rows in row_chunks(array):
        if is_text:
            digest.update("".join(f"{value}\0" for value in array[rows].ravel()).encode())
        else:
            digest.update(array[rows].astype(dtype, copy=False).tobytes())
