"""Iterations played in time: by hand for small cases, and what must hold for all."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdadmm.engine.placement import from_counts
from pdadmm.engine.schedule import Message, Step, make_schedules
from pdadmm.simulate.timeline import Link, StepTime, Timeline, play

M = Message("m", 0)
TWO = make_schedules([[0], [1]])


def told(timeline: Timeline, stage: int) -> list[tuple[str, float, float]]:
    """What a stage computes, in short; what goes on without a break is one."""
    found: list[tuple[str, float, float]] = []
    for span in timeline.spans:
        if (span.stage, span.track) != (stage, "computes"):
            continue
        if found and found[-1][0] == span.name and found[-1][2] == span.start:
            found[-1] = (span.name, found[-1][1], span.end)
        else:
            found.append((span.name, span.start, span.end))
    return found


def left(timeline: Timeline, name: str) -> list[tuple[float, float]]:
    """When the chunks of a message leave."""
    return [(span.start, span.end) for span in timeline.spans if (span.track, span.name) == ("sends", name)]


def walk(*chunks: float, W: float = 1.0) -> Callable[[Step], StepTime]:
    """Every p- and z-phase takes these chunks, every W-phase one piece."""
    return lambda step: StepTime(before=W) if step.action == "W" else StepTime(chunks=chunks)


def test_two_workers_by_hand() -> None:
    """Chunks of 1 s, messages of 2 s a chunk and 0.5 s of latency; reports go round in 2 × 0.5 s."""
    link = Link(bytes_per_second=1, latency=0.5, queue_bytes=0)
    timeline = play(TWO, walk(1, 1), lambda message: (2, 2), link)
    assert timeline.seconds == 7.5
    # p's second chunk leaves when the first has left, and arrives 5.5 s after the beginning.
    assert told(timeline, 0) == [("p1", 0, 2), ("W1", 2, 3), ("z1", 3.5, 4.5), ("z1", 5.5, 6.5)]
    # m's second chunk left at the end of the iteration before and needs 2.5 s.
    assert told(timeline, 1) == [("p2", 0, 1), ("p2", 1.5, 2.5), ("W2", 2.5, 3.5), ("z2", 3.5, 5.5)]
    assert [timeline.busy(0), timeline.busy(1)] == [5, 5]
    assert [timeline.bytes_sent(0), timeline.bytes_sent(1)] == [4, 4]


def test_reports_stand_in_line_behind_messages() -> None:
    """m's four seconds begin to leave at 2, when both are done; the system has taken 1.5 bytes of it, twice passed."""
    for queue, end in ((0, 2), (1.5, 5), (100, 6)):
        link = Link(bytes_per_second=1, queue_bytes=queue)
        costs = (walk(1, W=0), lambda message: (4,) if message == M else (0,), link)
        assert play(TWO, *costs, iterations=1).seconds == end


def test_the_first_iteration_has_m_from_the_start() -> None:
    costs = (walk(1, 1), lambda message: (2, 2), Link(bytes_per_second=1))
    assert told(play(TWO, *costs, iterations=1), 1)[:2] == [("p2", 0, 2), ("W2", 2, 3)]


def test_a_message_is_held_until_its_receiver_is_ready() -> None:
    """The second worker's p-phase ends at 6; m's first chunk is ready at 2 and must wait for that."""

    def step(at: Step) -> StepTime:
        return StepTime(chunks={"p1": (0.5, 0.5), "p2": (1, 5), "z1": (1, 1)}.get(f"{at.action}{at.layer + 1}", ()))

    costs = (step, lambda message: (3, 3) if message == M else (0, 0), Link(bytes_per_second=1))
    assert left(play(TWO, *costs, iterations=1), "m1") == [(6, 9), (9, 12)]


def test_with_one_step_size_a_layer_nothing_leaves_before_all_of_m_has_come() -> None:
    def step(at: Step) -> StepTime:
        return StepTime(reads=(1, 1), chunks=(1, 1)) if (at.action, at.layer) == ("p", 1) else StepTime(chunks=(0, 0))

    timeline = play(TWO, step, lambda message: (1, 1), Link(bytes_per_second=1), iterations=1)
    assert [start for start, _ in left(timeline, "p2")] == [3, 4]


def test_processor_time_of_messages_is_the_workers() -> None:
    """1 s to hand over p and 1 s to take it in; m costs only its chunk."""
    link = Link(bytes_per_second=1, byte_cpu=0.2, chunk_cpu=0.2, queue_bytes=0)
    costs = (walk(1, W=3), lambda message: (4,) if message.kind == "p" else (0,), link)
    timeline = play(TWO, *costs, iterations=1)
    # m is taken in (0.2), p computed (1) and handed over (1).
    assert [round(end, 9) for _, _, end in told(timeline, 1)] == [2.2, 5.2, 6.2]
    # p left at 1.2 and was there at 5.2; taking it in, z, and handing over m.
    assert told(timeline, 0)[-1][1:] == pytest.approx((5.2, 5.2 + 1 + 1 + 0.2))


def test_sums_over_shards_go_round_in_a_ring() -> None:
    """W's sums before it, z's after it: three others, 2 bytes each at 1 byte a second, and the latency three times."""

    def step(at: Step) -> StepTime:
        sums = {"W": (2, 2.0), "z": (1, 0.0)}.get(at.action, (0, 0.0))
        return StepTime(before=1, sums=sums[0], sum_bytes=sums[1])

    costs = (step, lambda message: (), Link(bytes_per_second=1, latency=0.5), 4)
    timeline = play(make_schedules([[0]]), *costs, iterations=1)
    assert told(timeline, 0) == [("p1", 0, 1), ("W1", 10, 11), ("z1", 11, 12)]
    assert [left(timeline, name) for name in ("sums of W1", "sums of z1")] == [[(1, 10)], [(12, 13.5)]]


@given(
    counts=st.lists(st.integers(1, 3), min_size=1, max_size=5),
    seconds=st.lists(st.floats(0.1, 3), min_size=1, max_size=4),
    size=st.floats(0, 5),
    latency=st.floats(0, 1),
    shards=st.integers(1, 3),
)
def test_no_worker_does_two_things_at_once_and_bandwidth_never_hurts(
    counts: list[int], seconds: list[float], size: float, latency: float, shards: int
) -> None:
    schedules = make_schedules(from_counts(counts).stages)

    def played(bandwidth: float) -> Timeline:
        def step(at: Step) -> StepTime:
            share = (1 + at.layer % 3) / 2
            chunks = tuple(share * value for value in seconds)
            return StepTime(0.1, () if at.action == "W" else chunks, sums=1, sum_bytes=size)

        return play(schedules, step, lambda message: [size] * len(seconds), Link(bandwidth, latency), shards)

    slow, fast = played(1.0), played(3.0)
    assert fast.seconds <= slow.seconds + 1e-9
    for stage in range(len(counts)):
        computed = (span for span in slow.spans if (span.stage, span.track) == (stage, "computes"))
        spans = sorted((span.start, span.end) for span in computed)
        assert all(end <= start + 1e-9 for (_, end), (start, _) in pairwise(spans))
        assert spans[-1][1] <= slow.seconds + 1e-9


def test_a_trace_is_in_chromes_format() -> None:
    """Complete events with what the format requires; those of a track do not overlap."""
    link = Link(bytes_per_second=1, latency=0.5)
    trace = play(TWO, walk(0.1, 0.3), lambda message: (0.2, 0.7), link).trace()
    events = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert {event["name"] for event in events} == {"p1", "W1", "z1", "p2", "W2", "z2", "m1"}
    for event in trace["traceEvents"]:
        assert {"ph", "pid", "name", "args"} <= set(event)
        assert event["ph"] in ("X", "M")
    for event in events:
        assert event["ts"] >= 0
        assert event["dur"] >= 0
    names = {event["args"]["name"] for event in trace["traceEvents"] if event["ph"] == "M"}
    assert names == {"worker 1", "worker 2", "computes", "sends"}
    tracks = {(event["pid"], event["tid"]) for event in events}
    assert tracks == {(1, 0), (1, 1), (2, 0), (2, 1)}
    for track in tracks:
        own = sorted((event["ts"], event["dur"]) for event in events if (event["pid"], event["tid"]) == track)
        assert all(ts + dur <= following + 1e-3 for (ts, dur), (following, _) in pairwise(own))
