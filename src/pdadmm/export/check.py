"""The formats of an exported model, and the proof of a file: it is run, and must predict what the model predicts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pdadmm.data.arrays import Array, as_float
from pdadmm.errors import DamageError
from pdadmm.export.onnx_file import run_onnx, to_onnx
from pdadmm.export.pt2_file import run_pt2, to_pt2
from pdadmm.model import Model

FORMATS: dict[str, tuple[Callable[[Model], bytes], Callable[[bytes, Array], Array]]] = {
    "onnx": (to_onnx, run_onnx),
    "pt2": (to_pt2, run_pt2),
}
"""By name, which is the file's suffix too: the content of the file, and what it gives for features as they are."""
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


def check(model: Model, kind: str, content: bytes, X: Array) -> Check:
    """Run the content of a file on these features; one that predicts otherwise is refused."""
    dtype = str(model.dtype).removeprefix("torch.")
    found = FORMATS[kind][1](content, as_float(X)).astype(np.float64)
    z: Array = model.outputs(X).double().cpu().numpy()
    regression = model.preprocessor.regression
    expected = model.preprocessor.restore(z) if regression else z
    found = found.reshape(expected.shape)
    allowed = TOLERANCE[dtype] * (1 + float(np.abs(expected).max()))
    with np.errstate(invalid="ignore"):  # infinite outputs are not within the tolerance either
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
            f"the {kind} file would not predict what the model predicts, and is not written: {len(rows) - ties} of "
            f"{len(X)} samples differ, outputs by up to {worst:.3g} where {allowed:.3g} is rounding"
        )
    return Check(len(X), int(same.sum()), ties, worst)


def random_features(model: Model) -> Array:
    """Features such as the model may have seen, where its data is not at hand."""
    preprocessor = model.preprocessor
    drawn = np.random.default_rng(0).standard_normal((RANDOM_SAMPLES, preprocessor.num_features))
    features: Array = drawn * preprocessor.scale + preprocessor.shift
    return features
