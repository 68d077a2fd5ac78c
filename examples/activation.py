"""An activation of your own: a class with its linear pieces; its subproblem is solved by going through them.

python examples/activation.py
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

import pdadmm
from pdadmm.math.activations import Piece, PiecewiseLinear, register


@register
class SoftThreshold(PiecewiseLinear):
    """z moved towards 0 by 1/2: nothing between -1/2 and 1/2."""

    name = "soft_threshold"
    lipschitz = 1.0  # the largest slope; the theory's condition uses it
    idempotent = False  # f(f(z)) moves twice, so an identity layer would change the function, and nothing grows
    pieces = (
        Piece(-math.inf, -0.5, 1.0, 0.5),  # from, to, slope, offset
        Piece(-0.5, 0.5, 0.0, 0.0),
        Piece(0.5, math.inf, 1.0, -0.5),
    )

    def forward(self, z: Tensor, out: Tensor) -> Tensor:
        """z minus its part within [-1/2, 1/2]."""
        return torch.sub(z, z.clamp(-0.5, 0.5), out=out)


config = pdadmm.Config(hidden=(50,) * 3, activation="soft_threshold", epochs=30, threads=1)
result = pdadmm.train(config, pdadmm.load_data("digits"), pdadmm.Observer(on_note=lambda note: None))

# The certificate would show a wrong subproblem at once: the objective would not fall as it must.
assert all(row["certified"] for row in result.history)
print(f"test accuracy {result.history[-1]['test_accuracy']:.3f}, every epoch certified")
