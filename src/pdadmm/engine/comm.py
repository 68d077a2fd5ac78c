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
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

from pdadmm.engine.launch import meeting_file
from pdadmm.engine.world import Bounds, Traffic
from pdadmm.errors import LostWorkerError, UserError

PROTOCOL = 1
_KINDS = {"p": 0, "m": 1}
_MAX_CHUNKS = 1024
_SEQUENCES = 512  # far more arrays than can be under way at once


@contextmanager
def _in_touch(what: str) -> Iterator[None]:
    """Name what was under way when a process was lost."""
    try:
        yield
    except (RuntimeError, dist.DistError) as error:
        late = any(words in str(error) for words in ("imed out", "timeout"))  # gloo's words, and the store's
        why = "it did not answer in time" if late else "its connection broke"
        raise LostWorkerError(f"lost another process while {what}: {why}") from error


class ChunkInbox:
    """An array that arrives chunk by chunk from one rank."""

    def __init__(self, kind: str, rank: int, array: Tensor, bounds: Bounds, traffic: Traffic) -> None:
        self._kind, self._rank, self._array, self._bounds, self._traffic = kind, rank, array, bounds, traffic
        self._works: dict[int, dist.Work] = {}
        self._sequence = 0

    def post(self) -> None:
        """Receive the next array; the one before must have been used."""
        assert not self._works
        for chunk, (start, stop) in enumerate(self._bounds):
            work = dist.irecv(self._array[start:stop], self._rank, tag=_tag(self._kind, self._sequence, chunk))
            assert work is not None
            self._works[chunk] = work
        self._sequence += 1

    def tile(self, rows: slice, out: Tensor) -> Tensor:
        """These rows; waits for the chunk that holds them."""
        for chunk in list(self._works):
            start, stop = self._bounds[chunk]
            if start < rows.stop and rows.start < stop:
                self._wait(chunk)
        part = self._array[rows]
        return part if part.dtype == out.dtype else out.copy_(part)

    def finish(self) -> None:
        """Wait for all chunks."""
        for chunk in list(self._works):
            self._wait(chunk)

    def _wait(self, chunk: int) -> None:
        with self._traffic.waiting(), _in_touch(f"waiting for {self._kind} from rank {self._rank}"):
            self._works.pop(chunk).wait()


class ChunkOutbox:
    """An array that is sent chunk by chunk to one rank."""

    def __init__(self, kind: str, rank: int, array: Tensor, bounds: Bounds, traffic: Traffic) -> None:
        self.array = array
        self._kind, self._rank, self._bounds, self._traffic = kind, rank, bounds, traffic
        self._works: dict[int, dist.Work] = {}
        self._sent = [0] * len(bounds)

    def send(self, chunk: int) -> None:
        """Hand a chunk to the network."""
        self.free(chunk)
        start, stop = self._bounds[chunk]
        part = self.array[start:stop]
        with self._traffic.sending(part), _in_touch(f"sending {self._kind} to rank {self._rank}"):
            work = dist.isend(part, self._rank, tag=_tag(self._kind, self._sent[chunk], chunk))
        assert work is not None
        self._works[chunk] = work
        self._sent[chunk] += 1

    def free(self, chunk: int) -> None:
        """Wait until a chunk has left."""
        if chunk in self._works:
            with self._traffic.waiting(), _in_touch(f"sending {self._kind} to rank {self._rank}"):
                self._works.pop(chunk).wait()

    def finish(self) -> None:
        """Wait until all chunks have left."""
        for chunk in list(self._works):
            self.free(chunk)


def _tag(kind: str, sequence: int, chunk: int) -> int:
    return ((sequence % _SEQUENCES) * _MAX_CHUNKS + chunk) * len(_KINDS) + _KINDS[kind]


class DistributedWorld:
    """This process among the others of its run; made once the environment of our launcher or of torchrun is there.

    Processes that our launcher started meet through a file; under torchrun they meet at its store on the network.
    """

    def __init__(self, num_stages: int, num_shards: int, timeout: float) -> None:
        size, expected = int(os.environ["WORLD_SIZE"]), num_stages * num_shards
        if size != expected:
            raise UserError(
                f"workers times shards must be the number of processes, {size}; got {num_stages} x {num_shards}"
            )
        limit = timedelta(seconds=timeout)
        with _in_touch("meeting the other processes"):
            if meeting := meeting_file():
                dist.init_process_group("gloo", f"file://{meeting}", limit, size, int(os.environ["RANK"]))
            else:
                dist.init_process_group("gloo", timeout=limit)
        self.rank = dist.get_rank()
        self.stage, self.shard = divmod(self.rank, num_shards)
        self.num_stages, self.num_shards = num_stages, num_shards
        self.local_processes = int(os.environ.get("LOCAL_WORLD_SIZE", size))
        self.is_one_host = self.local_processes == size
        self.traffic = Traffic()
        # Every process must make every group, in the same order; a group does not inherit the timeout.
        ranks = [[s * num_shards + d for s in range(num_stages)] for d in range(num_shards)]
        by_shard = [dist.new_group(column, timeout=limit) for column in ranks]
        by_stage = [dist.new_group(list(row), timeout=limit) for row in zip(*ranks, strict=True)]
        self._stages, self._shards = by_shard[self.shard], by_stage[self.stage]

    def agree(self, notes: Mapping[str, object]) -> None:
        """Refuse, on every process alike, to go on with processes that run something else."""
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
        with self.traffic.waiting(), _in_touch("comparing notes with the other processes"):
            dist.all_gather(sizes, torch.tensor([len(content)]))
            longest = max(int(size) for size in sizes)
            parts = [torch.empty(max(1, longest), dtype=torch.uint8) for _ in sizes]
            mine = torch.frombuffer(content.ljust(max(1, longest), b"\0"), dtype=torch.uint8)
            dist.all_gather(parts, mine)
        return [bytes(part[: int(size)].tolist()).decode() for part, size in zip(parts, sizes, strict=True)]

    def sum_over_shards(self, total: Tensor) -> Tensor:
        """Gather and add in the order of the tree."""
        if self.num_shards == 1:
            return total
        parts = [torch.empty_like(total) for _ in range(self.num_shards)]
        with self.traffic.waiting(), _in_touch("adding up over the shards"):
            dist.all_gather(parts, total.contiguous(), group=self._shards)
        self.traffic.bytes_sent += (self.num_shards - 1) * total.numel() * total.element_size()
        while len(parts) > 1:
            pairs = [parts[i].add_(parts[i + 1]) for i in range(0, len(parts) - 1, 2)]
            parts = pairs + parts[len(parts) - len(parts) % 2 :]
        return parts[0]

    def sum_over_stages(self, values: Tensor) -> Tensor:
        """Each entry comes from one stage, the others add zero: exact in any order."""
        with self.traffic.waiting(), _in_touch("sharing the reports of an iteration"):
            dist.all_reduce(values, group=self._stages)
        return values

    def broadcast(self, tensor: Tensor, stage: int) -> Tensor:
        """From a stage to the others of this shard."""
        tensor = tensor.contiguous()
        with self.traffic.waiting(), _in_touch("sharing weights"):
            dist.broadcast(tensor, src=self._rank_of(stage), group=self._stages)
        return tensor

    def send(self, tensor: Tensor, stage: int) -> None:
        """To another stage of this shard."""
        with self.traffic.sending(tensor), _in_touch(f"sending to rank {self._rank_of(stage)}"):
            dist.send(tensor.contiguous(), self._rank_of(stage), tag=_tag("p", 0, _MAX_CHUNKS - 1))

    def receive(self, tensor: Tensor, stage: int) -> None:
        """From another stage of this shard."""
        with self.traffic.waiting(), _in_touch(f"waiting for rank {self._rank_of(stage)}"):
            dist.recv(tensor, self._rank_of(stage), tag=_tag("p", 0, _MAX_CHUNKS - 1))

    def inbox(self, kind: str, stage: int, array: Tensor, bounds: Bounds) -> ChunkInbox:
        """Where p or m arrives."""
        return ChunkInbox(kind, self._rank_of(stage), array, bounds, self.traffic)

    def outbox(self, kind: str, stage: int, array: Tensor, bounds: Bounds) -> ChunkOutbox:
        """From where p or m goes."""
        return ChunkOutbox(kind, self._rank_of(stage), array, bounds, self.traffic)

    def close(self) -> None:
        """Leave together: a process that tears down its connections while another still uses them would abort it."""
        with _in_touch("leaving"):
            dist.barrier()
        dist.destroy_process_group()

    def _rank_of(self, stage: int) -> int:
        return stage * self.num_shards + self.shard
