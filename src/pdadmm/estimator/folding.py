"""A trained model as plain weights: the scaling of features and targets folded into the first and the last layer.

    x -> W f(… f(V (x - shift) / scale + b) …) + c      becomes the same without shift and scale,

in float64, so that neither a large offset nor the arithmetic of the training shows. `unfold` goes back, which is how a
fit starts from the one before.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from pdadmm.data import Preprocessor
from pdadmm.data.arrays import Array
from pdadmm.math.activations import get_activations
from pdadmm.model import Model
from pdadmm.network import Network


def fold(model: Model) -> tuple[list[Array], list[Array]]:
    """`coefs_` (n_in, n_out) and `intercepts_`, as scikit-learn lays them out."""
    preprocessor, network = model.preprocessor, model.network
    coefs = [np.array(W.double().cpu().numpy().T, order="C") for W in network.weights]
    intercepts = [b.double().cpu().numpy().copy() for b in network.biases]
    coefs[0] /= preprocessor.scale[:, np.newaxis]
    intercepts[0] -= preprocessor.shift @ coefs[0]
    if preprocessor.target_scale is not None:
        coefs[-1] *= preprocessor.target_scale
        intercepts[-1] = intercepts[-1] * preprocessor.target_scale + preprocessor.target_shift
    return coefs, intercepts


def unfold(
    coefs: Sequence[Array], intercepts: Sequence[Array], activation: str, preprocessor: Preprocessor, dtype: str
) -> Model:
    """The model that `fold` was given, up to rounding in float64."""
    coefs, intercepts = [coef.copy() for coef in coefs], [intercept.copy() for intercept in intercepts]
    if preprocessor.target_scale is not None:
        coefs[-1] /= preprocessor.target_scale
        intercepts[-1] = (intercepts[-1] - preprocessor.target_shift) / preprocessor.target_scale
    intercepts[0] += preprocessor.shift @ coefs[0]
    coefs[0] *= preprocessor.scale[:, np.newaxis]
    network = plain_network(coefs, intercepts, activation)
    kind = getattr(torch, dtype)
    weights, biases = [W.to(kind) for W in network.weights], [b.to(kind) for b in network.biases]
    return Model(Network(weights, biases, network.activations), preprocessor)


def plain_network(coefs: Sequence[Array], intercepts: Sequence[Array], activation: str) -> Network:
    """A network of these weights in float64; copies, because arrays of a mapped pickle cannot be written to."""
    weights = [torch.from_numpy(np.array(coef.T, dtype=np.float64, order="C")) for coef in coefs]
    biases = [torch.from_numpy(np.array(intercept, dtype=np.float64)) for intercept in intercepts]
    return Network(weights, biases, get_activations(activation, len(weights) - 1))
