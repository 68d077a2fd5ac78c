"""The other processes of a run, as an engine sees them; and a world without any.

A run is a mesh: `num_stages` runs of layers times `num_shards` sets of samples. `pdadmm.engine.comm` has the world of
torch.distributed; a run in one process uses `LocalWorld` and needs nothing of it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

Bounds = Sequence[tuple[int, int]]
"""First and last row of each chunk."""


@dataclass
class Traffic:
    """What communication cost this process."""

    wait_seconds: float = 0.0
    send_seconds: float = 0.0
    bytes_sent: int = 0

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Count the body as waiting."""
        began = time.perf_counter()
        yield
        self.wait_seconds += time.perf_counter() - began

    @contextmanager
    def sending(self, tensor: Tensor) -> Iterator[None]:
        """Count the body as sending this tensor."""
        began = time.perf_counter()
        yield
        self.send_seconds += time.perf_counter() - began
        self.bytes_sent += tensor.numel() * tensor.element_size()


class Inbox(Protocol):
    """An array that arrives chunk by chunk, again and again."""

    def post(self) -> None:
        """Be ready for the next array; the present one may be overwritten from now on."""

    def tile(self, rows: slice, out: Tensor) -> Tensor:
        """These rows, once they are here."""

    def finish(self) -> None:
        """Wait for all of it."""


class Outbox(Protocol):
    """An array that is sent chunk by chunk, again and again."""

    array: Tensor

    def send(self, chunk: int) -> None:
        """Send a chunk; its rows must not change until it is `free`."""

    def free(self, chunk: int) -> None:
        """Wait until a chunk's rows may change."""

    def finish(self) -> None:
        """Wait for all chunks."""


class World(Protocol):
    """Where this process stands in the mesh, and how it reaches the others."""

    stage: int
    num_stages: int
    shard: int
    num_shards: int
    local_processes: int
    traffic: Traffic

    def agree(self, notes: Mapping[str, object]) -> None:
        """Refuse, on every process alike, to go on with processes that run something else."""

    def gather(self, text: str) -> list[str]:
        """What every process says, in the order of ranks, on every process."""

    def sum_over_shards(self, total: Tensor) -> Tensor:
        """The sum of the shards' totals, in the order of the tree, the same bits on all of them."""

    def sum_over_stages(self, values: Tensor) -> Tensor:
        """Add up what the stages contribute, in place."""

    def broadcast(self, tensor: Tensor, stage: int) -> Tensor:
        """Give every stage what `stage` has."""

    def send(self, tensor: Tensor, stage: int) -> None:
        """Send a whole tensor to another stage."""

    def receive(self, tensor: Tensor, stage: int) -> None:
        """Receive a whole tensor from another stage."""

    def inbox(self, kind: str, stage: int, array: Tensor, bounds: Bounds) -> Inbox:
        """Where arrays of this kind arrive from another stage."""

    def outbox(self, kind: str, stage: int, array: Tensor, bounds: Bounds) -> Outbox:
        """From where arrays of this kind go to another stage."""

    def close(self) -> None:
        """Leave, together with the others."""


class LocalWorld:
    """One process has all layers and all samples."""

    stage = 0
    num_stages = 1
    shard = 0
    num_shards = 1
    local_processes = 1

    def __init__(self) -> None:
        self.traffic = Traffic()

    def agree(self, notes: Mapping[str, object]) -> None:
        """Nobody to disagree."""

    def gather(self, text: str) -> list[str]:
        """Nobody else."""
        return [text]

    def sum_over_shards(self, total: Tensor) -> Tensor:
        """Already whole."""
        return total

    def sum_over_stages(self, values: Tensor) -> Tensor:
        """Already whole."""
        return values

    def broadcast(self, tensor: Tensor, stage: int) -> Tensor:
        """Already here."""
        return tensor

    def send(self, tensor: Tensor, stage: int) -> None:
        """Never asked for."""
        raise AssertionError("there is no other stage")

    def receive(self, tensor: Tensor, stage: int) -> None:
        """Never asked for."""
        raise AssertionError("there is no other stage")

    def inbox(self, kind: str, stage: int, array: Tensor, bounds: Bounds) -> Inbox:
        """Never asked for."""
        raise AssertionError("there is no other stage")

    def outbox(self, kind: str, stage: int, array: Tensor, bounds: Bounds) -> Outbox:
        """Never asked for."""
        raise AssertionError("there is no other stage")

    def close(self) -> None:
        """Nobody to leave."""
