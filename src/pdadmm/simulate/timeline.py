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
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from typing import Any

from pdadmm.engine.schedule import Message, Schedule, Step

ITERATIONS = 3
"""So many are played; the last one is steady: only the first one's m has been there from the start."""


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
    after: float = 0.0
    sums: int = 0
    sum_bytes: float = 0.0
    """Of one shard; before a W-step, after any other."""


@dataclass(frozen=True)
class Costs:
    """What steps and messages cost."""

    step: Callable[[Step], StepTime]
    chunk_bytes: Callable[[Message], Sequence[float]]
    link: Link = field(default_factory=Link)
    shards: int = 1


@dataclass(frozen=True)
class Span:
    """What a stage computed, or what left it, from `start` to `end`."""

    stage: int
    name: str
    start: float
    end: float
    size: float = 0.0
    """Bytes, where something left."""


class DeadlockError(Exception):
    """The schedules wait for each other for ever."""


@dataclass(frozen=True)
class Timeline:
    """What the stages did in the steady iteration, counted from its beginning."""

    seconds: float
    computed: list[Span]
    sent: list[Span]

    def busy(self, stage: int) -> float:
        """Seconds that a stage computed."""
        return math.fsum(span.end - span.start for span in self.computed if span.stage == stage)

    def idle_share(self, stage: int) -> float:
        """The share of the time that a stage waits."""
        return max(0.0, 1 - self.busy(stage) / self.seconds) if self.seconds else 0.0

    def bytes_sent(self, stage: int) -> float:
        """Bytes that leave a stage."""
        return math.fsum(span.size for span in self.sent if span.stage == stage)

    def trace(self) -> dict[str, Any]:
        """Chrome's trace format, which chrome://tracing and Perfetto show: a process a worker, microseconds."""
        events: list[dict[str, Any]] = []
        for stage in sorted({span.stage for span in self.computed}):
            named = {"ph": "M", "pid": stage + 1, "ts": 0, "dur": 0}
            events.append({**named, "name": "process_name", "tid": 0, "args": {"name": f"worker {stage + 1}"}})
            for track, name in enumerate(("computes", "sends")):
                events.append({**named, "name": "thread_name", "tid": track, "args": {"name": name}})
        for track, spans in enumerate((self.computed, self.sent)):
            for span in sorted(spans, key=lambda span: (span.stage, span.start)):
                start, end = round(1e6 * span.start, 3), round(1e6 * span.end, 3)
                found = {"name": span.name, "ph": "X", "ts": start, "dur": round(end - start, 3)}
                events.append({**found, "pid": span.stage + 1, "tid": track, "args": {"bytes": span.size}})
        return {"traceEvents": events, "displayTimeUnit": "ms"}


Node = tuple[Any, ...]


def play(schedules: Sequence[Schedule], costs: Costs, iterations: int = ITERATIONS) -> Timeline:
    """Play so many iterations of all stages, of which the last is told; raises DeadlockError for a deadlock."""
    graph = _Graph(schedules, costs)
    for iteration in range(iterations):
        graph.add_iteration(iteration)
    return graph.timeline(iterations)


class _Graph:
    """Nodes with their seconds, and what comes before each of them."""

    def __init__(self, schedules: Sequence[Schedule], costs: Costs) -> None:
        self._schedules, self._costs = schedules, costs
        self._before: dict[Node, list[Node]] = {}
        self._seconds: dict[Node, float] = {}
        self._spans: dict[Node, tuple[str, int, str, float]] = {}  # "computes" or "sends", stage, name, bytes
        self._last: list[list[Node]] = [[] for _ in schedules]  # what a stage did last
        self._out: list[list[Node]] = [[] for _ in schedules]  # what was last on its way out
        self._steps = {step: costs.step(step) for schedule in schedules for step in schedule}
        for schedule in schedules:
            for step in schedule:
                if step.sends and step.sends.kind == "m":  # the first iteration's m is there from the start
                    for chunk in range(len(costs.chunk_bytes(step.sends))):
                        self._node(("arrives", step.sends, 0, chunk), [], 0.0)

    def _node(self, node: Node, before: Sequence[Node], seconds: float) -> Node:
        self._before[node], self._seconds[node] = list(before), seconds
        return node

    def add_iteration(self, iteration: int) -> None:
        """All steps of all stages, and the reports at the end."""
        for stage, schedule in enumerate(self._schedules):
            for step in schedule:
                self._add_step(stage, step, iteration)
        lasts = [node for last in self._last for node in last]
        self._before[("outs", iteration)] = [node for out in self._out for node in out]
        end = self._node(("end", iteration), [*lasts, ("outs", iteration)], 0.0)
        self._last = [[end] for _ in self._schedules]

    def _work(self, stage: int, node: Node, seconds: float, waits_for: Sequence[Node] = ()) -> None:
        """The stage computes, after all it did so far."""
        self._last[stage] = [self._node(node, [*self._last[stage], *waits_for], seconds)]
        if seconds:
            self._spans[node] = ("computes", stage, f"{node[1].action}{node[1].layer + 1}", 0.0)

    def _add_step(self, stage: int, step: Step, iteration: int) -> None:
        time = self._steps[step]
        if step.action == "W":
            self._sum_over_shards(stage, step, iteration)
        if step.needs is None and step.sends is None:
            inside = time.before + math.fsum(time.reads) + math.fsum(time.chunks)
            time = StepTime(inside, after=time.after)
        self._work(stage, ("before", step, iteration), time.before)
        for chunk, seconds in enumerate(time.reads):
            self._work(stage, ("read", step, iteration, chunk), *self._received(step, iteration, chunk, seconds))
        for chunk, seconds in enumerate(time.chunks):
            took = (seconds, []) if time.reads else self._received(step, iteration, chunk, seconds)
            self._work(stage, ("chunk", step, iteration, chunk), *took)
            if step.sends:
                self._send(stage, step, iteration, chunk)
        if step.needs:
            self._node(("has read", step.needs, iteration), self._last[stage], 0.0)
        self._work(stage, ("after", step, iteration), time.after)
        if step.action != "W":
            self._sum_over_shards(stage, step, iteration)

    def _received(self, step: Step, iteration: int, chunk: int, seconds: float) -> tuple[float, list[Node]]:
        """The seconds of a chunk with those of taking in its message, and what it waits for."""
        if step.needs is None:
            return seconds, []
        size = self._costs.chunk_bytes(step.needs)[chunk]
        return seconds + self._costs.link.cpu(size), [("arrives", step.needs, iteration, chunk)]

    def _send(self, stage: int, step: Step, iteration: int, chunk: int) -> None:
        link, message = self._costs.link, step.sends
        assert message is not None
        size = self._costs.chunk_bytes(message)[chunk]
        is_m = message.kind == "m"  # for the next iteration, while p is for this one
        before = [*self._last[stage], *self._out[stage], *([("has read", message, iteration)] if is_m else [])]
        leaves = self._node(("leaves", message, iteration, chunk), before, size / link.bytes_per_second)
        self._spans[leaves] = ("sends", stage, f"{message.kind}{message.layer + 1}", size)
        self._out[stage] = [leaves]
        self._node(("arrives", message, iteration + is_m, chunk), [leaves], link.latency)
        self._work(stage, ("hands over", step, iteration, chunk), link.cpu(size))

    def _sum_over_shards(self, stage: int, step: Step, iteration: int) -> None:
        """A ring: each shard passes on what it got, until everyone has all."""
        others, link, time = self._costs.shards - 1, self._costs.link, self._steps[step]
        if not others or not time.sums:
            return
        size = others * time.sum_bytes
        seconds = size / link.bytes_per_second + time.sums * others * link.latency + 2 * size * link.byte_cpu
        before = [*self._last[stage], *self._out[stage]]
        node = self._node(("sums", step, iteration), before, seconds)
        self._spans[node] = ("sends", stage, f"sums of {step.action}{step.layer + 1}", size)
        self._last[stage], self._out[stage] = [node], [node]

    def timeline(self, iterations: int) -> Timeline:
        """When everything begins and ends."""
        starts: dict[Node, float] = {}
        ends: dict[Node, float] = {}
        try:
            for node in TopologicalSorter(self._before).static_order():
                before = [ends[other] for other in self._before[node] if other[0] != "outs"]
                starts[node] = max(before, default=0.0)
                ends[node] = starts[node] + self._seconds.get(node, 0.0)
                if node[0] == "end":
                    ends[node] += self._sharing(starts[node], ends["outs", node[1]])
        except CycleError as error:
            waiting = [str(node[1]) for node in error.args[1] if isinstance(node[1], Step)]
            raise DeadlockError(f"no stage can go on: {'; '.join(dict.fromkeys(waiting))}") from None
        begins = ends["end", iterations - 2] if iterations > 1 else 0.0
        told: dict[str, list[Span]] = {"computes": [], "sends": []}
        for node, (track, stage, name, size) in self._spans.items():
            if ends[node] > begins:  # what was still leaving when the iteration began is of the one before
                start = starts[node] - begins
                told[track].append(Span(stage, name, max(0.0, start), ends[node] - begins, size if start >= 0 else 0.0))
        return Timeline(ends["end", iterations - 1] - begins, told["computes"], told["sends"])

    def _sharing(self, at: float, out_free: float) -> float:
        """Seconds that the reports take to go round a ring twice, behind what the system has taken of the messages."""
        link, now = self._costs.link, at
        for _ in range(2 * (len(self._schedules) - 1)):
            now += min(max(0.0, out_free - now), link.queue_bytes / link.bytes_per_second) + link.latency
        return now - at
