"""What the network under training is worth: samples through its layers, its output layer fitted, its score.

Nothing here changes an iterate. What is found holds until the next iteration, which tells it to `forget`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import torch
from torch import Tensor

from pdadmm.config import Config
from pdadmm.engine.layers import Layers
from pdadmm.engine.output import fit_output
from pdadmm.engine.problem import Problem, Samples
from pdadmm.engine.score import Scorer
from pdadmm.engine.world import World
from pdadmm.math.subproblems import linear
from pdadmm.math.tiles import Tiling
from pdadmm.network import FORWARD_ROWS


class Evaluation:
    """The network of all stages, as one of them sees it."""

    def __init__(self, config: Config, problem: Problem, layers: Layers, world: World) -> None:
        self._problem, self._layers, self._world = problem, layers, world
        self._width = max(config.hidden)
        self._h: Tensor | None = None  # what the output layer takes in of the training samples, where it is
        self._fitted: tuple[Tensor, ...] | None = None  # its W and b; nothing on other stages, None before a fit

    def forget(self) -> None:
        """The weights have changed."""
        self._fitted = None

    def fit_output(self, ridge: float) -> float:
        """Fit the output layer that `score` and `output_layer` take from now on (`pdadmm.engine.output`).

        Returns the seconds of it, but for the forward pass, which `score` would make in any case and now need not.
        """
        if self._fitted is not None:
            return 0.0
        seconds, problem, layers = torch.zeros(1, dtype=torch.float64), self._problem, self._layers
        output = layers.blocks.get(layers.output)
        if output is not None and self._h is None:
            self._h = layers.array(output.state.W.shape[1])
        for rows, h in self._forward(problem.train, problem.num_samples):
            assert self._h is not None
            self._h[rows] = h
        self._fitted = ()
        if output is not None:
            assert self._h is not None
            began, (W, b) = time.perf_counter(), (output.state.W, output.state.b)
            self._fitted = fit_output(layers.loss, problem, W, b, self._h, ridge, layers.workspace)
            seconds += time.perf_counter() - began
        return float(self._world.sum_over_stages(self._world.sum_over_shards(seconds))) / self._world.num_shards

    def score(self, samples: Samples, num_samples: int) -> float:
        """Accuracy or R² of the network, evaluated as a pipeline through the stages."""
        scorer = Scorer(self._layers.loss.real_valued, self._problem.num_outputs)
        for rows, h in self._forward(samples, num_samples):
            assert samples.y is not None
            W, b = self.output_layer()
            scorer.add(linear(h, W, b, h.new_empty(len(h), len(b))), samples.y[rows])
        return scorer.result(self._world.sum_over_stages(self._world.sum_over_shards(scorer.sums)), num_samples)

    def output_layer(self) -> tuple[Tensor, Tensor]:
        """W and b of the output layer that is evaluated, where it is on this stage."""
        if self._fitted:
            W, b = self._fitted
            return W, b
        state = self._layers.blocks[self._layers.output].state
        return state.W, state.b

    def _forward(self, samples: Samples, num_samples: int) -> Iterator[tuple[slice, Tensor]]:
        """Samples through the hidden layers, stage by stage; where the output layer is, what it takes in is given.

        Of the training samples this is what `fit_output` has kept, where it has been.
        """
        tiling = Tiling(num_samples, FORWARD_ROWS, self._world.shard, self._world.num_shards, self._width)
        is_kept = self._fitted is not None and samples is self._problem.train
        for rows in tiling.tiles() if self._layers.own else ():
            if not is_kept:
                h = self._forward_tile(samples, rows)
                if self._layers.output in self._layers.blocks:
                    yield rows, h
            elif self._h is not None:
                yield rows, self._h[rows]

    def _forward_tile(self, samples: Samples, rows: slice) -> Tensor:
        """These rows through this stage's hidden layers, from the stage before and to the stage after."""
        layers, own = self._layers, self._layers.own
        before, after = layers.before(own[0]), layers.after(own[-1])
        if before is None:
            assert samples.x is not None
            h = samples.x[rows]
        else:
            h = layers.new(rows.stop - rows.start, layers.widths[before + 1])
            self._world.receive(h, layers.placement.owner(before))
        for layer in (layer for layer in own if layer != layers.output):
            s = layers.blocks[layer].state
            h = linear(h, s.W, s.b, h.new_empty(len(h), len(s.b)))
            h = layers.activations[layer].forward(h, h)
        if after is not None:
            self._world.send(h, layers.placement.owner(after))
        return h
