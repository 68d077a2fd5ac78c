"""The schedule of an iteration, as data: which steps each stage takes, in which order, and what crosses the wire.

A stage is the layers of one worker. A step is one phase of one layer; it may need a message from a neighbour and send
one. p_l travels to the left, m_l to the right; nothing else does. For seven layers on three stages:

    stage 1 (layers 1 2 3)    p3 W3 z3[needs p4, sends m3]  p2 W2 z2  p1 W1 z1
    stage 2 (layers 4 5)      p4[needs m3, sends p4]  p5 W5 z5[needs p6, sends m5]  W4 z4
    stage 3 (layers 6 7)      p6[needs m5, sends p6]  p7 W7 z7  W6 z6

The first layer's p goes first, because the left neighbour waits for it; the last layer's z follows soon, because the
right neighbour's next iteration waits for its m. In between there is work that needs neither. A message travels in
chunks, each as soon as it is ready, so a step begins with the first chunk of what it needs.

`pdadmm.simulate.timeline` plays the schedules of all stages against each other: it finds deadlocks and counts idle time
without starting a process.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Action = Literal["p", "W", "z"]


@dataclass(frozen=True)
class Message:
    """An array that crosses a boundary: p of a layer (to the left) or m of a layer (to the right)."""

    kind: Literal["p", "m"]
    layer: int


@dataclass(frozen=True)
class Step:
    """One phase of one layer (counted from 0), what it needs and what it sends."""

    action: Action
    layer: int
    needs: Message | None = None
    sends: Message | None = None

    def __str__(self) -> str:
        notes = [f"{verb} {m.kind}{m.layer + 1}" for verb, m in (("needs", self.needs), ("sends", self.sends)) if m]
        return f"{self.action}{self.layer + 1}" + (f"[{', '.join(notes)}]" if notes else "")


Schedule = list[Step]


def make_schedules(stages: Sequence[Sequence[int]]) -> list[Schedule]:
    """The schedule of each stage, for layers in order over the stages; an empty stage has nothing to do."""
    order = [layer for stage in stages for layer in stage]
    return [_stage_schedule(stage, order) for stage in stages]


def _stage_schedule(stage: Sequence[int], order: Sequence[int]) -> Schedule:
    if not stage:
        return []
    first, last = stage[0], stage[-1]
    before = order[order.index(first) - 1] if first != order[0] else None
    after = order[order.index(last) + 1] if last != order[-1] else None

    def step(action: Action, layer: int) -> Step:
        if action == "p" and layer == first and before is not None:
            return Step(action, layer, Message("m", before), Message("p", layer))
        if action == "z" and layer == last and after is not None:
            return Step(action, layer, Message("p", after), Message("m", layer))
        return Step(action, layer)

    if before is None or len(stage) == 1:
        return [step(action, layer) for layer in reversed(stage) for action in ("p", "W", "z")]
    inner = [step(action, layer) for layer in reversed(stage[1:]) for action in ("p", "W", "z")]
    return [step("p", first), *inner, step("W", first), step("z", first)]
