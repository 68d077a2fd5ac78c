"""`pdadmm simulate`: what it prints, writes and refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from commands import Command, assert_refused

SHAPE = ("--samples", "4000", "--features", "30", "--classes", "4")
NETWORK = ("simulate", "--hidden", "5x200", *SHAPE, "--gflops", "80")
KEYS = {"speedup", "efficiency", "epoch_seconds", "serial_seconds", "losses", "bottleneck", "placement", "workers"}
KEYS |= {"shards", "why", "each"}
KEYS |= {"sweep"}
WORKER = {"layers", "busy_seconds", "idle_share", "bytes_sent"}


def test_layers_are_measured_unless_a_speed_is_stated(pdadmm: Command) -> None:
    result = pdadmm("simulate", "--hidden", "2x8")
    assert result.code == 0
    assert result.out.startswith("1437 samples of 64 features, hidden 2x8, 10 outputs\n")
    assert "measuring layer 1, 64 to 8\n" in result.err
    stated = pdadmm("simulate", "--hidden", "2x8", "--gflops", "80")
    assert "speedup 1.00" in stated.out
    assert stated.err == ""


def test_as_json(pdadmm: Command) -> None:
    found = pdadmm(*NETWORK, "--workers", "3", "--bandwidth", "1Gbit", "--latency", "1ms", "--json").json()
    assert set(found) == KEYS
    assert found["speedup"] == found["serial_seconds"] / found["epoch_seconds"]
    assert found["efficiency"] == found["speedup"] / 3
    assert [set(worker) for worker in found["each"]] == [WORKER] * 3


def test_many_numbers_of_workers(pdadmm: Command) -> None:
    found = pdadmm(*NETWORK, "--sweep", "workers", "--json").json()
    assert [row["workers"] for row in found["sweep"]] == [1, 2, 3, 4, 5, 6]
    assert {"speedup", "efficiency", "epoch_seconds", "bottleneck", "placement"} <= set(found["sweep"][0])
    shown = pdadmm(*NETWORK, "--workers", "6", "--sweep", "shards").out
    assert [line.split()[1] for line in shown.splitlines() if line.startswith("      6 ")][-8:][:3] == ["1", "2", "4"]


def test_numbers_and_trace_in_files(pdadmm: Command, tmp_path: Path) -> None:
    shown = pdadmm(*NETWORK, "--workers", "2", "--out", tmp_path / "found", "--trace", "trace.json", "--json").json()
    assert json.loads((tmp_path / "found" / "simulation.json").read_text()) == shown
    events = [e for e in json.loads((tmp_path / "trace.json").read_text())["traceEvents"] if e["ph"] == "X"]
    computed = sum(event["dur"] for event in events if event["tid"] == 0)
    assert computed == pytest.approx(1e6 * sum(worker["busy_seconds"] for worker in shown["each"]), rel=1e-3)


@pytest.mark.parametrize(
    ("arguments", "fragments"),
    [
        (("--bandwidth", "10"), ("--bandwidth must be", "Gbit", "'10'")),
        (("--bandwidth", "0Gbit"), ("--bandwidth must be positive; got 0Gbit",)),
        (("--latency", "5"), ("--latency must be", "'5'")),
        (("--gflops", "0"), ("--gflops must be positive; got 0",)),
        (("--per-host", "0"), ("--per-host must be from 1 to 64; got 0",)),
        (("--samples", "0"), ("--samples must be at least 1; got 0",)),
        (("--workers", "9"), ("workers must not be more than the layers, which are 6; got 9",)),
        (("--set", "placement=3,3", "--workers", "3"), ("placement must give each of 3 workers",)),
        (("--shards", "5000"), ("shards must not be more than the samples",)),
        (("--sweep", "layers"), ("--sweep", "'layers'")),
        (("--solver", "magic"), ("solver must be one of",)),
    ],
)
def test_mistakes(pdadmm: Command, arguments: tuple[str, ...], fragments: tuple[str, ...]) -> None:
    assert_refused(pdadmm(*NETWORK, *arguments), *fragments)
