"""Mini-batches: windows of samples visited in turn, with the sums for W of all the others carried along.

A visit updates z and q, then p, of the window's samples in every layer, and then every layer's W from the sums over
*all* samples. After it, nothing changes the window's p and z until the next visit, so the sums it leaves behind stay
true: each step minimises L_rho over one block of variables, and L_rho falls with every step as with whole iterations.
With one window this is the usual iteration, begun at its z-step.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from pdadmm.engine.layers import Layers
from pdadmm.errors import UserError
from pdadmm.math.lagrangian import LayerReport, hidden_drop, output_drop
from pdadmm.math.state import TileSource
from pdadmm.math.subproblems import Weights
from pdadmm.math.tiles import Tiling, Window, split

Neighbour = Callable[[int], TileSource | None]


def windows(tiling: Tiling, batches: int) -> list[Window]:
    """The windows of so many batches; a window is whole chunks."""
    if batches > tiling.num_chunks:
        raise UserError(
            f"batches must be at most {tiling.num_chunks} for {tiling.num_samples} samples and layers of "
            f"{tiling.width}: a batch needs more samples than a layer has columns; got {batches}"
        )
    return [(part.start, part.stop) for part in split(tiling.num_chunks, batches)]


class Batches:
    """An epoch as visits to windows of samples, in one process."""

    def __init__(
        self, layers: Layers, weights: Weights, batches: int, message_to: Neighbour, p_after: Neighbour
    ) -> None:
        self._layers, self._weights = layers, weights
        self._message_to, self._p_after = message_to, p_after
        self._windows = windows(layers.workspace.tiling, batches)

    def begin(self) -> None:
        """Collect the sums of every window where the layers are."""
        for window in self._windows:
            self._layers.workspace.window = window
            for layer in self._layers.own:
                self._layers.blocks[layer].carry_sums()
        self._layers.workspace.window = None

    def iterate(self, ridge: float) -> dict[int, LayerReport]:
        """Visit every window once. The reports are of the end, with the certain fall of all visits together."""
        own, blocks = self._layers.own, self._layers.blocks
        certain, moved = dict.fromkeys(own, 0.0), {layer: LayerReport() for layer in own}
        for window in self._windows:
            self._layers.workspace.window = window
            for layer in own:
                report = blocks[layer].z_phase(self._p_after(layer), ridge)
                certain[layer] += self._by_z(layer, report)
                moved[layer].dz += report.dz
                moved[layer].dq += report.dq
                moved[layer].prox_residual += report.prox_residual
            for layer in own:
                blocks[layer].p_phase(self._message_to(layer))
                blocks[layer].W_phase(ridge)
                certain[layer] += blocks[layer].certain
        self._layers.workspace.window = None
        return {layer: self._at_end(layer, ridge, certain[layer], moved[layer]) for layer in own}

    def _at_end(self, layer: int, ridge: float, certain: float, moved: LayerReport) -> LayerReport:
        """What is measured now, with a `drop` that makes the certificate that of the visits."""
        now = self._layers.blocks[layer].measure(self._p_after(layer), ridge)
        report = dataclasses.replace(now, dz=moved.dz, dq=moved.dq, prox_residual=moved.prox_residual)
        return dataclasses.replace(report, drop=certain - self._by_z(layer, report))

    def _by_z(self, layer: int, report: LayerReport) -> float:
        by_step = output_drop if layer == self._layers.output else hidden_drop
        return by_step(report, self._weights)
