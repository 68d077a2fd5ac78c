"""How long an iteration will take: the schedules, played with the cost model."""

from __future__ import annotations

from pdadmm.engine.cost import CostModel, Rate
from pdadmm.engine.placement import Placement
from pdadmm.engine.schedule import Timeline, dry_run, make_schedules

ITERATIONS = 3


def estimate(model: CostModel, placement: Placement, rate: Rate, link_bytes_per_second: float) -> Timeline:
    """The timeline of a few iterations on workers of this rate, joined by links of this bandwidth."""
    return dry_run(
        make_schedules(placement.stages),
        lambda step: rate.seconds(model.work(step)),
        lambda message: (
            model.message_bytes(message.layer if message.kind == "m" else message.layer - 1) / link_bytes_per_second
        ),
        ITERATIONS,
    )
