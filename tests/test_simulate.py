"""What a simulation adds up to, what it says of itself, and units."""

from __future__ import annotations

import dataclasses

import pytest

from pdadmm.cli.simulate import RATES, TIMES, parse_quantity
from pdadmm.config import Config
from pdadmm.errors import UserError
from pdadmm.plan import Shape, place
from pdadmm.simulate.blocks import BlockTimes, stated_layers
from pdadmm.simulate.simulation import Simulation, serial_seconds, simulate, sweep
from pdadmm.simulate.timeline import Link

SHAPE = Shape(8000, 0, 196, 10)
SLOW, FAST = Link(1e6, 1e-3), Link(1.25e9, 5e-5)


def config(**options: object) -> Config:
    return Config.from_mapping({"hidden": (300,) * 7, "grow": "off", **options}).resolved()


LAYERS = stated_layers(config(), SHAPE, 80.0)


def simulated(link: Link = FAST, /, **options: object) -> Simulation:
    return simulate(config(**options), SHAPE, LAYERS, link)


@pytest.mark.parametrize("solver", ["exact", "linearized", "backtracking"])
def test_one_worker_takes_the_sum_of_its_layers(solver: str) -> None:
    layers = stated_layers(config(solver=solver), SHAPE, 80.0)
    found = simulate(config(solver=solver), SHAPE, layers)
    assert found.epoch_seconds == pytest.approx(sum(one.p + one.W + one.z for one in layers))
    assert found.serial_seconds == pytest.approx(found.epoch_seconds)
    (worker,) = found.each()
    assert worker["idle_share"] == pytest.approx(0)
    assert worker["bytes_sent"] == 0
    assert found.bottleneck == "compute"


def test_the_plan_is_the_engines_own() -> None:
    """Its placement, and as many bytes as it sends: p and m of the boundary, chunk by chunk."""
    found = simulated(workers=3)
    assert found.placement == place(config(workers=3), SHAPE)
    assert [found.timeline.bytes_sent(stage) for stage in range(3)] == [4 * 8000 * 300 * count for count in (1, 2, 1)]


def test_speedup_is_bounded_and_bandwidth_helps() -> None:
    slow, fast = (simulated(link, workers=4) for link in (SLOW, FAST))
    assert 1 < fast.speedup <= 4
    assert slow.speedup < fast.speedup
    assert slow.bottleneck == "link"
    assert "communication makes the epoch" in slow.why
    assert fast.bottleneck == "compute"
    assert sum(slow.losses.values()) == pytest.approx(1 - slow.efficiency)


def test_measured_layers_take_the_place_of_operations() -> None:
    times = [BlockTimes(3.0, 2.0, 1.0, 0.5, 8000)] * 8
    assert simulate(config(), SHAPE, times).epoch_seconds == pytest.approx(8 * 6)
    two = simulate(config(workers=2, placement="4,4"), SHAPE, times, Link())
    # m is made once, by whichever worker: no more and no less is computed in all.
    assert sum(map(two.timeline.busy, range(2))) == pytest.approx(8 * 6)
    # Half of the samples: what has a row for each takes half as long, n × n systems take as long as before.
    half = serial_seconds(config(), dataclasses.replace(SHAPE, samples=4000), times)
    assert 8 * (2 + 4 / 2) < half < 8 * (2 + 4 * 0.55)
    assert simulate(config(), SHAPE, [one.times(2.0) for one in times]).epoch_seconds == pytest.approx(8 * 12)


def test_shards_divide_the_rows_but_not_the_systems() -> None:
    swept = sweep("shards", config(workers=8), SHAPE, LAYERS, FAST)
    assert [one.shards for one in swept] == [1, 2, 4, 8, 16, 32, 64]
    efficiencies = [one.efficiency for one in swept]
    assert efficiencies == sorted(efficiencies, reverse=True)
    assert swept[-1].bottleneck in ("link", "repeated")


def test_one_number_of_workers_after_the_other() -> None:
    fast, slow = (sweep("workers", config(), SHAPE, LAYERS, link) for link in (FAST, SLOW))
    assert [one.workers for one in fast] == list(range(1, 9))
    assert fast[1].efficiency > 0.9
    assert max(slow, key=lambda one: one.speedup).workers == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [({"method": "adam"}, "got method adam"), ({"batches": 4}, "got batches 4"), ({"shards": 9000}, "which are 8000")],
)
def test_what_cannot_be_simulated_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        simulate(config(**options), SHAPE, LAYERS)


@pytest.mark.parametrize(
    ("text", "rate"),
    [("10Gbit", 1.25e9), ("100Mbit", 1.25e7), ("1.25GB", 1.25e9), ("8bit", 1), ("2kB", 2e3)],
)
def test_bandwidths(text: str, rate: float) -> None:
    assert parse_quantity(text, "--bandwidth", RATES) == pytest.approx(rate)


@pytest.mark.parametrize("text", ["", "10", "10gbit", "Gbit", "-1Gbit", "10 Gbit", "1e3Mbit", "10Gb", "nanGB", "10us"])
def test_bandwidths_that_are_none(text: str) -> None:
    with pytest.raises(UserError, match=r"--bandwidth must be a number and its unit, one of bit, kbit, .* got"):
        parse_quantity(text, "--bandwidth", RATES)


@pytest.mark.parametrize(("text", "seconds"), [("50us", 5e-5), ("50µs", 5e-5), ("1ms", 1e-3), ("0s", 0), ("2.5s", 2.5)])
def test_times(text: str, seconds: float) -> None:
    assert parse_quantity(text, "--latency", TIMES) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["50", "us", "1m", "1us/s", "-1us", "1Gbit"])
def test_times_that_are_none(text: str) -> None:
    with pytest.raises(UserError, match=r"--latency must be a number and its unit, one of ns, us, .* got"):
        parse_quantity(text, "--latency", TIMES)
