"""A link between two processes, measured with the engine's own messages; and how much two at work slow each other."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass

import torch

from pdadmm.calibration.blocks import measure_block
from pdadmm.calibration.fit import Sample
from pdadmm.engine.timeline import Link
from pdadmm.engine.world import World

CHUNKS = 16
WIDTH = 256
TRIES = 30
SECONDS = 0.5  # that the bytes of a trial should be under way
FIRST_ROWS, MOST_ROWS = 2048, 65536  # of WIDTH float32: 2 and 64 MiB
REFERENCE = (Sample("hidden", 500, 500, 4096), Sample("hidden", 200, 200, 4096))


@dataclass(frozen=True)
class _Trial:
    """A message that went to the other side: until it was acknowledged, and this side's processor time."""

    seconds: float
    cpu: float


def measure_link(world: World) -> Link:
    """Latency, bandwidth and processor time of the link between stages 0 and 1; both must call it."""
    latency = _latency(world)
    small = statistics.median(_send(world, CHUNKS).cpu for _ in range(TRIES)) / CHUNKS
    trial = _send(world, FIRST_ROWS)
    wished = _agreed(world, FIRST_ROWS * SECONDS / max(trial.seconds, 1e-6))
    rows = min(MOST_ROWS, max(FIRST_ROWS, int(wished)))
    size = 4 * WIDTH * rows
    trials = [_send(world, rows) for _ in range(5)]
    seconds = _agreed(world, statistics.median(trial.seconds for trial in trials))
    cpu = max(0.0, statistics.median(trial.cpu for trial in trials) - CHUNKS * small)
    sending, receiving = _both(world, cpu / size)
    of_sender, of_receiver = _both(world, small)
    return Link(size / max(seconds - latency, 1e-9), latency, sending, receiving, of_sender, of_receiver)


def measure_slowdown(world: World, threads: int | None) -> float:
    """Seconds of layers while both processes are at it, to those of one alone."""

    def together() -> float:
        return sum(measure_block(*sample.problem("exact", threads), 5).seconds for sample in REFERENCE)

    alone = together() if world.stage == 0 else 0.0
    alone = _agreed(world, alone)
    world.sum_over_stages(torch.zeros(1, dtype=torch.float64))
    both = _agreed(world, together())
    return max(1.0, both / alone)


def _latency(world: World) -> float:
    """Half of what a number takes there and back."""
    number, times = torch.zeros(1), []
    for _ in range(3 * TRIES):
        began = time.perf_counter()
        if world.stage == 0:
            world.send(number, 1)
            world.receive(number, 1)
        else:
            world.receive(number, 0)
            world.send(number, 0)
        times.append((time.perf_counter() - began) / 2)
    return _agreed(world, statistics.median(times[TRIES:]))


def _send(world: World, rows: int) -> _Trial:
    """Stage 0 sends so many rows in chunks, as the engine does, and stage 1 says when it has all."""
    array, done = torch.zeros(rows, WIDTH if rows > CHUNKS else 1), torch.zeros(1)
    bounds = [(rows * chunk // CHUNKS, rows * (chunk + 1) // CHUNKS) for chunk in range(CHUNKS)]
    other = 1 - world.stage
    if world.stage == 0:
        outbox = world.outbox("p", other, array, bounds)
    else:
        inbox = world.inbox("p", other, array, bounds)
    world.sum_over_stages(torch.zeros(1, dtype=torch.float64))
    began, cpu = time.perf_counter(), time.process_time()
    if world.stage == 0:
        for chunk in range(CHUNKS):
            outbox.send(chunk)
        world.receive(done, other)
        outbox.finish()
    else:
        inbox.post()
        inbox.finish()
        world.send(done, other)
    return _Trial(time.perf_counter() - began, time.process_time() - cpu)


def _agreed(world: World, value: float) -> float:
    """Stage 0's value, on both."""
    return float(world.sum_over_stages(torch.tensor([value if world.stage == 0 else 0.0], dtype=torch.float64))[0])


def _both(world: World, value: float) -> tuple[float, float]:
    """Stage 0's and stage 1's value, on both."""
    values = torch.zeros(2, dtype=torch.float64)
    values[world.stage] = value
    first, second = world.sum_over_stages(values).tolist()
    return first, second
