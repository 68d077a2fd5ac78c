"""The paper's figure of speedup by layers: 11 to 19 hidden layers of 2,400."""

from __future__ import annotations

from pdadmm.experiments.settings import Settings
from pdadmm.experiments.speedup import Speedup, networks

NAME, TITLE = "speedup-layers", "Speedup by the number of layers"
LAYERS = tuple(range(11, 20))
NEURONS = 2400
TIMED = (11, 19)


def make(settings: Settings) -> Speedup:
    """The experiment."""
    sizes = {layers: (layers, NEURONS) for layers in LAYERS}
    return Speedup(settings, NAME, TITLE, networks(settings, NAME, LAYERS, sizes), TIMED)
