"""The other processes of a run, as an engine sees them, where there are none.

A run is a mesh: `num_stages` runs of layers times `num_shards` sets of samples. `pdadmm.engine.comm` has the world of
torch.distributed; a run in one process uses `World` itself and needs nothing of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

if TYPE_CHECKING:
    from pdadmm.engine.comm import Boundary

Bounds = Sequence[tuple[int, int]]
"""First and last row of each chunk."""


@dataclass
class Traffic:
    """What communication cost this process."""

    wait_seconds: float = 0.0
    send_seconds: float = 0.0
    bytes_sent: int = 0


class World:
    """Where this process stands in the mesh, and how it reaches the others; here it is alone and has everything."""

    stage = 0
    num_stages = 1
    shard = 0
    num_shards = 1
    local_processes = 1

    def __init__(self) -> None:
        self.traffic = Traffic()

    def agree(self, notes: Mapping[str, object]) -> None:
        """Refuse, on every process alike, to go on with processes that run something else."""

    def gather(self, text: str) -> list[str]:
        """What every process says, in the order of ranks, on every process."""
        return [text]

    def sum_over_shards(self, total: Tensor) -> Tensor:
        """The sum of the shards' totals, in the order of the tree, the same bits on all of them."""
        return total

    def sum_over_stages(self, values: Tensor) -> Tensor:
        """Add up what the stages contribute, in place."""
        return values

    def broadcast(self, tensor: Tensor, stage: int) -> Tensor:
        """Give every stage what `stage` has."""
        return tensor

    def send(self, tensor: Tensor, stage: int) -> None:
        """Send a whole tensor to another stage."""
        raise AssertionError("there is no other stage")

    def receive(self, tensor: Tensor, stage: int) -> None:
        """Receive a whole tensor from another stage."""
        raise AssertionError("there is no other stage")

    def boundary(self, stage: int, arrives: Tensor, leaves: Tensor, bounds: Bounds) -> Boundary:
        """The link to a neighbouring stage, by which one array arrives and another leaves."""
        raise AssertionError("there is no other stage")

    def close(self) -> None:
        """Leave, together with the others."""
