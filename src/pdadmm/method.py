"""What a training method is to the trainer: something that begins on a problem, iterates, is scored and is saved.

`pdadmm.session` has the paper's method and `pdadmm.rivals` the others. One begins from weights, which are drawn or
given, or goes on from a checkpoint that it wrote itself. A method that is given the weights of another one's checkpoint
takes the run over: a hand-over.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, Protocol, Self

from torch import Tensor

from pdadmm.checkpoint.manifest import Progress
from pdadmm.checkpoint.restore import SavedRun
from pdadmm.config import Config
from pdadmm.engine.core import Usage
from pdadmm.engine.placement import Placement
from pdadmm.engine.problem import Problem
from pdadmm.engine.world import World
from pdadmm.history import Row
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


class Method(Protocol):
    """A method under way in one process."""

    begins_anew: ClassVar[str]
    """What it does not take over from another method, as a clause for the user."""

    config: Config
    epoch: int
    """The last epoch that was run."""
    converged: bool

    @classmethod
    def begin(cls, ground: Ground, start: Network | None, after: int) -> Self:
        """At the end of epoch `after`, with the weights of `start`, or at 0 with weights that are drawn."""

    @classmethod
    def go_on(cls, ground: Ground, saved: SavedRun, changed: bool) -> Self:
        """From what `saved_state` and `progress` gave; `changed` says whether options were."""

    def iterate(self, epoch: int) -> Row:
        """Run an epoch; the row has no scores yet, and its `seconds` are those of the training work alone."""

    def add_evaluations(self, row: Row, last: bool) -> None:
        """Add the scores to a row, where they are due."""

    def progress(self) -> Progress:
        """All that a checkpoint must hold besides the layers."""

    def saved_state(self) -> dict[int, dict[str, Tensor]]:
        """All that this process must save of its layers, by layer and name."""

    @property
    def rows(self) -> slice:
        """The samples of this process among all."""

    def network(self) -> Network:
        """The network as it is now."""

    @property
    def spent(self) -> tuple[float, float, float]:
        """The seconds that this process computed, waited and sent in the last epoch."""

    def usage(self) -> list[Usage]:
        """How the processes spent their epochs."""


def saved_network(ground: Ground, saved: SavedRun) -> Network:
    """The weights in a checkpoint, of the layers that existed."""
    layers, problem = saved.manifest.progress.layers, ground.problem
    hidden = (ground.config.hidden[layer] for layer in layers[:-1])
    widths = (problem.num_features, *hidden, problem.num_outputs)
    found = [
        saved.layer(layer, {"W": (n_out, n_in), "b": (n_out,)}, problem.storage)
        for layer, (n_in, n_out) in zip(layers, pairwise(widths), strict=True)
    ]
    activations = ground.activations.among(layers[:-1])
    return Network([part["W"] for part in found], [part["b"] for part in found], activations)
