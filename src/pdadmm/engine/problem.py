"""What is to be learned, as one process sees it."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from pdadmm.config import Config
from pdadmm.math.subproblems import Weights
from pdadmm.storage import Memory, Storage


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
    storage: Storage = field(default_factory=Memory)
    """Where arrays of all samples are to live."""

    @classmethod
    def whole(
        cls, x: Tensor, y: Tensor, sample_weight: Tensor, num_outputs: int, test: Samples | None = None
    ) -> Problem:
        """All of it in one process."""
        return cls(len(x), x.shape[1], num_outputs, x.dtype, x.device, Samples(x, y), sample_weight, test)


def method_weights(config: Config) -> Weights:
    """The weights of L_rho in a resolved configuration."""
    assert config.nu is not None
    assert config.rho is not None
    assert config.z_prox is not None
    assert config.nu_output is not None
    assert config.p_relax is not None
    assert config.w_relax is not None
    assert config.z_relax is not None
    return Weights(
        config.nu,
        config.rho,
        config.z_prox,
        config.damping,
        config.l2,
        config.nu_output,
        config.p_relax,
        config.w_relax,
        config.z_relax,
    )
