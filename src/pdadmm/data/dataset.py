"""What a data set is: samples with targets, in a training part and perhaps a test part."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

from pdadmm.data.arrays import Array, row_chunks


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

    def fingerprint(self) -> str:
        """A SHA-256 of every number and label in it; where the data lies and what it is called do not count."""
        digest = hashlib.sha256()
        for part in (self.train, self.test):
            for array in (part.X, part.y, part.weight) if part is not None else ():
                if array is not None:
                    digest.update(f"{array.shape} {_type(array)}".encode())
                    for rows in row_chunks(array):
                        digest.update(_content(array[rows]))
            digest.update(b"part")
        return digest.hexdigest()


def _type(array: Array) -> str:
    """Text has no fixed width."""
    return "text" if array.dtype.kind in "OUS" else array.dtype.str


def _content(array: Array) -> bytes:
    if _type(array) == "text":
        return "".join(f"{value}\0" for value in array.ravel()).encode()
    return np.ascontiguousarray(array).tobytes()
