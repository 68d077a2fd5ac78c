"""Train an `nn.Sequential` in place, from the weights it has or from weights drawn anew.

The module takes features and gives targets as they are. Training sees them scaled: the scaling is folded into the
first Linear, and that of real-valued targets into the last one, before and after, which changes no output but by
rounding.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from pdadmm.config import Config
from pdadmm.data import Dataset, Part, Preprocessor, check_dataset
from pdadmm.data.arrays import generated_names
from pdadmm.errors import UserError
from pdadmm.folding import fold, unfold
from pdadmm.history import Row
from pdadmm.machine import check_device
from pdadmm.math.activations import get_activations
from pdadmm.math.losses import is_regression, loss_names
from pdadmm.modules.data import collect
from pdadmm.modules.layers import Reading, is_untouched, read
from pdadmm.network import Network
from pdadmm.notation import format_names
from pdadmm.observer import Observer
from pdadmm.options import config_of_fit
from pdadmm.prepare import Start
from pdadmm.trainer import train

Callback = Callable[[Row], bool | None]


@dataclass(frozen=True, repr=False)
class Fitted:
    """What training came to; the weights are in the module."""

    history: list[Row]
    """A row an epoch, keys in `pdadmm.history.KEYS`."""
    status: str
    """`completed`, `converged`, or `interrupted` where the callback ended it."""
    config: Config
    """Every option, complete."""
    fresh: bool
    """Whether the weights were drawn anew, as told or by default."""

    def __repr__(self) -> str:
        weights = "weights drawn anew" if self.fresh else "the weights it had"
        return f"Fitted({self.status} after {self.history[-1]['epoch']} epochs from {weights})"


def fit(
    module: nn.Module,
    X: Any,
    y: Any = None,
    *,
    validation: Any = None,
    sample_weight: Any = None,
    class_weight: str = "none",
    loss: str | None = None,
    solver: str = "exact",
    nu: float | None = None,
    rho: float | None = None,
    method: Mapping[str, Any] | None = None,
    epochs: int = 100,
    seed: int = 0,
    threads: int | None = None,
    fresh: bool | None = None,
    callback: Callback | None = None,
) -> Fitted:
    """Train a Sequential of Linear layers and activations in place, in this process.

    X and y are tensors, arrays or anything numpy takes; X alone may be a Dataset or a DataLoader of pairs, which is
    read whole. `validation` is a pair of the same, or a Dataset or DataLoader, and is only scored. `loss` is
    cross_entropy where y is whole numbers (class indices), else squared; huber is there too. `method` has all other
    options of the training, by their names in `Config`. `fresh` draws the weights anew, and the network grows as it
    learns; by default that is done, with a note, for a module that still has the weights PyTorch made it with.
    `callback` is given every row of the history, and ends the training if it returns True.
    """
    found = read(module)
    part = collect(X, y, sample_weight, "X", found.flattens)
    held_out = _held_out(validation, found.flattens)
    config = config_of_fit(
        solver,
        nu,
        rho,
        method,
        **_of_module(found),
        loss=_chosen_loss(loss, part, found),
        class_weight=class_weight,
        epochs=epochs,
        seed=seed,
        threads=threads,
        workers=1,
    )
    check_device(config.device)
    data = Dataset("data", part, held_out, generated_names(part.X.shape[1]) if part.X.ndim == 2 else ())
    data = check_dataset(data, is_regression(config))
    preprocessor = _preprocessor(config, part, found)
    if fresh is None and (fresh := is_untouched(found.linears)):
        found.notes.append("the module has PyTorch's initial weights, so they are drawn anew; fresh=False keeps them")
    start = None if fresh else unfold(_network(found, config), preprocessor)
    observer = Observer()
    for note in found.notes:
        observer.on_note(note)
    if callback is not None:
        observer = dataclasses.replace(observer, is_enough=lambda row: callback(row) is True)
    result = train(config, data, observer, Start(preprocessor, start))
    _put_back(fold(result.model.network, preprocessor), found)
    return Fitted(result.history, result.status, result.config, bool(fresh))


def _held_out(validation: Any, flattens: bool) -> Part | None:
    if validation is None:
        return None
    X, y = validation if isinstance(validation, tuple | list) and len(validation) == 2 else (validation, None)
    return collect(X, y, None, "validation", flattens)


def _of_module(found: Reading) -> dict[str, Any]:
    """The options that the module decides."""
    first = found.linears[0].weight
    for linear in found.linears:
        for tensor in (linear.weight, linear.bias):
            if (tensor.dtype, tensor.device) != (first.dtype, first.device):
                raise UserError(
                    f"module must have one dtype and one device; got {first.dtype} on {first.device} and "
                    f"{tensor.dtype} on {tensor.device}"
                )
    return {
        "hidden": tuple(linear.out_features for linear in found.linears[:-1]),
        "activation": format_names(tuple(found.activations)),
        "dtype": "float64" if first.dtype == torch.float64 else "float32",
        "device": str(first.device),
    }


def _chosen_loss(loss: str | None, part: Part, found: Reading) -> str:
    if loss is None:
        loss = "cross_entropy" if part.y.dtype.kind in "iub" else "squared"
    elif loss not in loss_names():
        raise UserError(f"loss must be one of {', '.join(loss_names())}; got {loss!r}")
    outputs = found.linears[-1].out_features
    if loss == "cross_entropy" and outputs < 2:
        raise UserError(f"loss cross_entropy needs a module with an output for each class; got {outputs} output")
    if loss != "cross_entropy" and found.normalised_by is not None:
        raise UserError(f"loss {loss} does not go with {found.normalised_by} at the end; y is {part.y.dtype}")
    return loss


def _preprocessor(config: Config, part: Part, found: Reading) -> Preprocessor:
    """Scaling as the options ask; the classes are the module's outputs, whether y has them all or not."""
    assert config.scaling is not None
    inputs, outputs = found.linears[0].in_features, found.linears[-1].out_features
    if part.X.shape[1] != inputs:
        raise UserError(f"X must have the {inputs} features that the module takes; got {part.X.shape[1]}")
    fitted = Preprocessor.fit(part, config.scaling, is_regression(config))
    if fitted.classes is None:
        if fitted.num_outputs != outputs:
            raise UserError(f"y must have the {outputs} outputs of the module; got shape {part.y.shape}")
        return fitted
    low, high = fitted.classes[[0, -1]].tolist()
    if fitted.classes.dtype.kind not in "ib" or low < 0 or high >= outputs:
        raise UserError(
            f"y must be class indices from 0 to {outputs - 1}, the module's outputs; got {low!r} to {high!r}"
        )
    return dataclasses.replace(fitted, classes=np.arange(outputs))


def _network(found: Reading, config: Config) -> Network:
    """The module's present weights."""
    weights = [linear.weight.detach() for linear in found.linears]
    biases = [linear.bias.detach() for linear in found.linears]
    for index, tensor in enumerate((*weights, *biases)):
        if not tensor.isfinite().all():
            raise UserError(f"module must have finite weights to start from; Linear {index % len(weights)} has not")
    return Network(weights, biases, get_activations(config.activation, len(config.hidden)))


def _put_back(network: Network, found: Reading) -> None:
    with torch.no_grad():
        for linear, W, b in zip(found.linears, network.weights, network.biases, strict=True):
            linear.weight.copy_(W)
            linear.bias.copy_(b)
