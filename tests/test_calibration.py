"""Layers measured, speeds fitted, and calibrations kept in files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pdadmm.calibration import (
    Calibration,
    default_path,
    load_calibration,
    measure_block,
    measure_speed,
    save_calibration,
)
from pdadmm.calibration.blocks import BlockTimes
from pdadmm.calibration.fit import SAMPLES, Sample, fit_solver
from pdadmm.config import Config
from pdadmm.engine.cost import Speed, Timing, Work
from pdadmm.engine.schedule import Step
from pdadmm.engine.timeline import Link
from pdadmm.errors import DamageError, UserError
from pdadmm.plan import Shape, cost_model

SHAPE = Shape(600, 0, 7, 3)
SMALL = (Sample("hidden", 8, 8, 256), Sample("first", 8, 8, 256), Sample("output", 8, 4, 256))


@pytest.mark.parametrize("solver", ["exact", "linearized", "backtracking"])
@pytest.mark.parametrize("layer", [0, 1, 2])
def test_every_kind_of_layer_can_be_measured(solver: str, layer: int) -> None:
    config = Config(hidden=(20, 30), solver=solver, threads=1).resolved()
    times = measure_block(config, SHAPE, layer, repeats=1)
    assert min(times.p, times.W, times.z) > 0
    assert (times.m > 0) == (layer < 2)
    assert times.rows == 600


def test_what_does_not_fit_is_measured_in_part() -> None:
    config = Config(hidden=(20, 30)).resolved()
    times = measure_block(config, Shape(40_000, 0, 7, 3), 1, repeats=1, max_bytes=2**20)
    assert times.rows == 40_000
    with pytest.raises(UserError, match="needs more than 1000 bytes"):
        measure_block(config, SHAPE, 1, max_bytes=1000)


def test_a_fit_finds_the_speed_that_made_the_times() -> None:
    """Times made of known seconds for each count come out of the fit for any other layer."""
    rates = {
        ("exact", layer, phase): Work(products=1e-11, cubes=2e-11, outputs=5e-9, steps=1e-4)
        for layer in ("first", "hidden", "output")
        for phase in ("p", "W", "z", "m")
    }
    truth = Speed(100, rates)  # type: ignore[arg-type]

    def times(sample: Sample, speed: Speed) -> BlockTimes:
        config, shape, layer = sample.problem("exact", 1)
        timing = Timing(cost_model(config, shape), speed)
        m = timing.speed.of("exact", "hidden", "m", timing.model.message_work(layer, sample.rows, 1))
        p, W, z = (timing.step(Step(action, layer)).seconds for action in ("p", "W", "z"))
        return BlockTimes(p, W, z, m, sample.rows)

    found = Speed(100, fit_solver("exact", [(sample, times(sample, truth)) for sample in SAMPLES]))
    for sample in (Sample("hidden", 300, 700, 3000), Sample("first", 100, 300, 3000), Sample("output", 300, 10, 3000)):
        assert times(sample, found).seconds == pytest.approx(times(sample, truth).seconds, rel=0.03)


def test_a_calibration_comes_back_as_it_was_saved(tmp_path: Path) -> None:
    speed = measure_speed(["exact"], threads=1, repeats=1, samples=SMALL)
    assert speed.gflops > 0
    assert {phase for _, _, phase in speed.seconds} == {"p", "W", "z", "m"}
    found = Calibration(speed, Link(1e9, 1e-5, 1e-10, 2e-10, 1e-6, 2e-6), 1.25, 2, "today")
    path = tmp_path / "new" / "calibration.json"
    save_calibration(path, found)
    assert load_calibration(path) == found


def saved(path: Path) -> dict[str, object]:
    save_calibration(path, Calibration(Speed(80, {("exact", "hidden", "p"): Work(products=1e-11)}), Link(1e9)))
    content: dict[str, object] = json.loads(path.read_text())
    return content


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"format": 99}, "its format is 99"),
        ({"gflops": 0}, "0 is no speed"),
        ({"gflops": "fast"}, "'fast' is no number"),
        ({"slowdown": -1}, "-1 is no number"),
        ({"seconds": {"exact/p": {}}}, "not enough values"),
        ({"seconds": {"exact/middle/p": {}}}, "'exact/middle/p' is no phase"),
        ({"seconds": {"exact/first/p": {"magic": 1}}}, "'magic' is no count"),
        ({"link": {}}, "bytes_per_second"),
        ({"link": None}, "NoneType"),
    ],
)
def test_a_damaged_calibration_is_named(tmp_path: Path, change: dict[str, object], why: str) -> None:
    path = tmp_path / "calibration.json"
    path.write_text(json.dumps({**saved(path), **change}))
    with pytest.raises(DamageError, match=f"calibration.json is no calibration .*{why}.*; measure again"):
        load_calibration(path)


def test_what_is_no_calibration_at_all(tmp_path: Path) -> None:
    path = tmp_path / "calibration.json"
    with pytest.raises(UserError, match="is missing: measure one by --calibrate"):
        load_calibration(path)
    for content in (b"", b"{", b"[]", b"\xff\xfe"):
        path.write_bytes(content)
        with pytest.raises(DamageError, match="is no calibration"):
            load_calibration(path)


def test_it_is_kept_in_the_users_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_path() == tmp_path / "pdadmm" / "calibration.json"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert default_path().is_absolute()
