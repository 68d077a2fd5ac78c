"""The formats of an exported model, each with its way to the disk and its way back.

`run` reads the file as a user would, with nothing of the model at hand, and returns what the network gives for
features as they are: logits, or values in the units of y.
"""

from __future__ import annotations

import io
import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from pdadmm.data.arrays import Array
from pdadmm.export.onnx_file import run_onnx, write_onnx
from pdadmm.model import Model, load_model
from pdadmm.modules import as_module
from pdadmm.rundir import write_whole


@dataclass(frozen=True)
class Format:
    """A kind of file."""

    file: str
    write: Callable[[Model, Path], None]
    run: Callable[[Path, Array], Array]


def _write_torchscript(model: Model, path: Path) -> None:
    module = as_module(model)
    buffer = io.BytesIO()
    with warnings.catch_warnings(action="ignore"):  # newer versions of PyTorch recommend torch.export instead
        torch.jit.save(torch.jit.script(module), buffer, _extra_files={"metadata.json": json.dumps(metadata(model))})
    write_whole(path, buffer.getbuffer())


def _run_torchscript(path: Path, X: Array) -> Array:
    with warnings.catch_warnings(action="ignore"), torch.no_grad():
        module = torch.jit.load(path, map_location="cpu")
        result: Array = module(torch.from_numpy(np.ascontiguousarray(X))).numpy()
    return result


def _write_safetensors(model: Model, path: Path) -> None:
    model.save(path)


def _run_safetensors(path: Path, X: Array) -> Array:
    model = load_model(path)
    z: Array = model.outputs(X).double().numpy()
    return model.preprocessor.restore(z) if model.preprocessor.regression else z


def _write_npz(model: Model, path: Path) -> None:
    network = model.network
    arrays = dict(model.preprocessor.to_tensors())
    for index, (W, b) in enumerate(zip(network.weights, network.biases, strict=True)):
        arrays[f"layers.{index}.weight"], arrays[f"layers.{index}.bias"] = W.cpu().numpy(), b.cpu().numpy()
    arrays["activations"] = np.array(network.activations.names)
    arrays["feature_names"] = np.array(model.preprocessor.feature_names)
    if model.preprocessor.classes is not None:
        arrays["classes"] = model.preprocessor.classes
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # type: ignore[arg-type]
    write_whole(path, buffer.getbuffer())


_NUMPY_ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "relu": lambda z: np.maximum(z, 0),
    "leaky_relu": lambda z: np.where(z > 0, z, z * z.dtype.type(0.01)),
    "hardtanh": lambda z: np.clip(z, -1, 1),
    "identity": lambda z: z,
    "tanh": np.tanh,
    "sigmoid": lambda z: 1 / (1 + np.exp(-z)),
}


def _run_npz(path: Path, X: Array) -> Array:
    """With numpy alone, as docs/export.md shows it."""
    with np.load(path, allow_pickle=False) as file:
        h: Array = (X - file["preprocess.shift"]) / file["preprocess.scale"]
        h = h.astype(file["layers.0.weight"].dtype)
        names = [str(name) for name in file["activations"]]
        for index, name in enumerate([*names, "identity"]):
            h = _NUMPY_ACTIVATIONS[name](h @ file[f"layers.{index}.weight"].T + file[f"layers.{index}.bias"])
        if "classes" in file:
            return h
        values: Array = h * file["preprocess.target_scale"] + file["preprocess.target_shift"]
        return values


def metadata(model: Model) -> dict[str, object]:
    """What a user of the file must know besides the numbers."""
    preprocessor = model.preprocessor
    return {
        "feature_names": list(preprocessor.feature_names),
        "classes": None if preprocessor.classes is None else preprocessor.classes.tolist(),
        "output": "values in the units of y" if preprocessor.regression else "logits, in the order of the classes",
    }


FORMATS: dict[str, Format] = {
    "onnx": Format("model.onnx", write_onnx, run_onnx),
    "torchscript": Format("model.pt", _write_torchscript, _run_torchscript),
    "safetensors": Format("model.safetensors", _write_safetensors, _run_safetensors),
    "npz": Format("model.npz", _write_npz, _run_npz),
}
