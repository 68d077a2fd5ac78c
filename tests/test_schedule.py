"""The schedule as data: literally, without deadlock for any placement, and balanced by operations."""

from __future__ import annotations

from dataclasses import replace
from graphlib import CycleError
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdadmm.config import Config
from pdadmm.engine.flops import layer_flops
from pdadmm.engine.placement import Placement, balance, from_counts, parse_placement
from pdadmm.engine.schedule import Message, Step, make_schedules
from pdadmm.errors import UserError
from pdadmm.plan import Shape
from pdadmm.simulate.blocks import stated_layers
from pdadmm.simulate.simulation import Timing
from pdadmm.simulate.timeline import Link, StepTime, play


def text(placement: Placement) -> list[str]:
    return [" ".join(map(str, schedule)) for schedule in make_schedules(placement.stages)]


def test_the_drawing_in_the_docstring() -> None:
    assert text(from_counts([3, 2, 2])) == [
        "p3 W3 z3[needs p4, sends m3] p2 W2 z2 p1 W1 z1",
        "p4[needs m3, sends p4] p5 W5 z5[needs p6, sends m5] W4 z4",
        "p6[needs m5, sends p6] p7 W7 z7 W6 z6",
    ]


def test_a_layer_to_a_stage() -> None:
    assert text(from_counts([1, 1, 1])) == [
        "p1 W1 z1[needs p2, sends m1]",
        "p2[needs m1, sends p2] W2 z2[needs p3, sends m2]",
        "p3[needs m2, sends p3] W3 z3",
    ]


def test_a_stage_whose_layers_do_not_exist_yet_is_passed_over() -> None:
    stages = from_counts([2, 2, 2]).present([0, 1, 5])
    assert stages == [[0, 1], [], [5]]
    assert [" ".join(map(str, schedule)) for schedule in make_schedules(stages)] == [
        "p2 W2 z2[needs p6, sends m2] p1 W1 z1",
        "",
        "p6[needs m2, sends p6] W6 z6",
    ]


@given(counts=st.lists(st.integers(1, 4), min_size=1, max_size=6), slow=st.integers(0, 5), travel=st.floats(0, 5))
def test_no_placement_deadlocks_and_every_step_is_taken_once(counts: list[int], slow: int, travel: float) -> None:
    schedules = make_schedules(from_counts(counts).stages)
    timeline = play(
        schedules,
        lambda step: StepTime(chunks=(3.0, 3.0) if step.layer == slow else (1.0, 1.0)),
        lambda message: (travel, travel),
        Link(bytes_per_second=1.0),
        iterations=2,
    )
    taken = {(span.stage, span.name) for span in timeline.spans if span.track == "computes"}
    assert taken == {
        (stage, f"{step.action}{step.layer + 1}") for stage, schedule in enumerate(schedules) for step in schedule
    }
    assert all(0 < timeline.busy(stage) <= timeline.seconds * (1 + 1e-9) for stage in range(len(counts)))


def test_a_deadlock_is_found() -> None:
    """Two stages that each wait for the other's p before sending their own."""
    bad = [
        [Step("z", 0, needs=Message("p", 1), sends=Message("p", 0))],
        [Step("p", 1, needs=Message("p", 0), sends=Message("p", 1))],
    ]
    with pytest.raises(CycleError):
        play(bad, lambda step: StepTime(chunks=(1.0,)), lambda message: (0.0,), Link())


def test_the_stage_everyone_waits_for() -> None:
    config = Config(hidden=(500,) * 9).resolved()
    shape = Shape(10_000, 0, 196, 10)
    timing = Timing(config, shape, stated_layers(config, shape, 80.0))
    timeline = play(make_schedules(from_counts([2, 6, 2]).stages), timing.step, timing.chunk_bytes, Link())
    assert max(range(3), key=timeline.busy) == 1
    assert timeline.busy(0) < 0.6 * timeline.seconds
    assert timeline.busy(1) > 0.9 * timeline.seconds


@pytest.mark.parametrize(
    ("samples", "widths", "counts"),
    [
        (10_000, (100, 800, 800, 50, 50, 50, 50, 10), [2, 5]),
        (8_000, (1000, *(1000,) * 12, 1000), [7, 6]),
        (5_000, (784, *(50,) * 20, 10), [9, 12]),
        (1_437, (64, *(100,) * 9, 10), [5, 5]),
    ],
)
def test_layers_are_placed_by_their_operations(samples: int, widths: tuple[int, ...], counts: list[int]) -> None:
    """The same on every machine: no time is measured."""
    config = Config(hidden=widths[1:-1], workers=2).resolved()
    placement = balance(layer_flops(config, samples, widths), 2)
    assert [len(stage) for stage in placement.stages] == counts


@pytest.mark.parametrize("options", [{}, {"solver": "linearized"}, {"method": "adam"}, {"method": "dladmm"}])
def test_operations_grow_with_the_samples_and_the_type(options: dict[str, str]) -> None:
    config, widths = Config(hidden=(50, 50), **options).resolved(), (30, 50, 50, 3)  # type: ignore[arg-type]
    few, many = (layer_flops(config, samples, widths) for samples in (1000, 2000))
    double = layer_flops(replace(config, dtype="float64"), 1000, widths)
    assert all(1 < more / less <= 2 for less, more in zip(few, many, strict=True))
    assert double == pytest.approx([2 * one for one in few])


@given(costs=st.lists(st.floats(0.1, 10), min_size=1, max_size=9), data=st.data())
def test_balance_is_the_best_contiguous_placement(costs: list[float], data: st.DataObject) -> None:
    workers = data.draw(st.integers(1, len(costs)))
    found = balance(costs, workers)
    assert [layer for stage in found.stages for layer in stage] == list(range(len(costs)))
    assert all(found.stages)
    dearest = max(sum(costs[layer] for layer in stage) for stage in found.stages)
    cuts = data.draw(st.sets(st.integers(1, max(1, len(costs) - 1)), min_size=workers - 1, max_size=workers - 1))
    ends = [0, *sorted(cuts), len(costs)] if len(cuts) == workers - 1 and len(costs) > 1 else [0, len(costs)]
    other = max(sum(costs[a:b]) for a, b in pairwise(ends))
    assert workers != len(ends) - 1 or dearest <= other + 1e-9


def test_placements_by_hand_and_their_mistakes() -> None:
    assert str(parse_placement("2,5", 7, 2)) == "2,5"
    for bad in ("7", "3,3", "0,7", "3,x", "2,2,3"):
        with pytest.raises(UserError, match="placement must"):
            parse_placement(bad, 7, 2)
    with pytest.raises(UserError, match="which are 3; got 4"):
        balance([1.0, 1.0, 1.0], 4)
