"""Many simulations: how many workers are worth it, and where more of them stop helping."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from pdadmm.config import Config
from pdadmm.engine.timeline import Link
from pdadmm.plan import Shape
from pdadmm.simulate import Machine, Simulation, simulate

WORTH = 0.7
"""A worker is worth it while the efficiency of all is at least this."""
MOST_WORKERS = 1000
MOST_ROWS = 40  # of a table


def sweep_workers(
    config: Config, shape: Shape, machine: Machine | None = None, link: Link | None = None
) -> list[Simulation]:
    """From one worker to one a layer, each number balanced anew."""
    layers = len(config.hidden) + 1
    counts = sorted({round(1 + i * (layers - 1) / (MOST_ROWS - 1)) for i in range(MOST_ROWS)} | {1, layers})
    many = [dataclasses.replace(config, workers=count, placement=None) for count in counts if count <= layers]
    return [simulate(one, shape, machine, link) for one in many]


def sweep_shards(
    config: Config, shape: Shape, machine: Machine | None = None, link: Link | None = None
) -> list[Simulation]:
    """So many workers, in one shard, two, four, … up to a thousand workers in all."""
    most = min(shape.samples, max(1, MOST_WORKERS // config.workers))
    counts = sorted({1 << power for power in range(most.bit_length())} | {most})
    many = [dataclasses.replace(config, shards=count) for count in counts]
    return [simulate(one, shape, machine, link) for one in many]


SWEEPS = {"workers": sweep_workers, "shards": sweep_shards}


def sweep_row(one: Simulation, before: Simulation | None) -> dict[str, Any]:
    """A line of the table; `gain` is the speedup that each further worker brought."""
    more = one.processes - before.processes if before is not None else 1
    gain = (one.speedup - (before.speedup if before is not None else 0.0)) / more
    return {
        "workers": one.config.workers,
        "shards": one.config.shards,
        "processes": one.processes,
        "speedup": one.speedup,
        "gain": gain,
        "efficiency": one.efficiency,
        "epoch_seconds": one.epoch_seconds,
        "bottleneck": one.bottleneck()[0],
        "placement": str(one.placement),
    }


def recommended(swept: Sequence[Simulation]) -> dict[str, Any]:
    """The most workers that are worth it, and why no more."""
    worth = [one for one in swept if one.efficiency >= WORTH] or list(swept[:1])
    best = max(worth, key=lambda one: one.processes)
    more = [one for one in swept if one.processes > best.processes]
    why = "there is no more to divide"
    if more:
        following = min(more, key=lambda one: one.processes)
        why = (
            f"with {following.processes} the efficiency is {following.efficiency:.0%}, because "
            f"{following.bottleneck()[1]}"
        )
    fastest = max(swept, key=lambda one: one.speedup)
    return {
        "processes": best.processes,
        "workers": best.config.workers,
        "shards": best.config.shards,
        "placement": str(best.placement),
        "speedup": best.speedup,
        "efficiency": best.efficiency,
        "why_no_more": why,
        "fastest": {"processes": fastest.processes, "speedup": fastest.speedup},
    }
