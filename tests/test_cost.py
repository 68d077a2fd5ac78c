"""What an iteration costs, counted and not timed: matrix products a layer, and memory it allocates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from pdadmm.config import Config
from pdadmm.engine.core import Engine
from pdadmm.math import tiles
from problems import ALL_SOLVERS, make_engine, make_problem, solver_id

SAMPLES, TILE_ROWS, WIDTH, DEPTH = 1088, 272, 20, 3
PRODUCTS = {"exact": 5, "linearized": 4, "backtracking": 4}


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiles, "MOST_ROWS", TILE_ROWS)


class Watch(TorchDispatchMode):
    """Counts products over samples and remembers the largest fresh tensor."""

    def __init__(self, known: set[int]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.sample_products = 0
        self.largest_fresh = 0
        self._known = known

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        name = str(func)
        if any(product in name for product in ("aten.mm", "aten.addmm", "aten.bmm", "aten.matmul")):
            shapes = {size for leaf in tree_leaves(args) if isinstance(leaf, torch.Tensor) for size in leaf.shape}
            self.sample_products += TILE_ROWS in shapes
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor) and leaf.untyped_storage().data_ptr() not in self._known:
                self.largest_fresh = max(self.largest_fresh, leaf.untyped_storage().nbytes())
        return result


def make(options: dict[str, str], activation: str = "relu") -> Engine:
    config = Config(**options, hidden=(WIDTH,) * DEPTH, activation=activation).resolved()  # type: ignore[arg-type]
    problem = make_problem(config, samples=SAMPLES, features=WIDTH)
    engine = make_engine(config, problem)
    engine.begin_stage(0.01)
    engine.iterate(0.01)
    return engine


def storages(engine: Engine) -> set[int]:
    """The arrays an engine keeps: layer states and its workspace's scratch."""
    arrays = [
        value for block in engine.blocks for value in vars(block.state).values() if isinstance(value, torch.Tensor)
    ]
    arrays.append(engine._ws._scratch)
    return {array.untyped_storage().data_ptr() for array in arrays}


@pytest.mark.parametrize("options", ALL_SOLVERS, ids=solver_id)
def test_products_a_layer(options: dict[str, str]) -> None:
    engine = make(options)
    tiles = list(engine._ws.tiling.tiles())
    assert {tile.stop - tile.start for tile in tiles} == {TILE_ROWS}
    with Watch(set()) as watch:
        engine.iterate(0.01)
    # The first layer's p is the data: it has no p-step, and its Gram matrix was computed once.
    later_layers = DEPTH
    assert watch.sample_products == len(tiles) * (2 + later_layers * PRODUCTS[options["solver"]])


@pytest.mark.parametrize("activation", ["relu", "leaky_relu"])
@pytest.mark.parametrize("options", ALL_SOLVERS, ids=solver_id)
def test_no_array_sized_temporary(options: dict[str, str], activation: str) -> None:
    engine = make(options, activation)
    with Watch(storages(engine)) as watch:
        engine.iterate(0.01)
    array = SAMPLES * WIDTH * 4
    tile = TILE_ROWS * WIDTH * 4
    assert watch.largest_fresh <= tile < array
