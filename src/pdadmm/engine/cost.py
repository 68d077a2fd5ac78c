"""What the steps of an iteration cost: one model for placement, for `pdadmm plan` and for the dry run.

Products and factorisations are counted in flops, element-wise work in bytes moved. A `Rate` turns both into seconds.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch

from pdadmm.engine.schedule import Step

# Array passes of the element-wise work of a phase, each a read or a write of one array of the layer's output.
_PASSES = {"p": 8, "W": 0, "z": 26}
_RIVALS_PASSES = {"gradient": {"p": 4, "W": 0, "z": 4}, "dladmm": {"p": 24, "W": 0, "z": 50}}
_ITEM = 4


@dataclass(frozen=True)
class Work:
    """Flops of products and factorisations, and bytes of element-wise work."""

    flops: float
    bytes: float


@dataclass(frozen=True)
class Rate:
    """How fast a worker is."""

    flops_per_second: float
    bytes_per_second: float

    def seconds(self, work: Work) -> float:
        """Products and element-wise work do not overlap within a worker."""
        return work.flops / self.flops_per_second + work.bytes / self.bytes_per_second


@dataclass(frozen=True)
class CostModel:
    """The work of each step of a network, for `samples` rows a worker."""

    solver: str  # or what a rival costs: "gradient", "dladmm"
    samples: int
    widths: tuple[int, ...]  # features, hidden widths, outputs

    def work(self, step: Step) -> Work:
        """The work of one step; layers count from 0."""
        n_in, n_out = self.widths[step.layer], self.widths[step.layer + 1]
        is_input = step.layer == 0
        product, square = 2.0 * self.samples * n_in * n_out, 2.0 * self.samples * n_in * n_in
        flops = {
            "exact": {
                "p": product if is_input else 2 * product + 2 * square + 3.0 * n_in**3,
                "W": 0.7 * n_in**3 + 4.0 * n_in**2 * n_out,
                "z": product,
            },
            "linearized": {"p": product if is_input else 3 * product, "W": product, "z": 0.0},
            "gradient": {"p": 0.0 if is_input else product, "W": product, "z": product},
            "dladmm": {"p": 0.0 if is_input else 4 * product, "W": 4 * product, "z": 0.0},
        }[{"backtracking": "linearized"}.get(self.solver, self.solver)][step.action]
        width = n_in if step.action == "p" else n_out
        known = _RIVALS_PASSES.get(self.solver, _PASSES)
        passes = 2 if is_input and step.action == "p" else known[step.action]
        return Work(flops, float(_ITEM * self.samples * width * passes))

    def layer(self, layer: int) -> Work:
        """The work of a layer's whole iteration."""
        parts = [self.work(Step(action, layer)) for action in ("p", "W", "z")]
        return Work(sum(part.flops for part in parts), sum(part.bytes for part in parts))

    def message_bytes(self, layer: int) -> int:
        """Bytes of m of this layer, or of the next one's p."""
        return _ITEM * self.samples * self.widths[layer + 1]


TYPICAL = Rate(flops_per_second=8e10, bytes_per_second=2e10)
"""A core of a present server; placement needs only the proportion."""


def measure_rate(width: int, rows: int = 1024, seconds: float = 0.2) -> Rate:
    """This machine's rate with the present threads, at about this width."""
    a, b = torch.randn(rows, width), torch.randn(width, width)
    out = torch.empty(rows, width)
    flops = _repeat(lambda: torch.mm(a, b, out=out), seconds) * 2.0 * rows * width * width
    moved = _repeat(lambda: torch.add(a, out, out=out), seconds / 4) * 3.0 * a.numel() * a.element_size()
    return Rate(flops, moved)


def _repeat(work: object, seconds: float) -> float:
    """How often a second `work` can be done."""
    assert callable(work)
    work()
    began, count = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        work()
        count += 1
    return count / (time.perf_counter() - began)


def total_work(model: CostModel) -> Work:
    """The work of an iteration over all layers."""
    layers = [model.layer(layer) for layer, _ in enumerate(pairwise(model.widths))]
    return Work(sum(work.flops for work in layers), sum(work.bytes for work in layers))


def layer_seconds(model: CostModel, rate: Rate) -> Sequence[float]:
    """Seconds of each layer's iteration."""
    return [rate.seconds(model.layer(layer)) for layer in range(len(model.widths) - 1)]
