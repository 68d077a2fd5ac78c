"""Train an `nn.Sequential` in place, from the weights it has or from weights drawn anew.

The module takes features and gives targets as they are. Training sees them scaled: the scaling is folded into the
first Linear, and that of real-valued targets into the last one, before and after, which changes no output but by
rounding.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pdadmm.config import Config
from pdadmm.data import Dataset, Part, Preprocessor, check_dataset
from pdadmm.data.arrays import generated_names
from pdadmm.errors import UserError
from pdadmm.history import Row
from pdadmm.machine import check_device
from pdadmm.math.activations import get_activations
from pdadmm.math.losses import is_regression, loss_names
from pdadmm.modules.data import collect
from pdadmm.modules.layers import Reading, is_untouched, read
from pdadmm.network import Network
from pdadmm.notation import format_names
from pdadmm.observer import Observer
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

    def __repr__(self) -> str:
        return f"Fitted({self.status} after {self.history[-1]['epoch']} epochs)"


def fit(
    module: nn.Module,
    X: Any,
    y: Any = None,
    *,
    validation: Any = None,
    sample_weight: Any = None,
    loss: str | None = None,
    scaling: str = "standard",
    fresh: bool | None = None,
    epochs: int | None = None,
    tolerance: float | None = None,
    seed: int | None = None,
    threads: int | None = None,
    class_weight: str | None = None,
    config: Config | None = None,
    callback: Callback | None = None,
) -> Fitted:
    """Train a Sequential of Linear layers and activations in place, in this process.

    X and y are tensors, arrays or anything numpy takes; X alone may be a Dataset or a DataLoader of pairs, which is
    read whole. `validation` is a pair of the same, or a Dataset or DataLoader, and is only scored. `loss` is
    cross_entropy where y is whole numbers (class indices), else squared; huber is there too. `fresh` draws the weights
    anew, and the network grows as it learns; by default that is done, with a note, for a module that still has the
    weights PyTorch made it with. `config` has all other options; what is left at None is its. `callback` is given every
    row of the history, and ends the training if it returns True.
    """
    found = read(module)
    part = collect(X, y, sample_weight, "X", found.flattens)
    held_out = _held_out(validation, found.flattens)
    given = {"epochs": epochs, "tolerance": tolerance, "seed": seed, "threads": threads, "class_weight": class_weight}
    options = dataclasses.replace(
        config or Config(),
        **{name: value for name, value in given.items() if value is not None},  # type: ignore[arg-type]
        **_of_module(found),
        loss=_chosen_loss(loss, part, found),
        scaling=scaling,
    )
    check_device(options.device)
    data = Dataset("data", part, held_out, generated_names(part.X.shape[1]) if part.X.ndim == 2 else ())
    check_dataset(data, is_regression(options))
    preprocessor = _preprocessor(options, part, found)
    if fresh is None and (fresh := is_untouched(found.linears)):
        found.notes.append("the module has PyTorch's initial weights, so they are drawn anew; fresh=False keeps them")
    start = None if fresh else _scaled(_network(found, options), preprocessor)
    observer = Observer()
    for note in found.notes:
        observer.on_note(note)
    if callback is not None:
        observer = dataclasses.replace(observer, is_enough=lambda row: callback(row) is True)
    result = train(options, data, observer, Start(preprocessor, start))
    _put_back(_unscaled(result.model.network, preprocessor), found)
    return Fitted(result.history, result.status, result.config)


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
        "init_from": None,
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
    low, high = fitted.classes[0], fitted.classes[-1]
    if fitted.classes.dtype.kind not in "ib" or low < 0 or high >= outputs:
        raise UserError(
            f"y must be class indices from 0 to {outputs - 1}, the module's outputs; got {low!r} to {high!r}"
        )
    return dataclasses.replace(fitted, classes=np.arange(outputs))


def _network(found: Reading, config: Config) -> Network:
    """The module's present weights."""
    weights = [linear.weight.detach().double() for linear in found.linears]
    biases = [linear.bias.detach().double() for linear in found.linears]
    for index, tensor in enumerate((*weights, *biases)):
        if not tensor.isfinite().all():
            raise UserError(f"module must have finite weights to start from; Linear {index % len(weights)} has not")
    return Network(weights, biases, get_activations(config.activation, len(config.hidden)))


def _scaled(network: Network, preprocessor: Preprocessor) -> Network:
    """The same function of scaled features and targets."""
    (shift, scale), (low, unit) = _maps(preprocessor, network.weights[0])
    W, b = network.weights, network.biases
    W[0], b[0] = W[0] * scale, b[0] + W[0] @ shift
    W[-1], b[-1] = W[-1] / unit[:, None], (b[-1] - low) / unit
    return network


def _unscaled(network: Network, preprocessor: Preprocessor) -> Network:
    """The same function of features and targets as they are, in float64."""
    W, b = [weight.double() for weight in network.weights], [bias.double() for bias in network.biases]
    (shift, scale), (low, unit) = _maps(preprocessor, W[0])
    W[0] = W[0] / scale
    b[0] = b[0] - W[0] @ shift
    W[-1], b[-1] = W[-1] * unit[:, None], b[-1] * unit + low
    return Network(W, b, network.activations)


def _maps(preprocessor: Preprocessor, like: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Shift and scale of the features, then of the targets; classes have none."""
    outputs = preprocessor.num_outputs
    targets = (preprocessor.target_shift, preprocessor.target_scale)
    for shift, scale in ((preprocessor.shift, preprocessor.scale), targets):
        if shift is None or scale is None:
            yield like.new_zeros(outputs), like.new_ones(outputs)
        else:
            yield torch.from_numpy(shift).to(like), torch.from_numpy(scale).to(like)


def _put_back(network: Network, found: Reading) -> None:
    with torch.no_grad():
        for linear, W, b in zip(found.linears, network.weights, network.biases, strict=True):
            linear.weight.copy_(W)
            linear.bias.copy_(b)
