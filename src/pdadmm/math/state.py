"""The variables of one layer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

TileSource = Callable[[slice, Tensor], Tensor]
"""Gives the rows of a neighbour's array: (rows, buffer it may use) -> tile."""


AfterChunk = Callable[[int], None]
"""Told after each chunk of samples that it is done, counted from 0."""


@dataclass
class LayerState:
    """One layer's variables, named as in the paper; rows are samples.

    `q` is None in the output layer. `a` is kept only for solvers that carry it. The input layer's `p` is the data
    and never changes.
    """

    W: Tensor
    b: Tensor
    p: Tensor
    z: Tensor
    q: Tensor | None
    a: Tensor | None
    is_input: bool
    gram_scale: float = 1.0
    """s: mean diagonal of the centred pᵀp when the growth stage began; the unit of damping and ridge."""
    lane: int = 0
    """Layers whose sums are under way at the same time use different lanes."""
