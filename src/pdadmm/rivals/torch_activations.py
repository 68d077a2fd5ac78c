"""The activations as autograd takes them: in the place of z, where PyTorch has the same function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from pdadmm.math.activations import Activation, LeakyReLU

TorchActivation = Callable[[Tensor], Tensor]


def torch_activation(activation: Activation) -> TorchActivation:
    """f(z), which may overwrite z, and whose gradient autograd knows."""

    def by_slopes(z: Tensor) -> Tensor:
        return _BySlopes.apply(z, activation)  # type: ignore[no-untyped-call,no-any-return]

    return _KNOWN.get(activation.name, by_slopes)


def _leaky_relu(z: Tensor) -> Tensor:
    return functional.leaky_relu(z, LeakyReLU.negative_slope, inplace=True)


def _hardtanh(z: Tensor) -> Tensor:
    return functional.hardtanh(z, inplace=True)


def _identity(z: Tensor) -> Tensor:
    return z


_KNOWN: dict[str, TorchActivation] = {
    "relu": torch.relu_,
    "leaky_relu": _leaky_relu,
    "hardtanh": _hardtanh,
    "identity": _identity,
    "tanh": torch.tanh_,
    "sigmoid": torch.sigmoid_,
}


class _BySlopes(torch.autograd.Function):
    """Any other activation: its own forward, and the mean of its slopes from the left and the right."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, activation: Activation) -> Tensor:
        """f(z)."""
        ctx.save_for_backward(z)
        ctx.activation = activation
        return activation.forward(z, torch.empty_like(z))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """f'(z) times the gradient."""
        (z,) = ctx.saved_tensors
        left, right = ctx.activation.slopes(z)
        return left.add(right).mul_(gradients[0]).div_(2), None
