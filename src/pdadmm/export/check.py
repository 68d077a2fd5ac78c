"""The exported file against the model: it is run, and must predict the same."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pdadmm.data.arrays import Array, as_float
from pdadmm.errors import DamageError
from pdadmm.export.formats import FORMATS
from pdadmm.model import Model

TOLERANCE = {"float32": 1e-4, "float64": 1e-9}
"""The largest difference of an output, relative to 1 + the largest output: other libraries add up in another order."""
RANDOM_SAMPLES = 1000


@dataclass(frozen=True)
class Check:
    """How near the file came to the model."""

    samples: int
    equal: int
    """Samples with the same prediction: of classes the very label, of values one within the tolerance."""
    ties: int
    """Samples with another class whose logits are equal within the tolerance."""
    largest_difference: float


def check_file(model: Model, kind: str, path: Path, X: Array) -> Check:
    """Run the file on these features; a file that predicts otherwise is refused as damaged."""
    dtype = str(model.dtype).removeprefix("torch.")
    with np.errstate(over="ignore"):  # what a file's sigmoid may do on its way to 0
        found = FORMATS[kind].run(path, as_float(X)).astype(np.float64)
    z: Array = model.outputs(X).double().cpu().numpy()
    regression = model.preprocessor.regression
    expected = model.preprocessor.restore(z) if regression else z
    found = found.reshape(expected.shape)
    allowed = TOLERANCE[dtype] * (1 + float(np.abs(expected).max()))
    distance = np.abs(found - expected).reshape(len(X), -1).max(1)
    same = distance <= allowed if regression else found.argmax(1) == expected.argmax(1)
    rows = np.flatnonzero(~same)
    ties = 0
    if not regression:
        gaps = expected[rows].max(1) - expected[rows, found[rows].argmax(1)]
        ties = int((gaps <= allowed).sum())
    worst = float(distance.max())
    if not worst <= allowed or len(rows) > ties:
        raise DamageError(
            f"{path} does not predict what the model predicts: {len(rows) - ties} of {len(X)} samples differ, "
            f"outputs by up to {worst:.3g} where {allowed:.3g} is rounding"
        )
    return Check(len(X), int(same.sum()), ties, worst)


def random_features(model: Model) -> Array:
    """Features such as the model may have seen, where its data is not at hand."""
    preprocessor = model.preprocessor
    drawn = np.random.default_rng(0).standard_normal((RANDOM_SAMPLES, preprocessor.num_features))
    features: Array = drawn * preprocessor.scale + preprocessor.shift
    return features
