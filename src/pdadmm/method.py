"""What every training method is built on: the problem, or a checkpoint of this or another method.

`pdadmm.session` has the paper's method and `pdadmm.rivals` the others, with the same members. One begins from weights,
which are drawn or given, or goes on from a checkpoint that it wrote itself. A method that is given the weights of
another one's checkpoint takes the run over: a hand-over.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from pdadmm.checkpoint.restore import SavedRun
from pdadmm.config import Config
from pdadmm.engine.placement import Placement
from pdadmm.engine.problem import Problem
from pdadmm.engine.world import World
from pdadmm.math.activations import Activations
from pdadmm.network import Network
from pdadmm.observer import Observer


@dataclass(frozen=True)
class Ground:
    """All that a method is built on; `config` is resolved."""

    config: Config
    problem: Problem
    num_test: int
    activations: Activations
    placement: Placement
    world: World
    observer: Observer


def saved_network(ground: Ground, saved: SavedRun) -> Network:
    """The weights in a checkpoint, of the layers that existed."""
    layers, problem = saved.manifest.progress.layers, ground.problem
    hidden = (ground.config.hidden[layer] for layer in layers[:-1])
    widths = (problem.num_features, *hidden, problem.num_outputs)
    found = [
        saved.layer(layer, {"W": (n_out, n_in), "b": (n_out,)}, problem.storage)
        for layer, (n_in, n_out) in zip(layers, pairwise(widths), strict=True)
    ]
    activations = Activations(ground.activations[layer] for layer in layers[:-1])
    return Network([part["W"] for part in found], [part["b"] for part in found], activations)
