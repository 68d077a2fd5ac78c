"""Layers run and timed on this machine."""

from __future__ import annotations

import pytest

from pdadmm.config import Config
from pdadmm.errors import UserError
from pdadmm.plan import Shape
from pdadmm.simulate.blocks import measure_block, measure_layers

SHAPE = Shape(600, 0, 7, 3)


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
    assert 512 <= times.rows < 40_000
    with pytest.raises(UserError, match=r"needs more than 1000 bytes to be measured; state the speed .* by --gflops"):
        measure_block(config, SHAPE, 1, max_bytes=1000)


def test_layers_that_are_alike_are_measured_once() -> None:
    told: list[str] = []
    config = Config(hidden=(8,) * 5, activation="relu,relu,relu,tanh,tanh", loss="squared").resolved()
    times = measure_layers(config, SHAPE, beside=2, tell=told.append)
    assert times[1] is times[2]
    assert len(times) == 6
    # the first, relu after relu, tanh after relu, tanh after tanh, and the output layer
    assert [line.split(",")[0] for line in told] == [f"measuring layer {number}" for number in (1, 2, 4, 5, 6)]
