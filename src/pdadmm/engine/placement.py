"""Which layers go to which worker: contiguous runs, balanced by their operations or given by hand."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from pdadmm.errors import UserError


@dataclass(frozen=True)
class Placement:
    """The layers (counted from 0, the output layer last) of each stage."""

    stages: tuple[tuple[int, ...], ...]

    def owner(self, layer: int) -> int:
        """The stage that holds a layer."""
        return next(stage for stage, layers in enumerate(self.stages) if layer in layers)

    def present(self, layers: Sequence[int]) -> list[list[int]]:
        """The layers of each stage that exist, where a network is still growing."""
        return [[layer for layer in stage if layer in layers] for stage in self.stages]

    def __str__(self) -> str:
        return ",".join(str(len(stage)) for stage in self.stages)


def from_counts(counts: Sequence[int]) -> Placement:
    """The first counts[0] layers on the first worker, and so on."""
    ends = list(itertools.accumulate(counts, initial=0))
    return Placement(tuple(tuple(range(start, end)) for start, end in itertools.pairwise(ends)))


def parse_placement(text: str, num_layers: int, num_workers: int) -> Placement:
    """`5,5`: how many layers each worker gets, the output layer counted."""
    try:
        counts = [int(part) for part in text.split(",")]
    except ValueError:
        raise UserError(f"placement must be numbers of layers such as 5,5; got {text!r}") from None
    if len(counts) != num_workers or sum(counts) != num_layers or min(counts) < 1:
        raise UserError(
            f"placement must give each of {num_workers} workers at least one of {num_layers} layers; got {text!r}, "
            f"which gives {sum(counts)} layers to {len(counts)} workers"
        )
    return from_counts(counts)


def balance(costs: Sequence[float], num_workers: int) -> Placement:
    """The contiguous placement whose most expensive stage is cheapest.

    Among those, later stages are cut as early as possible, so that the result is unique. least[k][i] is the least
    possible cost of the dearest of k stages that hold the first i layers.
    """
    count = len(costs)
    if num_workers > count:
        raise UserError(f"workers must not be more than the layers, which are {count}; got {num_workers}")
    total = list(itertools.accumulate(costs, initial=0.0))
    least = [[0.0] + [float("inf")] * count]
    cuts: list[list[int]] = []
    for _ in range(num_workers):
        previous, row, cut = least[-1], [float("inf")] * (count + 1), [0] * (count + 1)
        for end in range(1, count + 1):
            for start in range(end):
                dearest = max(previous[start], total[end] - total[start])
                if dearest < row[end]:
                    row[end], cut[end] = dearest, start
        least.append(row)
        cuts.append(cut)
    counts, end = [], count
    for cut in reversed(cuts):
        counts.append(end - cut[end])
        end = cut[end]
    return from_counts(counts[::-1])
