"""The world of torch.distributed: the only module that imports it.

Ranks are laid out stage by stage: rank = stage * num_shards + shard. p and m cross between neighbouring stages of the
same shard, point to point; sums over samples are gathered among the shards of a stage and added locally, in the order
of the tree, because a backend's own all-reduce adds in an order of its own.

gloo checks neither shape nor type of a message, so all processes compare notes once, before the first one (`agree`).
Every message has a tag that says its kind, chunk and sequence number. Nothing waits longer than the timeout.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

from pdadmm.engine.launch import meeting_file
from pdadmm.engine.world import Bounds, World
from pdadmm.errors import LostWorkerError, UserError

PROTOCOL = 1
_KINDS = ("p", "m")
_MAX_CHUNKS = 1024
_SEQUENCES = 512  # far more arrays than can be under way at once
_WHOLE = (_MAX_CHUNKS - 1) * len(_KINDS)  # the tag of a whole tensor


class _Chunks:
    """An array that crosses a boundary again and again, chunk by chunk, to or from one rank."""

    def __init__(self, world: DistributedWorld, kind: str, stage: int, array: Tensor, bounds: Bounds) -> None:
        self.array = array
        self._world, self._kind, self._rank, self._bounds = world, kind, world.rank_of(stage), bounds
        self._works: dict[int, dist.Work | None] = {}
        self._times = [0] * len(bounds)

    def _tag(self, chunk: int) -> int:
        """Says kind, chunk and sequence number."""
        self._times[chunk] += 1
        return (self._times[chunk] % _SEQUENCES * _MAX_CHUNKS + chunk) * len(_KINDS) + _KINDS.index(self._kind)

    def free(self, chunk: int) -> None:
        """Wait until a chunk has left, or is here."""
        if (work := self._works.pop(chunk, None)) is not None:
            with self._world.waiting(f"exchanging {self._kind} with rank {self._rank}"):
                work.wait()

    def finish(self) -> None:
        """Wait for all chunks."""
        for chunk in range(len(self._bounds)):
            self.free(chunk)


class ChunkInbox(_Chunks):
    """One that arrives."""

    def post(self) -> None:
        """Receive the next array; the one before must have been used, for its rows may be overwritten from now on."""
        assert not self._works
        for chunk, (start, stop) in enumerate(self._bounds):
            self._works[chunk] = dist.irecv(self.array[start:stop], self._rank, tag=self._tag(chunk))

    def tile(self, rows: slice, out: Tensor) -> Tensor:
        """These rows, once they are here; in `out` where they came in another precision."""
        for chunk, (start, stop) in enumerate(self._bounds):
            if start < rows.stop and rows.start < stop:
                self.free(chunk)
        part = self.array[rows]
        return part if part.dtype == out.dtype else out.copy_(part)


class ChunkOutbox(_Chunks):
    """One that leaves."""

    def send(self, chunk: int) -> None:
        """Send a chunk; its rows must not change until it is `free`."""
        self.free(chunk)
        start, stop = self._bounds[chunk]
        part = self.array[start:stop]
        with self._world.sending(part, f"sending {self._kind} to rank {self._rank}"):
            self._works[chunk] = dist.isend(part, self._rank, tag=self._tag(chunk))

    def send_all(self) -> None:
        """Send the whole array."""
        for chunk in range(len(self._bounds)):
            self.send(chunk)


@dataclass(frozen=True)
class Boundary:
    """The link to a neighbouring stage."""

    inbox: ChunkInbox
    outbox: ChunkOutbox


class DistributedWorld(World):
    """This process among the others of its run; made once the environment of our launcher or of torchrun is there.

    Processes that our launcher started meet through a file; under torchrun they meet at its store on the network.
    """

    def __init__(self, num_stages: int, num_shards: int, timeout: float) -> None:
        super().__init__()
        size, expected = int(os.environ["WORLD_SIZE"]), num_stages * num_shards
        if size != expected:
            raise UserError(
                f"workers times shards must be the number of processes, {size}; got {num_stages} x {num_shards}"
            )
        self._timeout, limit = timeout, timedelta(seconds=timeout)
        with self._in_touch("meeting the other processes"):
            if meeting := meeting_file():
                dist.init_process_group("gloo", f"file://{meeting}", limit, size, int(os.environ["RANK"]))
            else:
                dist.init_process_group("gloo", timeout=limit)
        self.stage, self.shard = divmod(dist.get_rank(), num_shards)
        self.num_stages, self.num_shards = num_stages, num_shards
        self.local_processes = int(os.environ.get("LOCAL_WORLD_SIZE", size))
        # Every process must make every group, in the same order; a group does not inherit the timeout.
        ranks = [[s * num_shards + d for s in range(num_stages)] for d in range(num_shards)]
        by_shard = [dist.new_group(column, timeout=limit) for column in ranks]
        by_stage = [dist.new_group(list(row), timeout=limit) for row in zip(*ranks, strict=True)]
        self._stages, self._shards = by_shard[self.shard], by_stage[self.stage]

    @contextmanager
    def _in_touch(self, what: str) -> Iterator[None]:
        """Name what was under way when a process was lost. gloo has one error for all; our own clock tells why."""
        began = time.monotonic()
        try:
            yield
        except RuntimeError as error:
            late = time.monotonic() - began >= self._timeout
            why = "it did not answer in time" if late else "its connection broke"
            raise LostWorkerError(f"lost another process while {what}: {why}") from error

    @contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """Count the body as waiting."""
        began = time.perf_counter()
        with self._in_touch(what):
            yield
        self.traffic.wait_seconds += time.perf_counter() - began

    @contextmanager
    def sending(self, tensor: Tensor, what: str) -> Iterator[None]:
        """Count the body as sending this tensor."""
        began = time.perf_counter()
        with self._in_touch(what):
            yield
        self.traffic.send_seconds += time.perf_counter() - began
        self.traffic.bytes_sent += tensor.numel() * tensor.element_size()

    def agree(self, notes: Mapping[str, object]) -> None:
        """Compare everyone's notes with those of rank 0."""
        text = json.dumps({"protocol": PROTOCOL, **notes}, sort_keys=True)
        everyone = [json.loads(note) for note in self.gather(text)]
        for rank, theirs in enumerate(everyone):
            for key, value in everyone[0].items():
                if theirs.get(key) != value:
                    both = f"{theirs.get(key)!r} on rank {rank}, {value!r} on rank 0"
                    error = UserError(f"all processes must run the same, but {key} is {both}")
                    error.everywhere = True
                    raise error

    def gather(self, text: str) -> list[str]:
        """Everyone's text, as bytes: nothing is pickled."""
        content = bytearray(text.encode())
        sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(dist.get_world_size())]
        with self.waiting("comparing notes with the other processes"):
            dist.all_gather(sizes, torch.tensor([len(content)]))
            longest = max(1, *(int(size) for size in sizes))
            parts = [torch.empty(longest, dtype=torch.uint8) for _ in sizes]
            dist.all_gather(parts, torch.frombuffer(content.ljust(longest, b"\0"), dtype=torch.uint8))
        return [bytes(part[: int(size)].tolist()).decode() for part, size in zip(parts, sizes, strict=True)]

    def sum_over_shards(self, total: Tensor) -> Tensor:
        """Gather and add in the order of the tree."""
        if self.num_shards == 1:
            return total
        parts = [torch.empty_like(total) for _ in range(self.num_shards)]
        with self.waiting("adding up over the shards"):
            dist.all_gather(parts, total.contiguous(), group=self._shards)
        self.traffic.bytes_sent += (self.num_shards - 1) * total.numel() * total.element_size()
        while len(parts) > 1:
            pairs = [parts[i].add_(parts[i + 1]) for i in range(0, len(parts) - 1, 2)]
            parts = pairs + parts[len(parts) - len(parts) % 2 :]
        return parts[0]

    def sum_over_stages(self, values: Tensor) -> Tensor:
        """Each entry comes from one stage, the others add zero: exact in any order."""
        with self.waiting("sharing the reports of an iteration"):
            dist.all_reduce(values, group=self._stages)
        return values

    def broadcast(self, tensor: Tensor, stage: int) -> Tensor:
        """From a stage to the others of this shard."""
        tensor = tensor.contiguous()
        with self.waiting("sharing weights"):
            dist.broadcast(tensor, src=self.rank_of(stage), group=self._stages)
        return tensor

    def send(self, tensor: Tensor, stage: int) -> None:
        """To another stage of this shard."""
        with self.sending(tensor, f"sending to rank {self.rank_of(stage)}"):
            dist.send(tensor.contiguous(), self.rank_of(stage), tag=_WHOLE)

    def receive(self, tensor: Tensor, stage: int) -> None:
        """From another stage of this shard."""
        with self.waiting(f"waiting for rank {self.rank_of(stage)}"):
            dist.recv(tensor, self.rank_of(stage), tag=_WHOLE)

    def boundary(self, stage: int, arrives: Tensor, leaves: Tensor, bounds: Bounds) -> Boundary:
        """To the left p goes and m comes, to the right the other way round."""
        kinds = ("m", "p") if stage < self.stage else ("p", "m")
        return Boundary(
            ChunkInbox(self, kinds[0], stage, arrives, bounds), ChunkOutbox(self, kinds[1], stage, leaves, bounds)
        )

    def close(self) -> None:
        """Leave together: a process that tears down its connections while another still uses them would abort it."""
        with self._in_touch("leaving"):
            dist.barrier()
        dist.destroy_process_group()

    def rank_of(self, stage: int) -> int:
        """The rank that holds a stage's layers and this process's samples."""
        return stage * self.num_shards + self.shard
