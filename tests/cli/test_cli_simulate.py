"""`pdadmm simulate`: what it prints, writes and refuses."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest

from commands import Command, assert_refused
from pdadmm.calibration import Calibration, load_calibration, save_calibration
from pdadmm.engine.cost import Speed
from pdadmm.engine.timeline import Link

NETWORK = ("simulate", "--hidden", "5x200")
KEYS = {"speedup", "efficiency", "epoch_seconds", "serial_seconds", "idle_share", "bytes_sent", "memory_bytes"}
KEYS |= {"bottleneck", "workers", "placement", "free_bandwidth", "gflops", "notes", "not_modelled", "losses", "link"}


@pytest.fixture(autouse=True)
def empty_cache(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """So that a calibration of this machine does not matter."""
    cache = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    return cache


def test_only_the_network_must_be_given(pdadmm: Command) -> None:
    result = pdadmm(*NETWORK)
    assert result.code == 0
    assert result.out.startswith("55000 samples of 196 features, hidden 5x200, 10 outputs, exact solver\n")
    assert "\n1 workers of 80 Gflop/s (a typical core), links of 10 Gbit/s and 50 us\n" in result.out
    assert "not modelled: congestion in switches" in result.out
    assert_refused(pdadmm("simulate"), "--hidden is missing")


def test_as_json(pdadmm: Command) -> None:
    shape = ("--samples", "4000", "--features", "30", "--classes", "4")
    found = pdadmm(*NETWORK, *shape, "--workers", "3", "--bandwidth", "1Gbit", "--latency", "1ms", "--json").json()
    assert set(found) >= KEYS
    assert found["speedup"] == found["serial_seconds"] / found["epoch_seconds"]
    assert found["efficiency"] == found["speedup"] / 3
    assert found["link"] == {"bytes_per_second": 1.25e8, "latency": 1e-3}
    assert [found[name] for name in ("samples", "features", "classes")] == [4000, 30, 4]
    assert len(found["workers"]) == 3


def test_the_shape_of_data(pdadmm: Command) -> None:
    found = pdadmm(*NETWORK, "--data", "digits", "--json").json()
    assert [found[name] for name in ("samples", "features", "classes")] == [1437, 64, 10]


def test_how_many_workers(pdadmm: Command) -> None:
    found = pdadmm(*NETWORK, "--sweep", "workers", "--json").json()
    assert [row["workers"] for row in found["sweep"]] == [1, 2, 3, 4, 5, 6]
    assert found["recommended"]["processes"] in range(1, 7)
    shown = pdadmm(*NETWORK, "--workers", "6", "--sweep", "shards").out
    assert "worth it: " in shown
    assert [line.split()[1] for line in shown.splitlines() if line.startswith("      6 ")][:3] == ["1", "2", "4"]


def test_shards_that_change_the_order_of_sums_are_said_so(pdadmm: Command) -> None:
    notes = pdadmm(*NETWORK, "--shards", "6", "--grow", "off", "--json").json()["notes"]
    assert len(notes) == 1
    assert notes[0].startswith("with 6 shards the engine's sums are ordered otherwise")
    assert pdadmm(*NETWORK, "--shards", "8", "--grow", "off", "--json").json()["notes"] == []


def test_figures_and_numbers_in_a_directory(pdadmm: Command, tmp_path: Path) -> None:
    assert pdadmm(*NETWORK, "--workers", "2", "--out", tmp_path / "found").code == 0
    names = {"simulation.json", "timeline.png", "timeline.svg", "speedup.png", "speedup.svg"}
    assert {path.name for path in (tmp_path / "found").iterdir()} == names
    assert set(json.loads((tmp_path / "found" / "simulation.json").read_text())) >= KEYS
    assert (tmp_path / "found" / "timeline.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "found" / "speedup.svg").read_text()


def test_a_saved_calibration_is_used(pdadmm: Command, tmp_path: Path, empty_cache: Path) -> None:
    found = Calibration(Speed(40, {}), Link(1e8, 1e-4), 1.5, made="yesterday")
    save_calibration(tmp_path / "mine.json", found)
    named = pdadmm(*NETWORK, "--calibration", "mine.json", "--workers", "2", "--measured-link", "--json").json()
    assert (named["gflops"], named["speed_source"]) == (40, "measured yesterday")
    assert named["link"] == {"bytes_per_second": 1e8, "latency": 1e-4}
    save_calibration(empty_cache / "pdadmm" / "calibration.json", found)
    kept = pdadmm(*NETWORK, "--json").json()
    assert kept["gflops"] == 40
    faster = pdadmm(*NETWORK, "--gflops", "400", "--json").json()
    assert faster["epoch_seconds"] == pytest.approx(kept["epoch_seconds"] / 10)
    beside = pdadmm(*NETWORK, "--per-host", "2", "--json").json()
    assert beside["epoch_seconds"] == pytest.approx(1.5 * kept["epoch_seconds"])
    (tmp_path / "mine.json").write_text("{}")
    assert_refused(pdadmm(*NETWORK, "--calibration", "mine.json"), "mine.json is no calibration", code=6)


@pytest.mark.parametrize(
    ("arguments", "fragments"),
    [
        (("--bandwidth", "10"), ("--bandwidth must be", "10Gbit", "'10'")),
        (("--latency", "5"), ("--latency must be", "'5'")),
        (("--gflops", "0"), ("--gflops must be positive; got 0",)),
        (("--per-host", "0"), ("--per-host must be at least 1; got 0",)),
        (("--samples", "0"), ("--samples must be at least 1; got 0",)),
        (("--workers", "9"), ("workers must not be more than the layers, which are 6; got 9",)),
        (("--set", "placement=3,3", "--workers", "3"), ("placement must give each of 3 workers",)),
        (("--shards", "60000"), ("shards must not be more than the samples",)),
        (("--measured-link",), ("--measured-link needs a calibration",)),
        (("--calibration", "none.json"), ("none.json is missing",)),
        (("--sweep", "layers"), ("--sweep", "'layers'")),
        (("--solver", "magic"), ("solver must be one of",)),
    ],
)
def test_mistakes(pdadmm: Command, arguments: tuple[str, ...], fragments: tuple[str, ...]) -> None:
    assert_refused(pdadmm(*NETWORK, *arguments), *fragments)


def test_a_link_is_measured_between_two_processes(tmp_path: Path) -> None:
    path = tmp_path / "link.json"
    command = [sys.executable, "-m", "pdadmm", "simulate", "--calibrate", "link", "--calibration", str(path), "--json"]
    found = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path)
    assert found.returncode == 0, found.stderr
    shown = json.loads(found.stdout)
    link = load_calibration(path).link
    assert shown["link"] == dataclasses.asdict(link)
    assert shown["calibration"] == str(path)
    assert link.bytes_per_second > 0
    assert link.latency > 0
