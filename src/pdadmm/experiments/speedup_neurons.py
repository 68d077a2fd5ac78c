"""The paper's Table I: speedup by the number of neurons, 19 hidden layers of 1,500 to 2,400."""

from __future__ import annotations

from pdadmm.experiments.settings import Settings
from pdadmm.experiments.speedup import Speedup, networks

NAME, TITLE = "speedup-neurons", "Speedup by the number of neurons (Table I)"
NEURONS = tuple(range(1500, 2401, 100))
LAYERS = 19
TIMED = (1500, 2400)


def make(settings: Settings) -> Speedup:
    """The experiment."""
    sizes = {neurons: (LAYERS, neurons) for neurons in NEURONS}
    return Speedup(settings, NAME, TITLE, networks(settings, NAME, NEURONS, sizes), TIMED)
