"""How long an iteration will take: the schedules, played with the cost model."""

from __future__ import annotations

from pdadmm.engine.cost import Timing
from pdadmm.engine.placement import Placement
from pdadmm.engine.schedule import make_schedules
from pdadmm.engine.timeline import Link, Timeline, play


def estimate(timing: Timing, placement: Placement, link: Link) -> Timeline:
    """The timeline of a few iterations on workers of this speed, joined by such links."""
    return play(make_schedules(placement.stages), timing.costs(link))
