"""A worker's speed, from layers of a few shapes: seconds for each count of the cost model, by least squares.

Each phase of each kind of layer is fitted on its own, so that relative errors are least, with no seconds below
0. What a layer of another shape takes is then the sum over its counts.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pdadmm.calibration.blocks import BlockTimes, measure_block, with_threads
from pdadmm.config import SOLVERS, Config
from pdadmm.engine.cost import CostModel, Layer, Phase, Speed, Work, measure_gflops
from pdadmm.engine.schedule import Action, Step
from pdadmm.plan import Shape, cost_model

ACTIONS: tuple[Action, ...] = ("p", "W", "z")
SWEEPS = 3000  # of the least squares, which has nine unknowns
NARROW = 16  # features or classes that are there only to make a network of a layer


@dataclass(frozen=True)
class Sample:
    """A layer to measure."""

    kind: Layer
    n_in: int
    n_out: int
    rows: int

    def problem(self, solver: str, threads: int | None) -> tuple[Config, Shape, int]:
        """A network that has it, and which of its layers it is."""
        hidden = {"first": (self.n_out,), "hidden": (self.n_in, self.n_out), "output": (self.n_in,)}[self.kind]
        features = self.n_in if self.kind == "first" else NARROW
        outputs = self.n_out if self.kind == "output" else NARROW
        config = Config(hidden=hidden, solver=solver, threads=threads, grow="off").resolved()
        return config, Shape(self.rows, 0, features, outputs), 0 if self.kind == "first" else 1


SAMPLES = (
    *(Sample("hidden", n, n_out, 4096) for n, n_out in ((100, 100), (100, 400), (400, 100), (250, 250), (500, 500))),
    *(Sample("hidden", n, n, 1024) for n in (50, 200, 500)),
    *(Sample("hidden", n, n_out, 4096) for n, n_out in ((100, 100), (200, 200), (400, 200))),
    *(Sample("hidden", n, n_out, 2048) for n, n_out in ((800, 400), (400, 800), (1000, 1000), (1000, 200))),
    Sample("hidden", 2000, 2000, 1024),
    *(Sample("first", n, n_out, 4096) for n, n_out in ((50, 100), (200, 200), (200, 500), (784, 300))),
    *(Sample("first", n, n_out, 1024) for n, n_out in ((50, 100), (200, 1000), (784, 2000), (3072, 200))),
    Sample("first", 200, 100, 4096),
    *(Sample("output", n, n_out, 4096) for n, n_out in ((100, 10), (500, 10), (200, 2), (200, 100))),
    *(Sample("output", n, n_out, 1024) for n, n_out in ((50, 10), (100, 100), (1000, 10), (2000, 10))),
    Sample("output", 200, 10, 4096),
)
"""From narrow to wide, with few and many rows, in large and small tiles."""


def measure_speed(
    solvers: Sequence[str] = SOLVERS,
    threads: int | None = None,
    repeats: int = 3,
    samples: Sequence[Sample] = SAMPLES,
    tell: Callable[[str], None] | None = None,
) -> Speed:
    """Measure layers of these shapes with each solver, and fit."""
    found: dict[tuple[str, Layer, Phase], Work] = {}
    with with_threads(threads):
        gflops = measure_gflops(0.5)
    for solver in solvers:
        if tell is not None:
            tell(f"measuring {len(samples)} layers with the {solver} solver")
        times = [(sample, measure_block(*sample.problem(solver, threads), repeats)) for sample in samples]
        found |= fit_solver(solver, times)
    return Speed(gflops, found)


def fit_solver(solver: str, times: Sequence[tuple[Sample, BlockTimes]]) -> dict[tuple[str, Layer, Phase], Work]:
    """Seconds for each count, by kind of layer and phase."""
    models = {sample: _model(sample, solver) for sample, _ in times}
    found: dict[tuple[str, Layer, Phase], Work] = {}
    sending = [(sample, time) for sample, time in times if sample.kind != "output"]
    of_m = [(_message(models[sample], 0 if sample.kind == "first" else 1), time.m) for sample, time in sending]
    found[solver, "hidden", "m"] = _fit(of_m)
    kinds: tuple[Layer, ...] = ("first", "hidden", "output")
    for kind in kinds:
        own = [(sample, time) for sample, time in times if sample.kind == kind]
        for action in ACTIONS:
            pairs = []
            for sample, time in own:
                model, layer = models[sample], 0 if kind == "first" else 1
                made = _dot(found[solver, "hidden", "m"], _message(model, 0)) if action == "p" and layer else 0.0
                pairs.append((_whole(model, Step(action, layer)), max(time.of(action) - made, 1e-7)))
            found[solver, kind, action] = _fit(pairs)
    return found


def _model(sample: Sample, solver: str) -> CostModel:
    config, shape, _ = sample.problem(solver, None)
    return cost_model(config, shape)


def _whole(model: CostModel, step: Step) -> Work:
    """All the work of a step."""
    rows, tiles = model.tiling.local_samples, len(list(model.tiling.tiles()))
    return Work(*map(operator.add, model.fixed_work(step), model.row_work(step, rows, tiles)))


def _message(model: CostModel, layer: int) -> Work:
    return model.message_work(layer, model.tiling.local_samples, len(list(model.tiling.tiles())))


def _dot(rates: Work, work: Work) -> float:
    return float(sum(map(operator.mul, rates, work)))


def _fit(pairs: Sequence[tuple[Work, float]]) -> Work:
    """Seconds of each count, none negative, with the least sum of squared relative errors."""
    if not pairs:
        return Work()
    counts = torch.tensor([work for work, _ in pairs], dtype=torch.float64)
    relative = counts / torch.tensor([seconds for _, seconds in pairs], dtype=torch.float64)[:, None]
    scale = relative.norm(dim=0).clamp(min=1e-300)
    x = _non_negative(relative / scale, torch.ones(len(pairs), dtype=torch.float64))
    return Work(*(x / scale).tolist())


def _non_negative(A: Tensor, b: Tensor) -> Tensor:
    """argmin |A x - b| over x >= 0, coordinate by coordinate."""
    gram, right = (A.t() @ A).tolist(), (A.t() @ b).tolist()
    x = [0.0] * len(right)
    for _ in range(SWEEPS):
        for i, row in enumerate(gram):
            if row[i] > 0:
                slope = right[i] - sum(entry * value for entry, value in zip(row, x, strict=True))
                x[i] = max(0.0, x[i] + slope / row[i])
    return torch.tensor(x, dtype=A.dtype)
