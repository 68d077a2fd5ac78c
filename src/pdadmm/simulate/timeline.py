"""The schedules of all stages played in time: when each step is taken, when each message travels, who waits for whom.

What must come before what is a graph without cycles, and everything begins as soon as all before it has ended: the
time of an iteration is the longest path through it. A cycle is a deadlock.

- A step computes what comes before its first chunk, then chunk after chunk; a chunk that needs a neighbour's array
  waits for the same chunk of it, and a chunk that is done leaves at once.
- A worker sends one chunk at a time, in the order in which they are made, and receives while it sends. m leaves only
  when its receiver has finished the p-phase that reads the m before.
- Sums over the shards of a stage go round in a ring, through the same network card.
- An iteration ends when all stages have shared their reports, which stand in line behind what is still leaving.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter
from typing import Any

from pdadmm.engine.schedule import Message, Schedule, Step

ITERATIONS = 3
"""So many are played; the last one is steady: only the first one's m has been there from the start."""
TRACKS = ("computes", "sends")


@dataclass(frozen=True)
class Link:
    """What joins the workers: each has one way out and one in. The processor's part is as gloo takes it."""

    bytes_per_second: float = math.inf
    latency: float = 0.0
    """Seconds of a message beside its bytes."""
    byte_cpu: float = 0.0
    """Seconds of the worker's processor for a byte, where it leaves and where it arrives."""
    chunk_cpu: float = 0.0
    """The same for a chunk, however small."""
    queue_bytes: float = 4 * 2**20
    """Bytes that the system takes before they leave; reports stand in line behind them. Linux: tcp_wmem's largest."""

    def cpu(self, size: float) -> float:
        """Seconds of the processor for a chunk of so many bytes."""
        return size * self.byte_cpu + self.chunk_cpu


@dataclass(frozen=True)
class StepTime:
    """The seconds of a step, and the sums over the shards that belong to it."""

    before: float = 0.0
    """Before the first chunk."""
    chunks: tuple[float, ...] = ()
    reads: tuple[float, ...] = ()
    """A walk over all chunks before, where what is needed must have come whole before anything can be sent."""
    sums: int = 0
    sum_bytes: float = 0.0
    """Of one shard; before a W-step, after any other."""


@dataclass(frozen=True)
class Span:
    """What a stage computed, or what left it, from `start` to `end`."""

    stage: int
    track: str
    """One of `TRACKS`."""
    name: str
    start: float
    end: float
    size: float
    """Bytes, where something left."""


@dataclass(frozen=True)
class Timeline:
    """What the stages did in the steady iteration, counted from its beginning."""

    seconds: float
    spans: list[Span]

    def busy(self, stage: int) -> float:
        """Seconds that a stage computed."""
        return math.fsum(span.end - span.start for span in self.spans if (span.stage, span.track) == (stage, TRACKS[0]))

    def bytes_sent(self, stage: int) -> float:
        """Bytes that leave a stage."""
        return math.fsum(span.size for span in self.spans if span.stage == stage)

    def trace(self) -> dict[str, Any]:
        """Chrome's trace format, which chrome://tracing and Perfetto show: a process a worker, microseconds."""
        events: list[dict[str, Any]] = []
        for stage in sorted({span.stage for span in self.spans}):
            named = {"ph": "M", "pid": stage + 1}
            events.append({**named, "name": "process_name", "args": {"name": f"worker {stage + 1}"}})
            for track, name in enumerate(TRACKS):
                events.append({**named, "name": "thread_name", "tid": track, "args": {"name": name}})
        for span in self.spans:
            start, end = round(1e6 * span.start, 3), round(1e6 * span.end, 3)
            found = {"name": span.name, "ph": "X", "ts": start, "dur": round(end - start, 3)}
            where = {"pid": span.stage + 1, "tid": TRACKS.index(span.track)}
            events.append({**found, **where, "args": {"bytes": span.size}})
        return {"traceEvents": events, "displayTimeUnit": "ms"}


def play(
    schedules: Sequence[Schedule],
    step_time: Callable[[Step], StepTime],
    chunk_bytes: Callable[[Message], Sequence[float]],
    link: Link,
    shards: int = 1,
    iterations: int = ITERATIONS,
) -> Timeline:
    """Play so many iterations of all stages, of which the last is told; a deadlock raises graphlib's CycleError."""
    graph = _Graph(len(schedules), chunk_bytes, link, shards)
    for _ in range(iterations):
        for stage, schedule in enumerate(schedules):
            for step in schedule:
                graph.add_step(stage, step, step_time(step))
        graph.end_iteration()
    starts: dict[Node, float] = {}
    ends: dict[Node, float] = {}
    for node in TopologicalSorter(graph.before).static_order():
        before = (ends[other] for other in graph.before[node] if other[0] != "is out")
        starts[node] = max(before, default=0.0)
        ends[node] = starts[node] + graph.seconds[node]
        if node[0] == "end":  # the reports go round a ring twice, behind what the system has taken of the messages
            for _ in range(2 * (len(schedules) - 1)):
                in_line = max(0.0, ends["is out", node[1]] - ends[node])
                ends[node] += min(in_line, link.queue_bytes / link.bytes_per_second) + link.latency
    begin, last = (ends["end", iterations - 2] if iterations > 1 else 0.0), iterations - 1
    spans = []
    for node, (stage, track, name, size) in graph.told.items():
        if ends[node] > begin:  # what was still leaving when the iteration began is of the one before
            start = max(0.0, starts[node] - begin)
            spans.append(Span(stage, track, name, start, ends[node] - begin, size if node[1] == last else 0.0))
    return Timeline(ends["end", last] - begin, sorted(spans, key=lambda span: (span.stage, span.start)))


Node = tuple[Any, ...]
"""What happens, in which iteration, of which step or message, and which chunk."""


class _Graph:
    """What happens, with its seconds and what comes before it."""

    def __init__(self, stages: int, chunk_bytes: Callable[[Message], Sequence[float]], link: Link, shards: int) -> None:
        self.before: dict[Node, list[Node]] = {}
        self.seconds: dict[Node, float] = {}
        self.told: dict[Node, tuple[int, str, str, float]] = {}  # stage, track, name and bytes
        self._chunk_bytes, self._link, self._shards, self._iteration = chunk_bytes, link, shards, 0
        self._last: list[list[Node]] = [[] for _ in range(stages)]  # what a stage did last
        self._out: list[list[Node]] = [[] for _ in range(stages)]  # what was last on its way out

    def _add(self, node: Node, before: Sequence[Node], seconds: float) -> Node:
        self.before[node], self.seconds[node] = list(before), seconds
        return node

    def end_iteration(self) -> None:
        """No stage goes on before all are done."""
        out = self._add(("is out", self._iteration), [node for out in self._out for node in out], 0.0)
        end = self._add(("end", self._iteration), [*(node for last in self._last for node in last), out], 0.0)
        self._last = [[end] for _ in self._last]
        self._iteration += 1

    def add_step(self, stage: int, step: Step, time: StepTime) -> None:
        """A step of a stage, after all that were added before it."""
        if step.action == "W":
            self._sum_over_shards(stage, step, time)
        self._work(stage, "before", step, 0, time.before)
        walks = [walk for walk in (time.reads, time.chunks) if walk]
        if walks and step.needs is None and step.sends is None:
            walks = [(math.fsum(map(math.fsum, walks)),)]
        for number, walk in enumerate(walks, start=1):
            for chunk, seconds in enumerate(walk):
                self._work(stage, f"walk {number}", step, chunk, seconds, step.needs if number == 1 else None)
                if step.sends and number == len(walks):
                    self._send(stage, step, step.sends, chunk)
        if step.needs:
            self._add(("has read", self._iteration, step.needs), self._last[stage], 0.0)
        if step.action != "W":
            self._sum_over_shards(stage, step, time)

    def _work(
        self, stage: int, what: str, step: Step, chunk: int, seconds: float, needs: Message | None = None
    ) -> None:
        """The stage computes, after all it did so far, and takes in the chunk of a message."""
        before = list(self._last[stage])
        if needs is not None:
            seconds += self._link.cpu(self._chunk_bytes(needs)[chunk])
            if needs.kind == "p" or self._iteration:  # the first iteration's m is there from the start
                before.append(("arrives", self._iteration, needs, chunk))
        node = self._add((what, self._iteration, step, chunk), before, seconds)
        self._last[stage] = [node]
        if seconds:
            self.told[node] = (stage, TRACKS[0], f"{step.action}{step.layer + 1}", 0.0)

    def _send(self, stage: int, step: Step, message: Message, chunk: int) -> None:
        link, size = self._link, self._chunk_bytes(message)[chunk]
        is_m = message.kind == "m"  # for the next iteration, while p is for this one
        ready = [("has read", self._iteration, message)] if is_m else []
        name = f"{message.kind}{message.layer + 1}"
        leaves = self._leave(stage, name, message, chunk, size, size / link.bytes_per_second, ready)
        self._add(("arrives", self._iteration + is_m, message, chunk), [leaves], link.latency)
        self._work(stage, "hands over", step, chunk, link.cpu(size))

    def _leave(
        self, stage: int, name: str, what: object, chunk: int, size: float, seconds: float, ready: Sequence[Node] = ()
    ) -> Node:
        """Something is made, and leaves a stage after all that is leaving."""
        before = [*self._last[stage], *self._out[stage], *ready]
        node = self._add(("leaves", self._iteration, what, chunk), before, seconds)
        self.told[node], self._out[stage] = (stage, TRACKS[1], name, size), [node]
        return node

    def _sum_over_shards(self, stage: int, step: Step, time: StepTime) -> None:
        """A ring: each shard passes on what it got, until everyone has all."""
        others, link = self._shards - 1, self._link
        if others and time.sums:
            size = others * time.sum_bytes
            seconds = size / link.bytes_per_second + time.sums * others * link.latency + 2 * size * link.byte_cpu
            name = f"sums of {step.action}{step.layer + 1}"
            self._last[stage] = [self._leave(stage, name, step, 0, size, seconds)]
