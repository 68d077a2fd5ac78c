"""What the rivals share: all layers in one process from the start, scores by a forward pass, a plain row."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from itertools import pairwise
from typing import ClassVar, Self

from torch import Tensor

from pdadmm.checkpoint.manifest import Progress
from pdadmm.checkpoint.restore import SavedRun
from pdadmm.engine.core import Usage
from pdadmm.engine.problem import Samples
from pdadmm.engine.score import Scorer
from pdadmm.errors import DivergenceError
from pdadmm.history import Row
from pdadmm.math.losses import get_loss
from pdadmm.method import Ground, saved_network
from pdadmm.network import Network, initial_layer


class Rival(ABC):
    """A method that trains a whole network in one process, with the members of `pdadmm.session.Session`.

    `weights` and `biases` are the network's own, which an epoch may change in place or replace.
    """

    begins_anew: ClassVar[str]
    divergence_advice: ClassVar[str]
    converged = False

    def __init__(self, ground: Ground, network: Network, epoch: int) -> None:
        self.config, self.problem, self.epoch, self._num_test = ground.config, ground.problem, epoch, ground.num_test
        self.activations, self.loss = ground.activations, get_loss(ground.config)
        self.weights, self.biases = list(network.weights), list(network.biases)
        self.x, self.y = _arrays(ground.problem.train)
        assert ground.problem.sample_weight is not None
        self.sample_weight = ground.problem.sample_weight
        self._objective = math.nan
        self._seconds, self._epochs = 0.0, 0
        self.spent = (0.0, 0.0, 0.0)

    @classmethod
    def begin(cls, ground: Ground, start: Network | None, after: int) -> Self:
        """At the end of epoch `after`, with the weights of `start`, or with the same draw as any other method."""
        session = cls(ground, start or _drawn(ground), after)
        session.build(start is None)
        return session

    @classmethod
    def go_on(cls, ground: Ground, saved: SavedRun, changed: bool) -> Self:
        """From what `saved_state` gave."""
        session = cls(ground, saved_network(ground, saved), saved.manifest.epoch)
        session.build(False)
        session.restore(saved)
        session._objective = saved.manifest.progress.objective
        return session

    @abstractmethod
    def build(self, drawn: bool) -> None:
        """Make what the method keeps beside the weights, which are `drawn` or another method's."""

    @abstractmethod
    def restore(self, saved: SavedRun) -> None:
        """Put what was saved in the place of what `build` made."""

    @abstractmethod
    def run_epoch(self, epoch: int) -> Row:
        """The training work of an epoch; returns `objective` and whatever else the method measures on its way."""

    @abstractmethod
    def layer_state(self, layer: int) -> dict[str, Tensor]:
        """What to save of a layer; the run may go on while it is written, except in arrays of samples."""

    def iterate(self, epoch: int) -> Row:
        """Run an epoch and make its row."""
        began = time.perf_counter()
        measured = self.run_epoch(epoch)
        seconds = time.perf_counter() - began
        self._check_finite(epoch, measured["objective"])
        self.epoch, self._objective = epoch, measured["objective"]
        self._seconds, self._epochs = self._seconds + seconds, self._epochs + 1
        self.spent = (seconds, 0.0, 0.0)
        depth, method = len(self.config.hidden), self.config.method
        return {"epoch": epoch, "seconds": seconds, **measured, "layers": depth, "method": method}

    def _check_finite(self, epoch: int, objective: float) -> None:
        named = [*(("W", W) for W in self.weights), *(("b", b) for b in self.biases)]
        layers = len(self.weights)
        found = [f"{name} of layer {i % layers + 1}" for i, (name, v) in enumerate(named) if not v.isfinite().all()]
        if found or not math.isfinite(objective):
            what = found[0] if found else "the objective"
            raise DivergenceError(f"{what} became NaN or infinite in epoch {epoch}; {self.divergence_advice}")

    def add_evaluations(self, row: Row, last: bool) -> None:
        """Accuracies or R², where they are due."""
        if last or row["epoch"] % self.config.evaluate_every == 0:
            metric = "r2" if self.loss.real_valued else "accuracy"
            row[f"train_{metric}"] = self._score(self.problem.train, self.problem.num_samples)
            if self.problem.test is not None:
                row[f"test_{metric}"] = self._score(self.problem.test, self._num_test)

    def _score(self, samples: Samples, num_samples: int) -> float:
        x, y = _arrays(samples)
        scorer = Scorer(self.loss.real_valued, self.problem.num_outputs)
        scorer.add(self.network().forward(x), y)
        return scorer.result(scorer.sums, num_samples)

    def progress(self) -> Progress:
        """The network is whole, and there is no certificate."""
        return Progress(self._objective, None, list(range(len(self.weights))), [], 0, self.converged)

    def saved_state(self) -> dict[int, dict[str, Tensor]]:
        """By layer."""
        return {layer: self.layer_state(layer) for layer in range(len(self.weights))}

    @property
    def rows(self) -> slice:
        """All samples."""
        return slice(0, self.problem.num_samples)

    def network(self) -> Network:
        """The weights as they are now, not copied."""
        weights, biases = [W.detach() for W in self.weights], [b.detach() for b in self.biases]
        return Network(weights, biases, self.activations)

    def usage(self) -> list[Usage]:
        """One process that never waits."""
        layers = list(range(1, len(self.weights) + 1))
        return [Usage(1, 1, layers, self._seconds, 0.0, 0.0, 0.0, self._epochs)]


def _arrays(samples: Samples) -> tuple[Tensor, Tensor]:
    """Inputs and targets, which a process that has all layers has both."""
    assert samples.x is not None
    assert samples.y is not None
    return samples.x, samples.y


def _drawn(ground: Ground) -> Network:
    """The first weights that every method has."""
    config, problem = ground.config, ground.problem
    widths = (problem.num_features, *config.hidden, problem.num_outputs)
    layers = [
        initial_layer(config.seed, layer, fan_in, width, config.init, problem.dtype, problem.device)
        for layer, (fan_in, width) in enumerate(pairwise(widths))
    ]
    return Network([W for W, _ in layers], [b for _, b in layers], ground.activations)
