"""The scaling of features and targets folded into a network's first and last layer, and taken out of them again.

    x -> W f(… f(V (x - shift) / scale + b) …) + c      becomes the same without shift and scale,

in float64, so that neither a large offset nor the arithmetic of the training shows.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pdadmm.data import Preprocessor
from pdadmm.network import Network


def fold(network: Network, preprocessor: Preprocessor) -> Network:
    """The network for features as they are given and, in regression, targets in their units."""
    W, b = _copies(network)
    W[0] /= torch.from_numpy(preprocessor.scale)
    b[0] -= W[0] @ torch.from_numpy(preprocessor.shift)
    if preprocessor.target_scale is not None:
        scale, shift = torch.from_numpy(preprocessor.target_scale), torch.from_numpy(preprocessor.target_shift)
        W[-1] *= scale[:, None]
        b[-1] = b[-1] * scale + shift
    return Network(W, b, network.activations)


def unfold(network: Network, preprocessor: Preprocessor) -> Network:
    """The network for scaled features and targets that `fold` makes this one of, up to rounding in float64."""
    W, b = _copies(network)
    b[0] += W[0] @ torch.from_numpy(preprocessor.shift)
    W[0] *= torch.from_numpy(preprocessor.scale)
    if preprocessor.target_scale is not None:
        scale, shift = torch.from_numpy(preprocessor.target_scale), torch.from_numpy(preprocessor.target_shift)
        W[-1] /= scale[:, None]
        b[-1] = (b[-1] - shift) / scale
    return Network(W, b, network.activations)


def _copies(network: Network) -> tuple[list[Tensor], list[Tensor]]:
    """Weights and biases in float64 on the CPU, to be written to."""
    weights, biases = (
        [v.detach().to("cpu", torch.float64, copy=True) for v in vs] for vs in (network.weights, network.biases)
    )
    return weights, biases
