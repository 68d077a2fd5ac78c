"""The variables of one layer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from torch import Tensor

from pdadmm.math.tiles import Window

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
    is_inserted: bool = False
    """It joined as the identity when the network grew; the ridge pulls it there and not to zero."""
    gram_scale: float = 1.0
    """s: mean diagonal of the centred pᵀp when the growth stage began; the unit of damping and ridge."""
    rounded_p: Tensor | None = None
    """Where p is sent at a lower precision: p as it is sent, to which p is rounded before it is used."""
    rounded_m: Tensor | None = None
    """Where m is sent at a lower precision: m as it was sent, so that u = rho q - m agrees with it."""
    lane: int = 0
    """Layers whose sums are under way at the same time use different lanes."""
    carried: dict[Window, list[Tensor]] = field(default_factory=dict)
    """Where windows of samples are visited in turn: the sums that the W-step needs of each, as it was left."""

    def round_p(self, rows: slice) -> bool:
        """Round p of these rows to what is sent, where that has a lower precision; says whether it was."""
        if self.rounded_p is None:
            return False
        self.p[rows] = self.rounded_p[rows].copy_(self.p[rows])
        return True
