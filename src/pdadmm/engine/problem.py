"""What is to be learned, as one process sees it."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from pdadmm.config import Config
from pdadmm.math.subproblems import Weights
from pdadmm.storage import Storage


@dataclass(frozen=True)
class Samples:
    """Inputs and targets (class indices or real values); a process holds only what its layers need."""

    x: Tensor | None
    y: Tensor | None


@dataclass(frozen=True)
class Problem:
    """The shape of the whole problem, and this process's part of it: the rows of its shard.

    Inputs are only where the first layer is, targets and sample weights only where the output layer is.
    """

    num_samples: int
    num_features: int
    num_outputs: int
    dtype: torch.dtype
    device: torch.device
    train: Samples
    sample_weight: Tensor | None
    test: Samples | None = None
    storage: Storage = field(default_factory=Storage)
    """Where arrays of all samples are to live."""

    @classmethod
    def whole(
        cls, x: Tensor, y: Tensor, sample_weight: Tensor, num_outputs: int, test: Samples | None = None
    ) -> Problem:
        """All of it in one process."""
        return cls(len(x), x.shape[1], num_outputs, x.dtype, x.device, Samples(x, y), sample_weight, test)


def method_weights(config: Config) -> Weights:
    """The weights of L_rho in a resolved configuration."""
    names = ("nu", "rho", "z_prox", "damping", "l2", "nu_output", "p_relax", "w_relax", "z_relax")
    values: list[float] = [getattr(config, name) for name in names]
    assert None not in values
    return Weights(*values)
