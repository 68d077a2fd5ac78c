"""Iterations played in time: by hand for small cases, and what must hold for all."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdadmm.engine.placement import from_counts
from pdadmm.engine.schedule import Message, Step, make_schedules
from pdadmm.engine.timeline import Costs, Link, StepTime, Timeline, play

P, M = Message("p", 1), Message("m", 0)
TWO = make_schedules([[0], [1]])


def told(timeline: Timeline, stage: int) -> list[tuple[str, float, float]]:
    """What a stage does in the steady iteration, in short."""
    begins = timeline.begins
    return [
        (f"{entry.kind} {entry.step.action if entry.step else ''}".strip(), entry.start - begins, entry.end - begins)
        for entry in timeline.steady()
        if entry.stage == stage
    ]


def walk(*chunks: float, W: float = 1.0) -> Callable[[Step], StepTime]:
    """Every p- and z-phase takes these chunks, every W-phase one piece."""
    return lambda step: StepTime(before=W) if step.action == "W" else StepTime(chunks=chunks)


def test_two_workers_by_hand() -> None:
    """Chunks of 1 s, messages of 2 s a chunk and 0.5 s of latency; reports go round in 2 × 0.5 s."""
    link = Link(bytes_per_second=1, latency=0.5, queue_bytes=0)
    timeline = play(TWO, Costs(walk(1, 1), lambda message: (2, 2), link), iterations=3)
    assert timeline.ends == [7.5, 15.0, 22.5]
    # p's second chunk leaves when the first has left, and arrives 5.5 s after the beginning.
    assert told(timeline, 0) == [
        ("compute p", 0, 2),
        ("compute W", 2, 3),
        ("wait z", 3, 3.5),
        ("compute z", 3.5, 4.5),
        ("wait z", 4.5, 5.5),
        ("compute z", 5.5, 6.5),
        ("share", 6.5, 7.5),
    ]
    # m's second chunk left at the end of the iteration before and needs 2.5 s.
    assert told(timeline, 1) == [
        ("compute p", 0, 1),
        ("wait p", 1, 1.5),
        ("compute p", 1.5, 2.5),
        ("compute W", 2.5, 3.5),
        ("compute z", 3.5, 5.5),
        ("share", 5.5, 7.5),
    ]
    assert [timeline.busy(0), timeline.busy(1)] == [5, 5]
    assert [timeline.sent(0), timeline.sent(1)] == [4, 4]
    assert timeline.link_share(1) == 4 / 7.5


def test_reports_stand_in_line_behind_messages() -> None:
    """m's four seconds begin to leave at 2, when both are done; the system has taken 1.5 bytes of it, twice passed."""
    for queue, end in ((0, 2), (1.5, 5), (100, 6)):
        link = Link(bytes_per_second=1, queue_bytes=queue)
        timeline = play(TWO, Costs(walk(1, W=0), lambda message: (4,) if message == M else (0,), link), iterations=1)
        assert timeline.ends == [end]


def test_the_first_iteration_has_m_from_the_start() -> None:
    costs = Costs(walk(1, 1), lambda message: (2, 2), Link(bytes_per_second=1))
    timeline = play(TWO, costs, iterations=1)
    assert told(timeline, 1)[:2] == [("compute p", 0, 2), ("compute W", 2, 3)]


def test_a_message_is_held_until_its_receiver_is_ready() -> None:
    """The second worker's p-phase ends at 6; m's first chunk is ready at 2 and must wait for that."""

    def step(at: Step) -> StepTime:
        return StepTime(chunks={"p1": (0.5, 0.5), "p2": (1, 5), "z1": (1, 1)}.get(f"{at.action}{at.layer + 1}", ()))

    costs = Costs(step, lambda message: (3, 3) if message == M else (0, 0), Link(bytes_per_second=1))
    timeline = play(TWO, costs, iterations=1)
    assert [(part.chunk, part.start, part.end) for part in timeline.transfers if part.message == M] == [
        (0, 6, 9),
        (1, 9, 12),
    ]


def test_with_one_step_size_a_layer_nothing_leaves_before_all_of_m_has_come() -> None:
    def step(at: Step) -> StepTime:
        return StepTime(reads=(1, 1), chunks=(1, 1)) if (at.action, at.layer) == ("p", 1) else StepTime(chunks=(0, 0))

    timeline = play(TWO, Costs(step, lambda message: (1, 1), Link(bytes_per_second=1)), iterations=1)
    assert [part.start for part in timeline.transfers if part.message == P] == [3, 4]


def test_processor_time_of_messages_is_paid_by_waiting_or_by_the_next_step() -> None:
    """0.25 s for each of four bytes and of a chunk: stage 2 pays for sending p in its W-phase, 1.25 s."""
    link = Link(bytes_per_second=1, send_cpu=0.25, send_overhead=0.25, queue_bytes=0)
    costs = Costs(walk(1, W=3), lambda message: (4,) if message == P else (0,), link)
    timeline = play(TWO, costs, iterations=1)
    assert told(timeline, 1) == [
        ("compute p", 0, 1),
        ("compute W", 1, 5.25),
        ("compute z", 5.25, 6.25),
        ("share", 6.25, 6.25),
    ]
    for W, waits, z in ((3, True, (5, 6)), (6, False, (7, 8.5))):
        received = Costs(walk(1, W=W), lambda message: (4,) if message == P else (0,), Link(1, receive_overhead=0.5))
        done = told(play(TWO, received, iterations=1), 0)
        assert (("wait z", 4, 5) in done, done[-2]) == (waits, ("compute z", *z))


def test_sums_over_shards_go_round_in_a_ring() -> None:
    """W's sums before it, z's after it: three others, 2 bytes each at 1 byte a second, and the latency three times."""

    def step(at: Step) -> StepTime:
        sums = {"W": (2, 2.0), "z": (1, 0.0)}.get(at.action, (0, 0.0))
        return StepTime(before=1, gathers=sums[0], gathered_bytes=sums[1])

    costs = Costs(step, lambda message: (), Link(bytes_per_second=1, latency=0.5), shards=4)
    timeline = play(make_schedules([[0]]), costs, iterations=1)
    assert told(timeline, 0) == [
        ("compute p", 0, 1),
        ("gather W", 1, 10),
        ("compute W", 10, 11),
        ("compute z", 11, 12),
        ("gather z", 12, 13.5),
        ("share", 13.5, 13.5),
    ]


@given(
    counts=st.lists(st.integers(1, 3), min_size=1, max_size=5),
    seconds=st.lists(st.floats(0.1, 3), min_size=1, max_size=4),
    size=st.floats(0, 5),
    latency=st.floats(0, 1),
    shards=st.integers(1, 3),
)
def test_busy_and_idle_are_all_the_time_and_bandwidth_never_hurts(
    counts: list[int], seconds: list[float], size: float, latency: float, shards: int
) -> None:
    schedules = make_schedules(from_counts(counts).stages)

    def played(bandwidth: float) -> Timeline:
        def step(at: Step) -> StepTime:
            share = (1 + at.layer % 3) / 2
            chunks = tuple(share * value for value in seconds)
            return StepTime(0.1, () if at.action == "W" else chunks, gathers=1, gathered_bytes=size)

        return play(schedules, Costs(step, lambda message: [size] * len(seconds), Link(bandwidth, latency), shards))

    slow, fast = played(1.0), played(3.0)
    assert fast.seconds <= slow.seconds + 1e-9
    for stage in range(len(counts)):
        idle = slow.sum(stage, "wait", "gather", "share")
        assert slow.busy(stage) + idle == pytest.approx(slow.seconds, rel=1e-9)
        assert idle == pytest.approx(slow.idle_share(stage) * slow.seconds)
