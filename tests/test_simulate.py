"""What a simulation adds up to, what it says of itself, and units."""

from __future__ import annotations

import dataclasses

import pytest

from pdadmm.config import Config
from pdadmm.engine.cost import Speed, Timing, Work
from pdadmm.engine.schedule import Step
from pdadmm.engine.timeline import Link
from pdadmm.engine.typical import TYPICAL
from pdadmm.errors import UserError
from pdadmm.plan import Shape, cost_model, place
from pdadmm.simulate import Machine, better_placement, free_bandwidth, simulate
from pdadmm.sweep import WORTH, recommended, sweep_shards, sweep_workers
from pdadmm.units import format_bandwidth, format_seconds, parse_bandwidth, parse_seconds

SHAPE = Shape(8000, 0, 196, 10)
SLOW, FAST = Link(1e6, 1e-3), Link(1.25e9, 5e-5)


def config(**options: object) -> Config:
    return Config.from_mapping({"hidden": (300,) * 7, "grow": "off", **options}).resolved()


@pytest.mark.parametrize("solver", ["exact", "linearized", "backtracking"])
def test_one_worker_takes_the_sum_of_its_layers(solver: str) -> None:
    found = simulate(config(solver=solver), SHAPE)
    layers = Timing(cost_model(config(solver=solver), SHAPE), TYPICAL).layer_seconds()
    assert found.epoch_seconds == pytest.approx(sum(layers))
    assert found.serial_seconds == found.epoch_seconds
    assert (found.speedup, found.efficiency, found.idle_share, found.bytes_sent) == (1, 1, 0, 0)
    assert found.bottleneck()[0] == "compute"


def test_the_plan_is_the_engines_own() -> None:
    """Its placement, and as many bytes as it sends: p and m of the boundary, chunk by chunk."""
    one = config(workers=3)
    found = simulate(one, SHAPE, link=FAST)
    assert found.placement == place(one, SHAPE)
    assert [worker.bytes_sent for worker in found.workers] == [4 * 8000 * 300 * count for count in (1, 2, 1)]
    half = simulate(config(workers=3, messages="bfloat16"), SHAPE, link=FAST)
    assert half.bytes_sent == found.bytes_sent / 2


def test_speedup_is_bounded_and_bandwidth_helps() -> None:
    slow, fast = (simulate(config(workers=4), SHAPE, link=link) for link in (SLOW, FAST))
    assert 1 < fast.speedup <= 4
    assert slow.speedup < fast.speedup
    assert slow.bottleneck()[0] == "link"
    assert "the way out of worker" in slow.bottleneck()[1]
    assert fast.bottleneck()[0] == "compute"
    assert sum(slow.losses().values()) == pytest.approx(1 - slow.efficiency)


def test_the_bandwidth_that_is_enough_is_enough_and_less_is_not() -> None:
    found = simulate(config(workers=4), SHAPE, link=FAST)
    free = free_bandwidth(found)
    least, just, less = (
        simulate(config(workers=4), SHAPE, link=dataclasses.replace(FAST, bytes_per_second=rate)).epoch_seconds
        for rate in (1e15, 1.02 * free, 0.9 * free)
    )
    assert just <= 1.011 * least < less * 1.001


def test_measured_steps_take_the_place_of_the_model() -> None:
    asked = []

    def seconds(step: Step, rows: int) -> float:
        asked.append((step.action, step.layer, rows))
        return {"p": 3.0, "W": 2.0, "z": 1.0}[step.action]

    one = simulate(config(), SHAPE, step_seconds=seconds)
    assert one.epoch_seconds == pytest.approx(8 * 6)
    assert {rows for _, _, rows in asked} == {8000}
    two = simulate(config(workers=2, placement="4,4"), SHAPE, step_seconds=seconds)
    # m is made once, by whichever worker: no more and no less is computed in all.
    assert sum(worker.busy_seconds for worker in two.workers) == pytest.approx(8 * 6)


def test_a_better_placement_is_found_where_there_is_one() -> None:
    bad = simulate(config(workers=2, placement="1,7"), SHAPE, link=FAST)
    better = better_placement(bad)
    assert better is not None
    assert better.epoch_seconds < 0.7 * bad.epoch_seconds
    assert better_placement(better) is None


def test_shards_divide_the_rows_but_not_the_systems() -> None:
    swept = sweep_shards(config(workers=8), SHAPE, link=FAST)
    assert [one.processes for one in swept] == [8, 16, 32, 64, 128, 256, 512, 1000]
    efficiencies = [one.efficiency for one in swept]
    assert efficiencies == sorted(efficiencies, reverse=True)
    assert swept[-1].bottleneck()[0] in ("link", "repeated")
    assert all(one.workers[0].memory_bytes < swept[0].workers[0].memory_bytes for one in swept[1:])


def test_how_many_workers_are_worth_it() -> None:
    swept = sweep_workers(config(), SHAPE, link=FAST)
    assert [one.config.workers for one in swept] == list(range(1, 9))
    best = recommended(swept)
    assert best["efficiency"] >= WORTH
    assert all(one.efficiency < WORTH for one in swept if one.processes > best["processes"])
    alone = recommended(sweep_workers(config(), SHAPE, link=SLOW))
    assert alone["processes"] == 1
    assert "communication makes the epoch" in alone["why_no_more"]


def test_a_faster_worker_is_as_much_faster_in_everything() -> None:
    slow, fast = (simulate(config(), SHAPE, Machine(TYPICAL.scaled(gflops))) for gflops in (50, 200))
    assert slow.epoch_seconds == pytest.approx(4 * fast.epoch_seconds)
    beside = simulate(config(), SHAPE, Machine(TYPICAL, slowdown=1.5))
    assert beside.epoch_seconds == pytest.approx(1.5 * beside.serial_seconds)


def test_a_speed_is_seconds_for_each_count() -> None:
    speed = Speed(100, {("exact", "hidden", "z"): Work(products=2.0, rows=3.0)})
    assert speed.of("exact", "hidden", "z", Work(products=5, rows=7, tiles=11)) == 31
    assert speed.of("exact", "output", "z", Work(products=1e9)) == pytest.approx(0.01)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"method": "adam"}, "got method adam"), ({"batches": 4}, "got batches 4"), ({"shards": 9000}, "which are 8000")],
)
def test_what_cannot_be_simulated_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        simulate(config(**options), SHAPE)


@pytest.mark.parametrize(
    ("text", "rate"),
    [("10Gbit", 1.25e9), ("100Mbit", 1.25e7), ("1.25GB", 1.25e9), ("25Gbit/s", 3.125e9), ("8bit", 1), ("2kB", 2e3)],
)
def test_bandwidths(text: str, rate: float) -> None:
    assert parse_bandwidth(text, "--bandwidth") == pytest.approx(rate)


@pytest.mark.parametrize(
    "text", ["", "10", "10gbit", "Gbit", "-1Gbit", "0Gbit", "10 Gbit", "1e3Mbit", "10Gb", "nanGB", "10us"]
)
def test_bandwidths_that_are_none(text: str) -> None:
    with pytest.raises(UserError, match=r"--bandwidth must be a positive number and one of bit, kbit, .* got"):
        parse_bandwidth(text, "--bandwidth")


@pytest.mark.parametrize(("text", "seconds"), [("50us", 5e-5), ("50µs", 5e-5), ("1ms", 1e-3), ("0s", 0), ("2.5s", 2.5)])
def test_times(text: str, seconds: float) -> None:
    assert parse_seconds(text, "--latency") == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["50", "us", "1m", "1us/s", "-1us", "1Gbit"])
def test_times_that_are_none(text: str) -> None:
    with pytest.raises(UserError, match=r"--latency must be a number and one of ns, us, .* got"):
        parse_seconds(text, "--latency")


def test_quantities_as_shown() -> None:
    assert [format_bandwidth(rate) for rate in (1.25e9, 1.25e7, 10)] == ["10 Gbit/s", "100 Mbit/s", "80 bit/s"]
    assert format_bandwidth(float("inf")) == "unlimited"
    assert [format_seconds(seconds) for seconds in (5e-5, 2, 1e-3)] == ["50 us", "2 s", "1 ms"]
