"""Messages of lower precision: how p and m look on the wire.

| codec     | bytes an entry | rounding                                                      |
|-----------|----------------|---------------------------------------------------------------|
| `exact`   | 4 or 8         | none: the array itself is sent                                |
| `bfloat16`| 2              | to nearest                                                    |
| `int8`    | 1              | stochastic, so that errors average out; one scale a sample    |

The sender, too, goes on with the value as sent: p is replaced by what arrives, before W is fitted to it; and the next
q-step uses u = rho q - m with the m that was sent. So both sides work on the same Lagrangian, slightly off the exact
one.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

NAMES = ("exact", "bfloat16", "int8")
_SCALE_BYTES = 4


class Codec(Protocol):
    """Turns rows of an array into rows of a wire array and back."""

    def wire(self, rows: int, width: int, device: torch.device) -> Tensor:
        """An empty wire array."""

    def encode(self, values: Tensor, wire: Tensor) -> None:
        """Write these rows to the wire."""

    def decode(self, wire: Tensor, out: Tensor) -> Tensor:
        """Read rows of the wire into `out`."""

    @property
    def generator(self) -> torch.Generator | None:
        """Where its rounding comes from, if that is random; a resumed run goes on with the same numbers."""


class Bfloat16:
    """The upper half of a float32."""

    generator = None

    def wire(self, rows: int, width: int, device: torch.device) -> Tensor:
        """The same shape, at half the size."""
        return torch.empty(rows, width, dtype=torch.bfloat16, device=device)

    def encode(self, values: Tensor, wire: Tensor) -> None:
        """Round to nearest."""
        wire.copy_(values)

    def decode(self, wire: Tensor, out: Tensor) -> Tensor:
        """Exact."""
        return out.copy_(wire)


class Int8:
    """Whole numbers from -127 to 127 times a scale per row, which travels in the row's last four bytes."""

    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)

    def wire(self, rows: int, width: int, device: torch.device) -> Tensor:
        """A byte an entry and four a row."""
        return torch.empty(rows, width + _SCALE_BYTES, dtype=torch.int8, device=device)

    def encode(self, values: Tensor, wire: Tensor) -> None:
        """Round up or down at random, so that the mean is right."""
        scale = values.abs().amax(1, keepdim=True).div_(127).float()
        dither = torch.rand(values.shape, generator=self.generator, dtype=torch.float32).to(values.device)
        rounded = torch.where(scale > 0, values / scale, 0.0).add_(dither).floor_().clamp_(-127, 127)
        wire[:, :-_SCALE_BYTES] = rounded.to(torch.int8)
        wire[:, -_SCALE_BYTES:] = scale.view(torch.int8)

    def decode(self, wire: Tensor, out: Tensor) -> Tensor:
        """Times the scale."""
        scale = wire[:, -_SCALE_BYTES:].contiguous().view(torch.float32)
        return out.copy_(wire[:, :-_SCALE_BYTES]).mul_(scale)


def get_codec(name: str, seed: int) -> Codec | None:
    """None for `exact`: nothing has to be turned into anything."""
    if name == "bfloat16":
        return Bfloat16()
    return Int8(seed) if name == "int8" else None
