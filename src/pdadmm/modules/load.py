"""Models as modules, which take features as they are and give logits or values in y's units; and modules as models."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pdadmm.data import Preprocessor, as_labels
from pdadmm.data.arrays import Array, generated_names
from pdadmm.errors import UserError
from pdadmm.math.activations import Activations, get_activation, torch_modules
from pdadmm.model import Model, load_model
from pdadmm.modules.layers import read
from pdadmm.network import Network


class Scale(nn.Module):
    """(x - shift) / scale in float64, as the model was given its features, then in the arithmetic of the layers."""

    shift: Tensor
    scale: Tensor
    like: Tensor

    def __init__(self, shift: Array, scale: Array, dtype: torch.dtype) -> None:
        super().__init__()
        self.register_buffer("shift", torch.from_numpy(np.array(shift, dtype=np.float64)))
        self.register_buffer("scale", torch.from_numpy(np.array(scale, dtype=np.float64)))
        self.register_buffer("like", torch.empty(0, dtype=dtype))

    def forward(self, x: Tensor) -> Tensor:
        """Scaled features."""
        return ((x.double() - self.shift) / self.scale).to(self.like.dtype)


class Restore(nn.Module):
    """z * scale + shift in float64: the outputs of a regression in the units of y; (N,) where y was."""

    shift: Tensor
    scale: Tensor

    def __init__(self, shift: Array, scale: Array, is_1d: bool) -> None:
        super().__init__()
        self.register_buffer("shift", torch.from_numpy(np.array(shift, dtype=np.float64)))
        self.register_buffer("scale", torch.from_numpy(np.array(scale, dtype=np.float64)))
        self.is_1d = is_1d

    def forward(self, z: Tensor) -> Tensor:
        """Values in the units of y."""
        values = z.double() * self.scale + self.shift
        return values[:, 0] if self.is_1d else values


def load_module(path: str | Path, device: str = "cpu") -> nn.Sequential:
    """The model in a run directory or a file as a module, in eval mode."""
    return as_module(load_model(path, device))


def as_module(model: Model) -> nn.Sequential:
    """A model as a module with weights of its own: scaling, layers and, in regression, the way back to y's units."""
    network, preprocessor = model.network, model.preprocessor
    parts: list[nn.Module] = [Scale(preprocessor.shift, preprocessor.scale, model.dtype)]
    known = torch_modules()
    for W, b, name in zip(network.weights, network.biases, (*network.activations.names, None), strict=True):
        linear = nn.Linear(W.shape[1], W.shape[0], dtype=W.dtype)
        with torch.no_grad():
            linear.weight.copy_(W)
            linear.bias.copy_(b)
        parts.append(linear)
        if name is not None:
            if name not in known:
                raise UserError(f"activation must be one that PyTorch has, {', '.join(known)}; got {name}")
            parts.append(known[name]())
    if preprocessor.regression:
        assert preprocessor.target_shift is not None
        assert preprocessor.target_scale is not None
        parts.append(Restore(preprocessor.target_shift, preprocessor.target_scale, preprocessor.target_is_1d))
    return nn.Sequential(*parts).to(model.device).eval()


def from_module(
    module: nn.Module, *, classes: Sequence[Any] | None = None, feature_names: Sequence[str] | None = None
) -> Model:
    """A Sequential that `fit` could train as a model, to be saved, evaluated or exported; it has no scaling.

    With `classes`, the label of each output, it is a classifier; without, its outputs are values.
    """
    found = read(module)
    inputs, outputs = found.linears[0].in_features, found.linears[-1].out_features
    names = generated_names(inputs) if feature_names is None else tuple(feature_names)
    if len(names) != inputs:
        raise UserError(f"feature_names must name the {inputs} features of the module; got {len(names)}")
    nothing = (np.zeros(inputs), np.ones(inputs), names)
    if classes is None:
        preprocessor = Preprocessor(*nothing, None, np.zeros(outputs), np.ones(outputs), outputs == 1)
    else:
        labels = as_labels(np.asarray(classes), "classes")
        if len(labels) != outputs or len(np.unique(labels)) != outputs:
            raise UserError(f"classes must name the {outputs} outputs of the module, each once; got {labels.tolist()}")
        preprocessor = Preprocessor(*nothing, labels)
    weights = [linear.weight.detach().clone() for linear in found.linears]
    biases = [linear.bias.detach().clone() for linear in found.linears]
    dtype = torch.float64 if weights[0].dtype == torch.float64 else torch.float32
    network = Network(weights, biases, Activations(map(get_activation, found.activations)))
    return Model(network.to(dtype, weights[0].device), preprocessor)
