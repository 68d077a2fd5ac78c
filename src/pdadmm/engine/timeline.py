"""Schedules played in time: every step of every stage, chunk by chunk, and the messages between them.

A discrete-event simulation. A stage is a process that computes, waits for chunks and sends chunks as the engine does:

- a step computes what comes before its first chunk, then chunk after chunk, then what comes after the last one;
- a chunk that needs a neighbour's array waits for the same chunk of it, and a chunk that is done leaves at once;
- a message leaves when its receiver is ready for it, after all that its sender handed to the network before: a worker
  sends one chunk at a time, and receives while it sends;
- sums over the shards of a stage go round in a ring, through the same network card;
- an iteration ends when all stages have shared their reports, which stand in line behind what is still leaving.

What the network costs the processors is a debt of the worker, paid while it waits or by its next computation.

The same play finds deadlocks, counts idle time, and is what `pdadmm plan` and `pdadmm simulate` print.
"""

from __future__ import annotations

import functools
import heapq
import itertools
import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from pdadmm.engine.schedule import Message, Schedule, Step

ITERATIONS = 4
"""So many are played; the last one is steady: only the first one's m has been there from the start."""


@dataclass(frozen=True)
class StepTime:
    """The seconds of a step, and the sums over shards that it ends with (a W-step begins with its own)."""

    before: float = 0.0
    """Before the first chunk."""
    chunks: tuple[float, ...] = ()
    after: float = 0.0
    reads: tuple[float, ...] = ()
    """A walk over all chunks before, where what is needed must have come whole before anything can be sent."""
    gathers: int = 0
    """Sums over the shards."""
    gathered_bytes: float = 0.0
    """Their bytes, of one shard."""

    @property
    def seconds(self) -> float:
        """All the computing."""
        return self.before + math.fsum(self.reads) + math.fsum(self.chunks) + self.after


@dataclass(frozen=True)
class Link:
    """What joins the workers: each has one such way out and one in."""

    bytes_per_second: float = math.inf
    latency: float = 0.0
    """Seconds of a message beside its bytes."""
    send_cpu: float = 0.0
    """Seconds of the sending worker's processor for a byte."""
    receive_cpu: float = 0.0
    """The same where it arrives."""
    send_overhead: float = 0.0
    """Seconds of the sender's processor for a chunk, however small."""
    receive_overhead: float = 0.0
    """The same where it arrives."""
    queue_bytes: float = 4 * 2**20
    """Bytes that the system takes before they leave; reports stand in line behind them. Linux: tcp_wmem's largest."""

    def seconds(self, size: float) -> float:
        """How long so many bytes are under way."""
        return size / self.bytes_per_second

    def with_workers(self, faster: float) -> Link:
        """The same between workers so many times as fast, by more threads or faster ones: messages delay them less."""
        return replace(
            self,
            send_cpu=self.send_cpu / faster,
            receive_cpu=self.receive_cpu / faster,
            send_overhead=self.send_overhead / faster,
            receive_overhead=self.receive_overhead / faster,
        )


@dataclass(frozen=True)
class Costs:
    """What steps and messages cost."""

    step: Callable[[Step], StepTime]
    chunk_bytes: Callable[[Message], Sequence[float]]
    """Bytes of each chunk of a message."""
    link: Link = field(default_factory=Link)
    shards: int = 1


Kind = Literal["compute", "wait", "gather", "share"]


@dataclass(frozen=True)
class Entry:
    """What a stage did from `start` to `end`: computed or waited within a step, or shared the reports (no step)."""

    stage: int
    kind: Kind
    step: Step | None
    start: float
    end: float


@dataclass(frozen=True)
class Transfer:
    """A chunk on its way out of a stage; of sums over shards, `message` is None."""

    stage: int
    message: Message | None
    chunk: int
    size: float
    start: float
    end: float


class DeadlockError(Exception):
    """The schedules wait for each other for ever."""


@dataclass
class Timeline:
    """What all stages did, and the sums of the last iteration, which is the steady one."""

    num_stages: int
    entries: list[Entry] = field(default_factory=list)
    transfers: list[Transfer] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)
    """When each iteration ended."""

    @property
    def begins(self) -> float:
        """When the steady iteration begins."""
        return self.ends[-2] if len(self.ends) > 1 else 0.0

    @property
    def seconds(self) -> float:
        """How long a steady iteration takes."""
        return self.ends[-1] - self.begins

    def steady(self) -> list[Entry]:
        """The entries of the steady iteration."""
        return [entry for entry in self.entries if entry.start >= self.begins]

    def sum(self, stage: int, *kinds: Kind) -> float:
        """Seconds that a stage spent so in the steady iteration."""
        return math.fsum(self._spent.get((stage, kind), 0.0) for kind in kinds)

    @functools.cached_property
    def _spent(self) -> dict[tuple[int, Kind], float]:
        """Seconds of the steady iteration by stage and kind, once all is played."""
        spent: dict[tuple[int, Kind], float] = {}
        for entry in self.steady():
            key = entry.stage, entry.kind
            spent[key] = spent.get(key, 0.0) + entry.end - entry.start
        return spent

    def busy(self, stage: int) -> float:
        """Seconds that a stage computed."""
        return self.sum(stage, "compute")

    def idle_share(self, stage: int) -> float:
        """The share of the time that a stage waits."""
        return self.sum(stage, "wait", "gather", "share") / self.seconds if self.seconds else 0.0

    def sent(self, stage: int) -> float:
        """Bytes that a stage sends in the steady iteration."""
        return math.fsum(part.size for part in self.transfers if part.stage == stage and part.start >= self.begins)

    def link_share(self, stage: int) -> float:
        """The share of the time that a stage's way out is in use."""
        used = math.fsum(
            part.end - max(part.start, self.begins)
            for part in self.transfers
            if part.stage == stage and part.end > self.begins
        )
        return used / self.seconds if self.seconds else 0.0

    @property
    def bottleneck(self) -> int:
        """The stage that computes longest."""
        return max(range(self.num_stages), key=self.busy)


Chunk = tuple[Message, int, int]
"""A chunk of a message of an iteration."""

Process = Generator[float | Chunk | None, None, None]
"""A stage at work: yields seconds to sleep, a chunk to wait for, or None to meet all others."""


def play(schedules: Sequence[Schedule], costs: Costs, iterations: int = ITERATIONS) -> Timeline:
    """Play so many iterations of all stages; raises DeadlockError where they would wait for ever."""
    return _Play(schedules, costs, iterations).run()


class _Play:
    def __init__(self, schedules: Sequence[Schedule], costs: Costs, iterations: int) -> None:
        self._schedules, self._costs, self._iterations = schedules, costs, iterations
        self._timeline = Timeline(len(schedules))
        self._now = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = itertools.count()
        self._at: list[Step | None] = [None] * len(schedules)
        self._arrived: set[Chunk] = set()
        self._waiting: dict[Chunk, int] = {}
        self._posted: set[tuple[Message, int]] = set()
        self._held: dict[tuple[Message, int], list[tuple[int, Chunk, float]]] = {}
        self._out_free = [0.0] * len(schedules)
        self._debt = [0.0] * len(schedules)
        self._receiver = {
            step.needs: stage for stage, schedule in enumerate(schedules) for step in schedule if step.needs
        }
        self._met = 0
        self._last: dict[int, int] = {}
        self._known_sizes: dict[Message, Sequence[float]] = {}
        self._processes = [self._stage(stage) for stage in range(len(schedules))]

    def run(self) -> Timeline:
        for schedule in self._schedules:
            for step in schedule:
                if step.sends and step.sends.kind == "m":  # the first iteration's m is there from the start
                    self._arrived.update((step.sends, 0, c) for c in range(len(self._sizes(step.sends))))
        for stage in range(len(self._processes)):
            self._resume(stage)
        while self._events:
            self._now, _, event = heapq.heappop(self._events)
            event()
        if len(self._timeline.ends) < self._iterations:
            waiting = [f"stage {stage + 1} at {step}" for stage, step in enumerate(self._at) if step is not None]
            raise DeadlockError(f"no stage can go on: {'; '.join(waiting)}")
        return self._timeline

    # --- what a stage does

    def _stage(self, stage: int) -> Process:
        for iteration in range(self._iterations):
            for step in self._schedules[stage]:
                if step.needs and step.needs.kind == "p":
                    self._post(step.needs, iteration)
            for step in self._schedules[stage]:
                self._at[stage] = step
                yield from self._step(stage, step, iteration)
            self._at[stage] = None
            began = self._now
            yield None
            self._add(stage, "share", None, began)

    def _step(self, stage: int, step: Step, iteration: int) -> Process:
        cost = self._costs.step(step)
        if step.action == "W":
            yield from self._gather(stage, step, cost)
        yield from self._compute(stage, step, cost.before)
        for chunk, seconds in enumerate(cost.reads):
            yield from self._need(stage, step, iteration, chunk)
            yield from self._compute(stage, step, seconds)
        for chunk, seconds in enumerate(cost.chunks):
            if not cost.reads:
                yield from self._need(stage, step, iteration, chunk)
            yield from self._compute(stage, step, seconds)
            if step.sends:
                # m is for the next iteration, p for this one
                self._send(stage, (step.sends, iteration + (step.sends.kind == "m"), chunk))
        yield from self._compute(stage, step, cost.after)
        if step.needs and step.needs.kind == "m":
            self._post(step.needs, iteration + 1)
        if step.action != "W":
            yield from self._gather(stage, step, cost)

    def _compute(self, stage: int, step: Step, seconds: float) -> Process:
        if seconds:
            began, debt = self._now, self._debt[stage]
            self._debt[stage] = 0.0
            yield seconds + debt
            self._add(stage, "compute", step, began)

    def _need(self, stage: int, step: Step, iteration: int, chunk: int) -> Process:
        """Wait for a chunk; what the network is still owed is paid meanwhile."""
        if step.needs is None:
            return
        key, began = (step.needs, iteration, chunk), self._now
        if key not in self._arrived:
            self._waiting[key] = stage
            yield key
            self._debt[stage] = max(0.0, self._debt[stage] - (self._now - began))
            self._add(stage, "wait", step, began)
        self._arrived.discard(key)

    def _gather(self, stage: int, step: Step, cost: StepTime) -> Process:
        """A ring: each shard passes on what it got, until everyone has all."""
        others, link = self._costs.shards - 1, self._costs.link
        if not others or not cost.gathers:
            return
        began, size = self._now, others * cost.gathered_bytes
        start = max(began, self._out_free[stage])
        end = start + link.seconds(size)
        self._out_free[stage] = end
        self._timeline.transfers.append(Transfer(stage, None, 0, size, start, end))
        yield end - began + cost.gathers * others * link.latency + size * (link.send_cpu + link.receive_cpu)
        self._add(stage, "gather", step, began)

    # --- the network

    def _sizes(self, message: Message) -> Sequence[float]:
        if message not in self._known_sizes:
            self._known_sizes[message] = self._costs.chunk_bytes(message)
        return self._known_sizes[message]

    def _post(self, message: Message, iteration: int) -> None:
        """The receiver is ready: what was held back may leave."""
        self._posted.add((message, iteration))
        for stage, chunk, size in self._held.pop((message, iteration), []):
            self._leave(stage, chunk, size)

    def _send(self, stage: int, chunk: Chunk) -> None:
        message, iteration, number = chunk
        size = self._sizes(message)[number]
        if (message, iteration) in self._posted:
            self._leave(stage, chunk, size)
        else:
            self._held.setdefault((message, iteration), []).append((stage, chunk, size))

    def _leave(self, stage: int, chunk: Chunk, size: float) -> None:
        link, (message, _, number) = self._costs.link, chunk
        start = max(self._now, self._out_free[stage])
        end = start + link.seconds(size)
        self._out_free[stage] = end
        self._debt[stage] += size * link.send_cpu + link.send_overhead
        self._timeline.transfers.append(Transfer(stage, message, number, size, start, end))
        self._later(end + link.latency - self._now, lambda: self._arrive(chunk, size))

    def _arrive(self, chunk: Chunk, size: float) -> None:
        link = self._costs.link
        self._debt[self._receiver[chunk[0]]] += size * link.receive_cpu + link.receive_overhead
        self._arrived.add(chunk)
        if chunk in self._waiting:
            self._resume(self._waiting.pop(chunk))

    # --- the loop

    def _resume(self, stage: int) -> None:
        """Let a stage go on until it sleeps, waits or has come to the end of an iteration."""
        for wish in self._processes[stage]:
            if wish is None:
                self._meet()
            elif not isinstance(wish, tuple):
                self._later(wish, lambda: self._resume(stage))
            return

    def _meet(self) -> None:
        """The last one to come lets all go on, once the reports have gone round a ring twice."""
        self._met += 1
        if self._met < len(self._processes):
            return
        self._met = 0
        link, at = self._costs.link, self._now
        for _ in range(2 * (len(self._processes) - 1)):
            # Reports are small, but stand in line behind what the system has taken of the messages.
            waiting = min(max(0.0, max(self._out_free) - at), link.seconds(link.queue_bytes))
            at += waiting + link.latency
        self._later(at - self._now, self._go_on)

    def _go_on(self) -> None:
        self._timeline.ends.append(self._now)
        for stage in range(len(self._processes)):
            self._resume(stage)

    def _later(self, seconds: float, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self._now + seconds, next(self._count), event))

    def _add(self, stage: int, kind: Kind, step: Step | None, began: float) -> None:
        """Note what was done since `began`; what goes on without a break is one entry."""
        entries = self._timeline.entries
        last = self._last.get(stage)
        if last is not None and (entries[last].kind, entries[last].step, entries[last].end) == (kind, step, began):
            entries[last] = Entry(stage, kind, step, entries[last].start, self._now)
        elif self._now > began or kind == "share":
            self._last[stage] = len(entries)
            entries.append(Entry(stage, kind, step, began, self._now))
