"""Accuracy and R² as sums over samples, so that shards can add them up."""

from __future__ import annotations

import torch
from torch import Tensor


class Scorer:
    """Collects what a score needs, batch by batch."""

    def __init__(self, regression: bool, num_outputs: int) -> None:
        self._regression = regression
        self.sums = torch.zeros((3, num_outputs) if regression else (1,), dtype=torch.float64)

    def add(self, z: Tensor, y: Tensor) -> None:
        """Take in a batch of outputs and targets."""
        if not self._regression:
            self.sums += (z.argmax(1) == y).sum().cpu()
            return
        z, y = z.double(), y.double()
        self.sums += torch.stack([(z - y).square_().sum(0), y.sum(0), y.square().sum(0)]).cpu()

    def result(self, sums: Tensor, num_samples: int) -> float:
        """The accuracy, or R² averaged over the targets, from the sums of all samples."""
        if not self._regression:
            return float(sums[0]) / num_samples
        error, total, squares = sums
        # Targets are standardised, so this cancels only where one does not vary: it is explained wholly or not at all.
        spread = squares - total.square() / num_samples
        varies = spread > 1e-13 * squares
        return float(torch.where(varies, 1 - error / spread, (error == 0).double()).mean())
