"""What a data set is: samples with targets, in a training part and perhaps a test part."""

from __future__ import annotations

from dataclasses import dataclass

from pdadmm.data.arrays import Array


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
