"""What the steps of an iteration have to compute, counted in floating-point operations.

Layers are placed on workers by these counts, which know no machine: the same network is placed alike everywhere. They
are also what is told of a run's time where nothing was measured, and how `pdadmm simulate` divides the measured
seconds of a step among its samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from pdadmm.config import Config
from pdadmm.engine.schedule import Action

ELEMENT = 300.0
"""Operations that the element-wise work on one number of a layer counts as: it waits for memory where products do not.
Without it, a wide first layer before many narrow ones would count for too much."""
PASS = 50.0
"""The same of a single simple pass: to make a message, or to add what a shard has summed."""

ACTIONS: tuple[Action, ...] = ("p", "W", "z")


class Flops(NamedTuple):
    """Of a step: what it takes whatever the number of samples, and for each sample."""

    fixed: float
    sample: float

    def of(self, samples: float) -> float:
        """With so many samples."""
        return self.fixed + samples * self.sample


def step_flops(config: Config, widths: Sequence[int], action: Action, layer: int) -> Flops:
    """A step of pdADMM for a layer (counted from 0) of a network with all its layers in one process.

    `widths` are the features, the hidden widths and the outputs.
    """
    n, n_out = widths[layer : layer + 2]
    product, square = 2.0 * n * n_out, 2.0 * n * n
    p_input = ELEMENT * n if layer else 0.0
    if config.solver == "exact":
        cube, system = float(n**3), float(n * n * n_out)
        found = {
            "p": Flops(cube + system, 2 * product + 1.6 * square + p_input) if layer else Flops(0.0, product),
            "W": Flops(cube / 3 + 2 * system, 0.0),
            "z": Flops(0.0, product + ELEMENT * n_out),
        }[action]
    else:
        found = {
            "p": Flops(0.0, 3 * product + p_input) if layer else Flops(0.0, product),
            "W": Flops(0.0, product),
            "z": Flops(0.0, ELEMENT * n_out),
        }[action]
    factor = 2 if config.dtype == "float64" else 1
    return Flops(factor * found.fixed, factor * found.sample)


def layer_flops(config: Config, samples: int, widths: Sequence[int]) -> list[float]:
    """An iteration of each layer, the output layer last, in one shard of a run on so many samples."""
    rows = -(-samples // config.shards)
    if config.method != "pdadmm":  # trained on one worker
        products, passes = (8, 24) if config.method == "dladmm" else (3, 4)
        item = 2 if config.dtype == "float64" else 1
        return [item * rows * (products * 2.0 * n + passes * PASS) * n_out for n, n_out in pairwise(widths)]
    return [
        sum(step_flops(config, widths, action, layer).of(rows) for action in ACTIONS)
        for layer in range(len(widths) - 1)
    ]
