"""The layers that exist, and the blocks of those that this stage owns: built, grown, restored.

A layer comes to be in one of three ways: by a forward pass at the start, as an identity layer when the network grows,
or from what was saved of it. A checkpoint holds exactly what `saved_state` returns, and `restore` takes it back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Protocol

import torch
from torch import Tensor

from pdadmm.block import Block, Closing, HiddenClosing, OutputClosing
from pdadmm.config import Config
from pdadmm.engine.placement import Placement
from pdadmm.engine.problem import Problem, method_weights
from pdadmm.engine.world import World
from pdadmm.math.activations import get_activations
from pdadmm.math.losses import get_loss
from pdadmm.math.solvers import get_solver
from pdadmm.math.state import LayerState
from pdadmm.math.subproblems import linear
from pdadmm.math.tiles import Tiling, Workspace, default_tile_rows
from pdadmm.network import Network, identity_layer, initial_layer
from pdadmm.storage import Storage

SAMPLE_VARIABLES = ("p", "z", "q", "a")
"""Variables with a row for each sample; they change in place."""

ROW_VARIABLES = (*SAMPLE_VARIABLES, "u", "message")
"""All that is saved with a row for each sample, by whatever method."""

WEIGHT_VARIABLES = ("W", "b")
"""Variables that every shard has alike; an iteration replaces them and changes none."""

Shapes = Mapping[str, tuple[int, ...]]
"""Of a layer's variables, by name; arrays of samples have as many rows as this process has samples."""


class SavedLayers(Protocol):
    """What a checkpoint holds of the layers, for this process's rows."""

    def layer(self, layer: int, shapes: Shapes, storage: Storage) -> dict[str, Tensor]:
        """These variables of a layer, all of them; arrays of samples are made by `storage`."""

    def extra(self, layer: int, name: str) -> Tensor | None:
        """Something that was saved with a layer only in some runs."""


class Layers:
    """`present` are the layers that exist, counted from 0, the output layer last; `blocks` those of this stage."""

    def __init__(
        self, config: Config, problem: Problem, hidden: Iterable[int], world: World, placement: Placement
    ) -> None:
        self._config, self._problem, self._world = config, problem, world
        self.placement = placement
        self.widths = (problem.num_features, *config.hidden, problem.num_outputs)
        self.output = len(config.hidden)
        self.present = sorted([*hidden, self.output])
        self.blocks: dict[int, Block] = {}
        self.fresh_outputs = 0
        self.activations, self.loss = get_activations(config.activation, self.output), get_loss(config)
        self._weights = method_weights(config)
        self._solver = get_solver(config, self._weights)
        self._output_solver = get_solver(config, self._weights.of_output())
        scratch = max(self._solver.scratch_width(n_in, n_out) for n_in, n_out in pairwise(self.widths))
        rows = default_tile_rows(max(self.widths))
        tiling = Tiling(problem.num_samples, rows, world.shard, world.num_shards, max(config.hidden))
        reduce = world.sum_over_shards if world.num_shards > 1 else None
        empty = problem.storage.empty
        self.workspace = Workspace(tiling, max(self.widths), scratch, problem.dtype, problem.device, reduce, empty)

    # --- who is where

    @property
    def own(self) -> list[int]:
        """The layers of this stage that exist."""
        return [layer for layer in self.present if layer in self.blocks]

    def before(self, layer: int) -> int | None:
        """The layer before, or None at the first."""
        position = self.present.index(layer)
        return self.present[position - 1] if position else None

    def after(self, layer: int) -> int | None:
        """The layer after, or None at the last."""
        position = self.present.index(layer) + 1
        return self.present[position] if position < len(self.present) else None

    def fan_in(self, layer: int) -> int:
        """The width of what a layer takes in."""
        before = self.before(layer)
        return self.widths[0] if before is None else self.widths[before + 1]

    # --- the first time

    def build(self, start: Network | None) -> None:
        """Weights, and auxiliaries by a forward pass: z = a, q = f(z), p_next = q, so that u = 0."""
        for position, layer in enumerate(self.present):
            if self.placement.owner(layer) != self._world.stage:
                continue
            W, b = self._draw(layer) if start is None else (start.weights[position], start.biases[position])
            state = LayerState(W, b, self._first_p(layer), self.array(len(b)), None, None, is_input=position == 0)
            self.fill_linear(state, state.z)
            state.a = self._copy(state.z) if self._solver.carries_a else None
            if layer < self.output:
                state.q = self.array(len(b))
                self._fill_activation(layer, state.z, state.q)
            elif start is None:
                self._fill_targets(state.z, state.z)
            self._add(layer, state)
            after = self.after(layer)
            if after is not None and self.placement.owner(after) != self._world.stage:
                assert state.q is not None
                self._world.send(state.q, self.placement.owner(after))

    def _first_p(self, layer: int) -> Tensor:
        """A layer's first p: the data, or a copy of the q before it."""
        before = self.before(layer)
        if before is None:
            return self._data()
        if before in self.blocks:
            q = self.blocks[before].state.q
            assert q is not None
            return self._copy(q)
        p = self.array(self.widths[before + 1])
        self._world.receive(p, self.placement.owner(before))
        return p

    def _draw(self, layer: int, stream: int | None = None) -> tuple[Tensor, Tensor]:
        problem, config = self._problem, self._config
        fan_in, width = self.fan_in(layer), self.widths[layer + 1]
        stream = layer if stream is None else stream
        return initial_layer(config.seed, stream, fan_in, width, config.init, problem.dtype, problem.device)

    # --- growing

    def insert(self, layer: int) -> None:
        """A new layer takes the p of the layer after it and passes f(p) on."""
        following = min(present for present in self.present if present > layer)
        here, there = self.placement.owner(layer), self.placement.owner(following)
        self.present = sorted([*self.present, layer])
        if self._world.stage == there:
            right = self.blocks[following].state
            p, right.p = right.p, self.array(right.p.shape[1])
            self._fill_activation(layer, p, right.p)
            if right.a is not None:
                self.fill_linear(right, right.a)
            if here != there:
                self._world.send(p, here)
        if self._world.stage == here:
            if here != there:
                p = self.array(self.widths[layer + 1])
                self._world.receive(p, there)
            W, b = identity_layer(p.shape[1], p)
            state = LayerState(W, b, p, self._copy(p), self.array(len(b)), None, is_input=False, is_inserted=True)
            assert state.q is not None
            self._fill_activation(layer, state.z, state.q)
            state.a = self._copy(p) if self._solver.carries_a else None
            self._add(layer, state)

    def renew_output(self) -> None:
        """The authors' growth: the output layer begins anew."""
        self.fresh_outputs += 1
        if self.output not in self.blocks:
            return
        output = self.blocks[self.output].state
        output.W, output.b = self._draw(self.output, self.output + self.fresh_outputs)
        a = output.z if output.a is None else output.a
        self.fill_linear(output, a)
        self._fill_targets(a, output.z)

    # --- saving and restoring

    def saved_state(self) -> dict[int, dict[str, Tensor]]:
        """The variables of this stage's layers, not copied; the first layer's p is the data and not among them."""
        saved = {}
        for layer in self.own:
            s = self.blocks[layer].state
            tensors = {name: getattr(s, name) for name in (*WEIGHT_VARIABLES, *SAMPLE_VARIABLES)}
            if s.is_input:
                del tensors["p"]
            saved[layer] = {name: tensor for name, tensor in tensors.items() if tensor is not None}
            saved[layer]["gram_scale"] = torch.tensor(s.gram_scale, dtype=torch.float64)
            if s.is_inserted:
                saved[layer]["inserted"] = torch.ones((), dtype=torch.float64)
        return saved

    def restore(self, saved: SavedLayers, fresh_outputs: int) -> None:
        """Take back what `saved_state` gave."""
        self.fresh_outputs = fresh_outputs
        rows = self.workspace.tiling.local_samples
        for layer in self.present:
            if self.placement.owner(layer) != self._world.stage:
                continue
            n_in, n_out, is_input = self.fan_in(layer), self.widths[layer + 1], self.before(layer) is None
            shapes: dict[str, tuple[int, ...]] = {"W": (n_out, n_in), "b": (n_out,), "z": (rows, n_out)}
            shapes |= {} if is_input else {"p": (rows, n_in)}
            shapes |= {} if layer == self.output else {"q": (rows, n_out)}
            shapes |= {"a": (rows, n_out)} if self._solver.carries_a else {}
            found = saved.layer(layer, {**shapes, "gram_scale": ()}, self._problem.storage)
            state = LayerState(
                found["W"],
                found["b"],
                self._data() if is_input else found["p"],
                found["z"],
                found.get("q"),
                found.get("a"),
                is_input=is_input,
                is_inserted=saved.extra(layer, "inserted") is not None,
                gram_scale=float(found["gram_scale"]),
            )
            self._add(layer, state)

    # --- small parts

    def _data(self) -> Tensor:
        assert self._problem.train.x is not None
        return self._problem.train.x

    def _add(self, layer: int, state: LayerState) -> None:
        if layer < self.output:
            closing: Closing = HiddenClosing(self.activations[layer], self._weights)
            self.blocks[layer] = Block(state, self._solver, closing, self._weights, self.workspace)
            return
        y, weight, weights = self._problem.train.y, self._problem.sample_weight, self._weights.of_output()
        assert y is not None
        assert weight is not None
        closing = OutputClosing(self.loss, y, weight, weights)
        self.blocks[layer] = Block(state, self._output_solver, closing, weights, self.workspace)

    def fill_linear(self, s: LayerState, out: Tensor) -> None:
        """a = p Wᵀ + b of all samples."""
        for rows in self.workspace.tiling.tiles():
            linear(s.p[rows], s.W, s.b, out[rows])

    def _fill_activation(self, layer: int, z: Tensor, out: Tensor) -> None:
        for rows in self.workspace.tiling.tiles():
            self.activations[layer].forward(z[rows], out[rows])

    def _fill_targets(self, a: Tensor, out: Tensor) -> None:
        """A first z of the output layer."""
        y = self._problem.train.y
        assert y is not None
        for rows in self.workspace.tiling.tiles():
            out[rows] = self.loss.initial(a[rows], y[rows])

    def _copy(self, array: Tensor) -> Tensor:
        return self.array(array.shape[1]).copy_(array)

    def array(self, width: int) -> Tensor:
        """An empty array of all samples."""
        problem, rows = self._problem, self.workspace.tiling.local_samples
        return problem.storage.empty(rows, width, dtype=problem.dtype, device=problem.device)

    def new(self, *shape: int) -> Tensor:
        """An empty tensor of the run's type, where the run computes."""
        return torch.empty(*shape, dtype=self._problem.dtype, device=self._problem.device)
