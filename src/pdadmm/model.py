"""A trained network together with what it needs to face a user's data: scaling, class labels, units of y.

On disk it is one safetensors file, `model.safetensors`: tensors `layers.0.weight`, `layers.0.bias`, … (as in
`nn.Linear`), the preprocessing beside them, and the rest as JSON in the header, with a SHA-256 of it all, because
safetensors loads a flipped bit without a word. Nothing in it can run code.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from torch import Tensor

from pdadmm.checkpoint.files import contents
from pdadmm.data import Part, Preprocessor
from pdadmm.data.tables import row_number
from pdadmm.engine.score import Scorer
from pdadmm.errors import DamageError, UserError
from pdadmm.math.activations import get_activations
from pdadmm.network import Network
from pdadmm.notation import format_hidden
from pdadmm.rundir import MODEL_FILE, write_whole

FORMAT = "pdadmm-model"
VERSION = "1"
DIGEST = "sha256"  # models written before it was have none, and are believed


@dataclass(repr=False)
class Model:
    """A network and its preprocessing."""

    network: Network
    preprocessor: Preprocessor

    def __repr__(self) -> str:
        network, kind = self.network, "regressor" if self.preprocessor.regression else "classifier"
        shape = f"{self.preprocessor.num_features} -> {format_hidden(network.hidden)} -> {len(network.biases[-1])}"
        return f"Model({shape}, {network.activations.name}, {kind})"

    @property
    def dtype(self) -> torch.dtype:
        """The arithmetic it was trained in."""
        return self.network.weights[0].dtype

    @property
    def device(self) -> torch.device:
        """Where its weights are."""
        return self.network.weights[0].device

    @property
    def names(self) -> dict[str, list[Any]]:
        """Of the features and, in a classifier, the labels of the outputs, as an exported file has them."""
        names: dict[str, list[Any]] = {"feature_names": list(self.preprocessor.feature_names)}
        classes = self.preprocessor.classes
        return names if classes is None else {**names, "classes": classes.tolist()}

    def tensor(self, X: NDArray[np.generic], row_name: Callable[[int], str] = row_number) -> Tensor:
        """A user's features as the network takes them."""
        dtype = np.dtype(str(self.dtype).removeprefix("torch."))
        return torch.from_numpy(self.preprocessor.features(np.asarray(X), dtype, None, row_name)).to(self.device)

    def outputs(self, X: NDArray[np.generic], row_name: Callable[[int], str] = row_number) -> Tensor:
        """z_L for a user's features; `row_name` is how a mistake calls a row."""
        return self.network.forward(self.tensor(X, row_name))

    def predict(self, X: NDArray[np.generic]) -> NDArray[np.generic]:
        """Class labels, or values in the units of y."""
        return self.predictions(self.outputs(X))

    def predictions(self, z: Tensor) -> NDArray[np.generic]:
        """What `outputs` stand for."""
        if self.preprocessor.regression:
            return self.preprocessor.restore(z.double().cpu().numpy())
        return self.preprocessor.decode(z.argmax(1).cpu().numpy())

    def predict_proba(self, X: NDArray[np.generic]) -> NDArray[np.float64]:
        """A probability for each class, in the order of `preprocessor.classes`."""
        self.check_classifies()
        return self.probabilities(self.outputs(X))

    def probabilities(self, z: Tensor) -> NDArray[np.float64]:
        """Those of the classes, from a classifier's `outputs`."""
        result: NDArray[np.float64] = z.double().softmax(1).cpu().numpy()
        return result

    def check_classifies(self) -> None:
        """Refuse probabilities of a regression."""
        if self.preprocessor.regression:
            raise UserError("probabilities need a classifier; this model predicts real values")

    def evaluate(self, part: Part) -> dict[str, float]:
        """`accuracy` or `r2` on samples with known targets."""
        y = torch.from_numpy(self.preprocessor.targets(part.y)).to(self.device)
        regression = self.preprocessor.regression
        scorer = Scorer(regression, self.preprocessor.num_outputs)
        scorer.add(self.outputs(part.X), y)
        return {"r2" if regression else "accuracy": scorer.result(scorer.sums, len(y))}

    def save(self, path: str | Path) -> None:
        """Write the file whole or not at all."""
        tensors = {name: torch.from_numpy(array) for name, array in self.preprocessor.to_tensors().items()}
        for index, (W, b) in enumerate(zip(self.network.weights, self.network.biases, strict=True)):
            tensors |= {f"layers.{index}.weight": W, f"layers.{index}.bias": b}
        metadata = {
            "format": FORMAT,
            "version": VERSION,
            "network": json.dumps({"activation": self.network.activations.name, "layers": len(self.network.biases)}),
            **self.preprocessor.to_metadata(),
        }
        write_whole(Path(path), *contents(tensors, metadata | {DIGEST: _digest(tensors, metadata)}))


def _digest(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> str:
    """SHA-256 of all that a model file says, whatever the order in which it says it."""
    digest = hashlib.sha256(json.dumps({**metadata, DIGEST: None}, sort_keys=True).encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        digest.update(tensor.contiguous().cpu().numpy().reshape(-1).data)
    return digest.hexdigest()


def load_model(path: str | Path, device: str = "cpu") -> Model:
    """The model in a run directory or in a file."""
    path = Path(path)
    if path.is_dir():
        path = path / MODEL_FILE
    if not path.is_file():
        raise UserError(f"no model at {path}; give a run directory or a {MODEL_FILE}")
    try:
        path.open("rb").close()  # the library calls every file that it cannot open missing
        with safe_open(path, framework="pt", device=device) as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
    except (SafetensorError, OSError) as error:
        raise UserError(f"{path} is not a safetensors file: {error}; give a run directory or a {MODEL_FILE}") from None
    if metadata.get("format") != FORMAT or metadata.get("version") != VERSION:
        raise UserError(
            f"{path} is not a model of this program: format {metadata.get('format')!r} version "
            f"{metadata.get('version')!r}, expected {FORMAT!r} version {VERSION!r}"
        )
    if DIGEST in metadata and metadata[DIGEST] != _digest(tensors, metadata):
        raise DamageError(
            f"{path} is damaged: what it holds is not what was written, by SHA-256; take another copy, or let "
            f"`pdadmm train --resume` of its run write it anew"
        )
    try:
        network = json.loads(metadata["network"])
        layers = range(network["layers"])
        model = Network(
            [tensors[f"layers.{i}.weight"] for i in layers],
            [tensors[f"layers.{i}.bias"] for i in layers],
            get_activations(network["activation"], len(layers) - 1),
        )
        arrays = {name: tensor.cpu().numpy() for name, tensor in tensors.items() if name.startswith("preprocess.")}
        preprocessor = Preprocessor.from_stored(arrays, metadata)
        _check_shapes(model, preprocessor)
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise UserError(f"{path} is damaged or incomplete: {error}") from None
    return Model(model, preprocessor)


def _check_shapes(network: Network, preprocessor: Preprocessor) -> None:
    """Layers must fit one another and the data that the preprocessing describes."""
    dtypes = {tensor.dtype for tensor in (*network.weights, *network.biases)}
    if dtypes not in ({torch.float32}, {torch.float64}):
        raise UserError(f"its layers must be all float32 or all float64; got {sorted(map(str, dtypes))}")
    widths = (preprocessor.num_features, *network.hidden, preprocessor.num_outputs)
    expected = [(width, fan_in) for fan_in, width in pairwise(widths)]
    got = [tuple(W.shape) for W in network.weights]
    if got != expected or any(b.shape != W.shape[:1] for W, b in zip(network.weights, network.biases, strict=True)):
        raise UserError(f"its layers must have the shapes {expected}; got {got}")
