"""All layers in one process.

An iteration visits the layers from right to left and finishes each before the next:

    layer      L: p W z    L-1: p W z q    …    1: W z q

Layer l's p-phase needs its left neighbour's old z and q (not yet visited), and its q needs its right neighbour's new
p (just visited); so this order is the same iteration as all layers at once, and one set of sums and scratch arrays
serves all of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from pdadmm.block import Block, Closing, HiddenClosing, OutputClosing
from pdadmm.config import Config
from pdadmm.errors import DivergenceError
from pdadmm.math.activations import get_activation
from pdadmm.math.lagrangian import LayerReport
from pdadmm.math.losses import get_loss
from pdadmm.math.solvers import get_solver
from pdadmm.math.state import LayerState, TileSource
from pdadmm.math.subproblems import Weights, linear
from pdadmm.math.tiles import Tiling, Workspace, default_tile_rows
from pdadmm.network import Network, identity_layer, initial_layer


@dataclass(frozen=True)
class Problem:
    """What is to be learned: inputs, targets (class indices or real values), a weight per sample."""

    x: Tensor
    y: Tensor
    sample_weight: Tensor
    num_outputs: int


def method_weights(config: Config) -> Weights:
    """The weights of L_rho in a resolved configuration."""
    assert config.nu is not None
    assert config.rho is not None
    assert config.z_prox is not None
    return Weights(config.nu, config.rho, config.z_prox, config.damping, config.l2)


class SerialEngine:
    """The layers of a network and the phases of an iteration over them.

    `config` must be resolved. `layers` are the indices of the hidden layers that exist from the start (all of them
    unless the network grows); `start` gives their weights, if they are not to be drawn.
    """

    def __init__(self, config: Config, problem: Problem, layers: Iterable[int], start: Network | None = None) -> None:
        self._config = config
        self._problem = problem
        self._weights = method_weights(config)
        self._activation = get_activation(config.activation)
        self._loss = get_loss(config)
        self._solver = get_solver(config, self._weights)
        widths = (problem.x.shape[1], *config.hidden, problem.num_outputs)
        scratch = max(self._solver.scratch_width(a, b) for a, b in pairwise(widths))
        rows = config.tile_rows or default_tile_rows(max(widths))
        tiling = Tiling(len(problem.x), rows)
        self._ws = Workspace(tiling, max(widths), scratch, problem.x.dtype, problem.x.device)
        self._layers = list(layers)
        self._fresh_outputs = 0
        self.blocks: list[Block] = []
        self._build(start)

    def iterate(self, ridge: float) -> list[LayerReport]:
        """One iteration; the reports are in the order of the layers."""
        reports = []
        for index in reversed(range(len(self.blocks))):
            block = self.blocks[index]
            try:
                block.p_phase(self._message_to(index))
                block.W_phase(ridge)
            except torch.linalg.LinAlgError:  # type: ignore[attr-defined]
                # A Cholesky factorisation of ours fails only where NaN, infinity or overflow came in.
                raise DivergenceError(f"p or W of layer {index + 1} became NaN, infinite or too large") from None
            reports.append(block.z_phase(self._p_after(index), ridge))
        return reports[::-1]

    def begin_stage(self, ridge: float) -> list[LayerReport]:
        """Fix the units of damping and ridge, and measure L_rho where the stage begins."""
        for block in self.blocks:
            block.begin_stage()
        return [block.measure(self._p_after(i), ridge) for i, block in enumerate(self.blocks)]

    def stationarity(self, ridge: float) -> float:
        """The norm of all partial gradients of L_rho."""
        parts = (
            block.stationarity(self._message_to(i), self._p_after(i), ridge) for i, block in enumerate(self.blocks)
        )
        return float(sum(parts) ** 0.5)

    def network(self) -> Network:
        """The network as it stands; its tensors are replaced, not changed, by later iterations."""
        states = [block.state for block in self.blocks]
        return Network([s.W for s in states], [s.b for s in states], self._activation)

    def grow(self, layers: Iterable[int]) -> None:
        """Insert identity layers until the hidden layers are `layers`."""
        for layer in layers:
            if layer not in self._layers:
                self._insert(sum(1 for present in self._layers if present < layer))
                self._layers = sorted([*self._layers, layer])
        if self._config.grow_output == "fresh":
            self._renew_output()

    def _insert(self, position: int) -> None:
        """A new block at `position`, between two others: it takes its right neighbour's p and passes f(p) on."""
        right = self.blocks[position].state
        W, b = identity_layer(right.p.shape[1], right.b)
        state = LayerState(
            W, b, right.p, right.p.clone(), torch.empty_like(right.p), self._carried(right.p), is_input=False
        )
        assert state.q is not None
        for rows in self._ws.tiling.tiles():
            self._activation.forward(state.z[rows], state.q[rows])
        right.p = state.q.clone()
        if right.a is not None:
            self._fill_linear(right, right.a)
        self.blocks.insert(position, self._block(state, HiddenClosing(self._activation, self._weights)))

    def _renew_output(self) -> None:
        """The authors' growth: the output layer begins anew."""
        self._fresh_outputs += 1
        output = self.blocks[-1].state
        stream = len(self._config.hidden) + self._fresh_outputs
        output.W, output.b = self._draw(stream, output.p.shape[1], self._problem.num_outputs)
        a = output.z if output.a is None else output.a
        self._fill_linear(output, a)
        output.z = self._loss.initial(a, self._problem.y)

    def _build(self, start: Network | None) -> None:
        """Weights, and auxiliaries by a forward pass: z = a, q = f(z), p_next = q, so that u = 0."""
        p = self._problem.x
        hidden = HiddenClosing(self._activation, self._weights)
        for index, layer in enumerate(self._layers):
            W, b = (
                self._draw(layer, p.shape[1], self._config.hidden[layer])
                if start is None
                else (start.weights[index], start.biases[index])
            )
            state = self._state(W, b, p, is_input=index == 0)
            state.q = torch.empty_like(state.z)
            p = torch.empty_like(state.z)
            for rows in self._ws.tiling.tiles():
                self._activation.forward(state.z[rows], state.q[rows])
                p[rows] = state.q[rows]
            self.blocks.append(self._block(state, hidden))
        W, b = (
            self._draw(len(self._config.hidden), p.shape[1], self._problem.num_outputs)
            if start is None
            else (start.weights[-1], start.biases[-1])
        )
        state = self._state(W, b, p, is_input=not self._layers)
        if start is None:
            state.z = self._loss.initial(state.z, self._problem.y)
        y, weight = self._problem.y, self._problem.sample_weight
        self.blocks.append(self._block(state, OutputClosing(self._loss, y, weight, self._weights)))

    def _draw(self, stream: int, fan_in: int, width: int) -> tuple[Tensor, Tensor]:
        x = self._problem.x
        return initial_layer(self._config.seed, stream, fan_in, width, self._config.init, x.dtype, x.device)

    def _state(self, W: Tensor, b: Tensor, p: Tensor, is_input: bool) -> LayerState:
        """A layer at p with z = a = p Wᵀ + b."""
        state = LayerState(W, b, p, p.new_empty(len(p), len(b)), None, None, is_input)
        self._fill_linear(state, state.z)
        state.a = self._carried(state.z)
        return state

    def _carried(self, a: Tensor) -> Tensor | None:
        return a.clone() if self._solver.carries_a else None

    def _fill_linear(self, s: LayerState, out: Tensor) -> None:
        for rows in self._ws.tiling.tiles():
            linear(s.p[rows], s.W, s.b, out[rows])

    def _block(self, state: LayerState, closing: Closing) -> Block:
        return Block(state, self._solver, closing, self._weights, self._ws)

    def _message_to(self, index: int) -> TileSource | None:
        return self.blocks[index - 1].message if index > 0 else None

    def _p_after(self, index: int) -> TileSource | None:
        return self.blocks[index + 1].p_tile if index + 1 < len(self.blocks) else None
