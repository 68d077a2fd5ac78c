"""The network itself: weights and activations, evaluated forward in tiles; and where its first weights come from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pdadmm.growth import Kind, embed
from pdadmm.math.activations import Activations
from pdadmm.math.subproblems import linear

FORWARD_ROWS = 4096
BACKWARD_ROWS = 2048  # samples held at once where a backward pass follows: with all of them it takes half as long again


@dataclass
class Network:
    """x -> W_L f(… f(W_1 x + b_1) …) + b_L, each hidden layer with an activation f of its own."""

    weights: list[Tensor]
    biases: list[Tensor]
    activations: Activations

    @property
    def hidden(self) -> tuple[int, ...]:
        """The widths between input and output."""
        return tuple(len(b) for b in self.biases[:-1])

    @property
    def kinds(self) -> list[Kind]:
        """The hidden layers, as growth tells them apart."""
        return list(zip(self.hidden, self.activations.names, strict=True))

    def to(self, dtype: torch.dtype, device: torch.device) -> Network:
        """The same in other arithmetic, elsewhere."""
        weights, biases = ([v.to(device=device, dtype=dtype) for v in vs] for vs in (self.weights, self.biases))
        return Network(weights, biases, self.activations)

    def forward(self, x: Tensor) -> Tensor:
        """The outputs z_L for these samples, a few thousand at a time."""
        out = torch.empty(len(x), len(self.biases[-1]), dtype=x.dtype, device=x.device)
        for rows, h in self.features(x):
            linear(h, self.weights[-1], self.biases[-1], out[rows])
        return out

    def features(self, x: Tensor) -> Iterator[tuple[slice, Tensor]]:
        """What the hidden layers give to the output layer for these samples, a few thousand rows at a time."""
        for start in range(0, len(x), FORWARD_ROWS):
            rows = slice(start, min(start + FORWARD_ROWS, len(x)))
            h = x[rows]
            for W, b, f in zip(self.weights[:-1], self.biases[:-1], self.activations, strict=True):
                a = linear(h, W, b, h.new_empty(len(h), len(b)))
                h = f.forward(a, a)
            yield rows, h


def initial_layer(
    seed: int, layer: int, fan_in: int, width: int, kind: str, dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, Tensor]:
    """W from N(0, 2/fan-in) (`he`) or N(0, 0.1²) (`paper`), b = 0.

    Each layer draws from its own stream, (seed, layer), so the draw does not depend on how layers are placed or when
    they are added; it is made in float64 on the CPU, so it does not depend on the arithmetic either.
    """
    state = int(np.random.SeedSequence([seed, layer]).generate_state(1, np.uint64)[0] >> 1)
    deviation = (2 / fan_in) ** 0.5 if kind == "he" else 0.1
    W = torch.randn(width, fan_in, generator=torch.Generator().manual_seed(state), dtype=torch.float64)
    return W.mul_(deviation).to(dtype=dtype, device=device), torch.zeros(width, dtype=dtype, device=device)


def identity_layer(width: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """W = I, b = 0: passes its input on."""
    return torch.eye(width, dtype=like.dtype, device=like.device), like.new_zeros(width)


def deepen(network: Network, hidden: Sequence[int], activations: Activations) -> Network:
    """The same network with identity layers inserted until its hidden layers have these widths and activations.

    The function is unchanged where f(f(z)) = f(z).
    """
    old = list(zip(network.weights, network.biases, strict=True))
    sources = [*embed(network.kinds, list(zip(hidden, activations.names, strict=True))), len(old) - 1]
    layers = [
        identity_layer(width, network.biases[0]) if source is None else (old[source][0].clone(), old[source][1].clone())
        for width, source in zip((*hidden, 0), sources, strict=True)
    ]
    return Network([W for W, _ in layers], [b for _, b in layers], activations)
