"""The engine: the layers of one stage, and the schedule of an iteration carried out on them.

One process with all layers is a run of one stage; there is no other engine. What the other stages have is reached
through two boundaries: to the left p goes out and m comes in, to the right the other way round. Messages leave chunk by
chunk as soon as they are computed and are waited for chunk by chunk where they are needed, so they travel while other
samples and other layers are worked on.

In one stage an iteration visits the layers from right to left and finishes each before the next. Layer l's p-phase
needs its left neighbour's old z and q (not yet visited), and its q its right neighbour's new p (just visited); so this
is the same iteration as all layers at once, and one set of sums and scratch arrays serves all of them.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from pdadmm.block import Block, Closing, HiddenClosing, OutputClosing
from pdadmm.config import Config
from pdadmm.engine.codec import get_codec
from pdadmm.engine.placement import Placement, from_counts
from pdadmm.engine.problem import Problem, Samples, method_weights
from pdadmm.engine.schedule import Schedule, Step, make_schedules
from pdadmm.engine.score import Scorer
from pdadmm.engine.world import Inbox, LocalWorld, Outbox, World
from pdadmm.math.activations import get_activation
from pdadmm.math.lagrangian import LayerReport
from pdadmm.math.losses import get_loss
from pdadmm.math.solvers import get_solver
from pdadmm.math.state import LayerState, TileSource
from pdadmm.math.subproblems import linear
from pdadmm.math.tiles import Tiling, Workspace, default_tile_rows
from pdadmm.network import FORWARD_ROWS, Network, identity_layer, initial_layer

VARIABLES = ("p", "W", "b", "z", "q")
_REPORT_FIELDS = tuple(field.name for field in dataclasses.fields(LayerReport))


@dataclass
class Boundary:
    """The link to a neighbouring stage."""

    stage: int
    inbox: Inbox
    outbox: Outbox


@dataclass(frozen=True)
class Usage:
    """How one process spent its iterations."""

    stage: int
    shard: int
    layers: list[int]
    seconds: float
    wait_seconds: float
    send_seconds: float
    bytes_sent: float
    iterations: float

    @property
    def compute_seconds(self) -> float:
        """All the time that was neither waiting nor sending."""
        return self.seconds - self.wait_seconds - self.send_seconds

    @property
    def idle_share(self) -> float:
        """The share of the time spent waiting."""
        return self.wait_seconds / self.seconds if self.seconds else 0.0


class Engine:
    """The layers of one stage.

    `config` must be resolved. `layers` are the indices of the hidden layers that exist from the start (all of them
    unless the network grows); `start` gives their weights, if they are not to be drawn.
    """

    def __init__(
        self,
        config: Config,
        problem: Problem,
        layers: Iterable[int],
        start: Network | None = None,
        world: World | None = None,
        placement: Placement | None = None,
    ) -> None:
        self._config, self._problem = config, problem
        self._world: World = world or LocalWorld()
        self._widths = (problem.num_features, *config.hidden, problem.num_outputs)
        self._placement = placement or from_counts([len(self._widths) - 1])
        self._weights = method_weights(config)
        self._activation, self._loss = get_activation(config.activation), get_loss(config)
        self._solver = get_solver(config, self._weights)
        self._output = len(config.hidden)
        self._codec = get_codec(config.messages, seed=config.seed * 1000 + self._world.stage)
        self._layers = sorted([*layers, self._output])
        self._blocks: dict[int, Block] = {}
        self._schedule: Schedule = []
        self._left: Boundary | None = None
        self._right: Boundary | None = None
        self._fresh_outputs = 0
        self._usage = torch.zeros(5, dtype=torch.float64)
        self._ws = self._workspace()
        self._build(start)

    @property
    def own_layers(self) -> list[int]:
        """The layers of this stage that exist, counted from 0."""
        return [layer for layer in self._layers if layer in self._blocks]

    @property
    def tiling(self) -> Tiling:
        """How this process walks its samples."""
        return self._ws.tiling

    @property
    def blocks(self) -> list[Block]:
        """This stage's layers, in order."""
        return [self._blocks[layer] for layer in self.own_layers]

    def begin_stage(self, ridge: float) -> list[LayerReport]:
        """Connect the stages, fix the units of damping and ridge, and measure L_rho where the growth stage begins."""
        self._connect()
        for block in self.blocks:
            block.begin_stage()
        reports = {layer: self._blocks[layer].measure(self._p_after(layer), ridge) for layer in self.own_layers}
        return self._share(reports)

    def iterate(self, ridge: float) -> list[LayerReport]:
        """One iteration; the reports of all layers, in order, are the same on every process."""
        before, began = dataclasses.replace(self._world.traffic), time.perf_counter()
        reports = self._iterate(ridge)
        after = self._world.traffic
        self._usage += torch.tensor(
            [
                time.perf_counter() - began,
                after.wait_seconds - before.wait_seconds,
                after.send_seconds - before.send_seconds,
                after.bytes_sent - before.bytes_sent,
                1,
            ],
            dtype=torch.float64,
        )
        return reports

    def usage(self) -> list[Usage]:
        """What every process did in the iterations so far, stage by stage, on every process."""
        world = self._world
        table = torch.zeros(world.num_stages, world.num_shards, len(self._usage), dtype=torch.float64)
        table[world.stage, world.shard] = self._usage
        table = world.sum_over_shards(world.sum_over_stages(table))
        stages = self._placement.stages
        return [
            Usage(stage + 1, shard + 1, [layer + 1 for layer in stages[stage]], *table[stage, shard].tolist())
            for stage in range(world.num_stages)
            for shard in range(world.num_shards)
        ]

    def _iterate(self, ridge: float) -> list[LayerReport]:
        if self._left is not None:
            self._left.outbox.finish()  # p may change once it has left
        if self._right is not None:
            self._right.inbox.post()
        reports: dict[int, LayerReport] = {}
        for step in self._schedule:
            try:
                report = self._take(step, ridge)
            except torch.linalg.LinAlgError:  # type: ignore[attr-defined]
                # A factorisation of ours fails only where NaN, infinity or overflow came in; all stages must hear.
                reports[step.layer] = LayerReport(risk=math.nan)
                continue
            if report is not None:
                reports.setdefault(step.layer, report)
        return self._share(reports)

    def stationarity(self, ridge: float) -> float:
        """The norm of all partial gradients of L_rho."""
        squares = torch.zeros(len(self._widths), dtype=torch.float64)
        for layer in self.own_layers:
            block = self._blocks[layer]
            squares[layer] = block.stationarity(self._message_to(layer), self._p_after(layer), ridge)
        return math.sqrt(math.fsum(self._world.sum_over_stages(squares).tolist()))

    def score(self, samples: Samples, num_samples: int) -> float:
        """Accuracy or R² of the network, evaluated as a pipeline through the stages."""
        scorer = Scorer(self._loss.real_valued, self._problem.num_outputs)
        tiling = Tiling(num_samples, FORWARD_ROWS, self._world.shard, self._world.num_shards)
        for rows in tiling.tiles() if self.own_layers else ():
            z = self._forward(samples, rows)
            if self.own_layers[-1] == self._output:
                assert samples.y is not None
                scorer.add(z, samples.y[rows])
        return scorer.result(self._world.sum_over_stages(self._world.sum_over_shards(scorer.sums)), num_samples)

    def network(self) -> Network:
        """The whole network, on every process; its tensors are replaced, not changed, by later iterations."""
        weights, biases = [], []
        for layer in self._layers:
            n_in, n_out = self._fan_in(layer), self._widths[layer + 1]
            owner = self._placement.owner(layer)
            mine = self._blocks[layer].state if layer in self._blocks else None
            weights.append(self._world.broadcast(self._new(n_out, n_in) if mine is None else mine.W, owner))
            biases.append(self._world.broadcast(self._new(n_out) if mine is None else mine.b, owner))
        return Network(weights, biases, self._activation)

    def grow(self, layers: Sequence[int]) -> None:
        """Insert identity layers until the hidden layers are `layers`; `begin_stage` must follow."""
        self.finish()
        for layer in layers:
            if layer not in self._layers:
                self._insert(layer)
        if self._config.grow_output == "fresh" and self._output in self._blocks:
            self._renew_output()

    def finish(self) -> None:
        """Wait for every message that is under way."""
        for boundary in (self._left, self._right):
            if boundary is not None:
                boundary.outbox.finish()
                boundary.inbox.finish()

    def what_is_not_finite(self) -> tuple[int, str] | None:
        """The first layer (counted from 1) and variable with NaN or infinity, agreed on by all stages."""
        found = torch.zeros(len(self._widths), len(VARIABLES), dtype=torch.float64)
        for layer, block in self._blocks.items():
            for column, name in enumerate(VARIABLES):
                variable = getattr(block.state, name)
                found[layer, column] = variable is not None and not bool(torch.isfinite(variable).all())
        places = self._world.sum_over_stages(found).nonzero().tolist()
        return (places[0][0] + 1, VARIABLES[places[0][1]]) if places else None

    # --- an iteration

    def _take(self, step: Step, ridge: float) -> LayerReport | None:
        block = self._blocks[step.layer]
        if step.action == "p":
            block.p_phase(self._message_to(step.layer), self._left.outbox.send if step.sends and self._left else None)
            if step.needs and self._left is not None:
                self._left.inbox.post()
        elif step.action == "W":
            block.W_phase(ridge)
        else:
            return block.z_phase(self._p_after(step.layer), ridge, self._send_message if step.sends else None)
        return None

    def _send_message(self, chunk: int) -> None:
        """Send m of the last layer, for one chunk of samples."""
        assert self._right is not None
        outbox, last = self._right.outbox, self.blocks[-1]
        outbox.free(chunk)
        for rows in list(self._ws.tiling.chunks())[chunk]:
            if self._codec is None:
                last.message(rows, outbox.array[rows])
            else:
                m = last.message(rows, self._ws.tile(4, rows.stop - rows.start, len(last.state.b)))
                self._codec.encode(m, outbox.array[rows])
        outbox.send(chunk)
        last.state.m_sent = None if self._codec is None else self._sent_message

    def _sent_message(self, rows: slice, out: Tensor) -> Tensor:
        """m of the last layer as the right neighbour sees it."""
        assert self._right is not None
        assert self._codec is not None
        return self._codec.decode(self._right.outbox.array[rows], out)

    def _message_to(self, layer: int) -> TileSource | None:
        """m of the layer before, wherever it is."""
        position = self._layers.index(layer)
        if position == 0:
            return None
        before = self._layers[position - 1]
        if before in self._blocks:
            return self._blocks[before].message
        assert self._left is not None
        return self._left.inbox.tile

    def _p_after(self, layer: int) -> TileSource | None:
        """p of the layer after, wherever it is."""
        position = self._layers.index(layer)
        if position + 1 == len(self._layers):
            return None
        after = self._layers[position + 1]
        if after in self._blocks:
            return self._blocks[after].p_tile
        assert self._right is not None
        return self._right.inbox.tile

    def _share(self, reports: dict[int, LayerReport]) -> list[LayerReport]:
        """Everyone's reports, on every process."""
        table = torch.zeros(len(self._widths) - 1, len(_REPORT_FIELDS), dtype=torch.float64)
        for layer, report in reports.items():
            table[layer] = torch.tensor(dataclasses.astuple(report), dtype=torch.float64)
        values = self._world.sum_over_stages(table).tolist()
        return [LayerReport(*values[layer]) for layer in self._layers]

    # --- building, connecting, growing

    def _workspace(self) -> Workspace:
        problem, world = self._problem, self._world
        scratch = max(self._solver.scratch_width(n_in, n_out) for n_in, n_out in pairwise(self._widths))
        rows = self._config.tile_rows or default_tile_rows(max(self._widths))
        tiling = Tiling(problem.num_samples, rows, world.shard, world.num_shards)
        reduce = world.sum_over_shards if world.num_shards > 1 else None
        return Workspace(tiling, max(self._widths), scratch, problem.dtype, problem.device, reduce)

    def _build(self, start: Network | None) -> None:
        """Weights, and auxiliaries by a forward pass: z = a, q = f(z), p_next = q, so that u = 0."""
        for position, layer in enumerate(self._layers):
            if self._placement.owner(layer) != self._world.stage:
                continue
            W, b = self._draw(layer) if start is None else (start.weights[position], start.biases[position])
            p = self._first_p(position)
            state = LayerState(W, b, p, self._array(len(b)), None, None, is_input=position == 0)
            self._fill_linear(state, state.z)
            state.a = state.z.clone() if self._solver.carries_a else None
            if layer < self._output:
                state.q = self._array(len(b))
                for rows in self._ws.tiling.tiles():
                    self._activation.forward(state.z[rows], state.q[rows])
            elif start is None:
                assert self._problem.train.y is not None
                state.z = self._loss.initial(state.z, self._problem.train.y)
            self._add(layer, state)
            self._pass_on(position, state)

    def _first_p(self, position: int) -> Tensor:
        """A layer's first p: the data, or a copy of the q before it."""
        if position == 0:
            assert self._problem.train.x is not None
            return self._problem.train.x
        before = self._layers[position - 1]
        if before in self._blocks:
            q = self._blocks[before].state.q
            assert q is not None
            return q.clone()
        p = self._array(self._widths[before + 1])
        self._world.receive(p, self._placement.owner(before))
        return p

    def _pass_on(self, position: int, state: LayerState) -> None:
        """Send q to the stage that builds the next layer, if that is another."""
        if state.q is not None:
            owner = self._placement.owner(self._layers[position + 1])
            if owner != self._world.stage:
                self._world.send(state.q, owner)

    def _connect(self) -> None:
        """Make the schedule and the boundaries of the present layers, and exchange the first p and m."""
        stages = self._placement.present(self._layers)
        self._schedule = make_schedules(stages)[self._world.stage]
        self._left = self._right = None
        own = self.own_layers
        if not own:
            return
        bounds = list(self._ws.tiling.chunk_bounds())
        first, last = self._blocks[own[0]].state, self._blocks[own[-1]].state
        for block in self.blocks:
            block.state.lane, block.state.as_sent, block.state.m_sent = 0, None, None
        if own[0] != self._layers[0]:
            # Its sums are under way while the stage's other layers are visited.
            first.lane = 1 if len(own) > 1 else 0
            stage = self._placement.owner(self._layers[self._layers.index(own[0]) - 1])
            inbox = self._world.inbox("m", stage, self._wire(first.p.shape[1]), bounds, self._codec)
            self._left = Boundary(stage, inbox, self._world.outbox("p", stage, self._wire_of_p(first), bounds))
        if own[-1] != self._layers[-1]:
            stage = self._placement.owner(self._layers[self._layers.index(own[-1]) + 1])
            inbox = self._world.inbox("p", stage, self._wire(len(last.b)), bounds, self._codec)
            self._right = Boundary(stage, inbox, self._world.outbox("m", stage, self._wire(len(last.b)), bounds))
        for boundary in (self._left, self._right):
            if boundary is not None:
                boundary.inbox.post()
        if first.as_sent is not None:
            for rows in self._ws.tiling.tiles():
                first.as_sent(rows)
            if first.a is not None:
                self._fill_linear(first, first.a)
        for chunk in range(len(bounds)):
            if self._left is not None:
                self._left.outbox.send(chunk)
            if self._right is not None:
                self._send_message(chunk)

    def _wire(self, width: int) -> Tensor:
        """An array as it crosses a boundary."""
        if self._codec is None:
            return self._array(width)
        return self._codec.wire(self._ws.tiling.local_samples, width, self._problem.device)

    def _wire_of_p(self, s: LayerState) -> Tensor:
        """p itself, or the wire that p is rounded to whenever it is stepped."""
        codec = self._codec
        if codec is None:
            return s.p
        wire = self._wire(s.p.shape[1])

        def as_sent(rows: slice) -> None:
            codec.encode(s.p[rows], wire[rows])
            codec.decode(wire[rows], s.p[rows])

        s.as_sent = as_sent
        return wire

    def _insert(self, layer: int) -> None:
        """A new layer takes the p of the layer after it and passes f(p) on."""
        after = min(present for present in self._layers if present > layer)
        here, there = self._placement.owner(layer), self._placement.owner(after)
        self._layers = sorted([*self._layers, layer])
        if self._world.stage == there:
            right = self._blocks[after].state
            p, right.p = right.p, self._array(right.p.shape[1])
            for rows in self._ws.tiling.tiles():
                self._activation.forward(p[rows], right.p[rows])
            if right.a is not None:
                self._fill_linear(right, right.a)
            if here != there:
                self._world.send(p, here)
        if self._world.stage == here:
            if here != there:
                p = self._array(self._widths[layer + 1])
                self._world.receive(p, there)
            W, b = identity_layer(p.shape[1], p)
            state = LayerState(W, b, p, p.clone(), torch.empty_like(p), None, is_input=False)
            assert state.q is not None
            for rows in self._ws.tiling.tiles():
                self._activation.forward(state.z[rows], state.q[rows])
            state.a = p.clone() if self._solver.carries_a else None
            self._add(layer, state)

    def _renew_output(self) -> None:
        """The authors' growth: the output layer begins anew."""
        self._fresh_outputs += 1
        output = self._blocks[self._output].state
        output.W, output.b = self._draw(self._output, self._output + self._fresh_outputs)
        a = output.z if output.a is None else output.a
        self._fill_linear(output, a)
        assert self._problem.train.y is not None
        output.z = self._loss.initial(a, self._problem.train.y)

    def _add(self, layer: int, state: LayerState) -> None:
        closing: Closing = HiddenClosing(self._activation, self._weights)
        if layer == self._output:
            y, weight = self._problem.train.y, self._problem.sample_weight
            assert y is not None
            assert weight is not None
            closing = OutputClosing(self._loss, y, weight, self._weights)
        self._blocks[layer] = Block(state, self._solver, closing, self._weights, self._ws)

    def _forward(self, samples: Samples, rows: slice) -> Tensor:
        """These rows through this stage's layers, from the stage before and to the stage after."""
        own = self.own_layers
        first, last = self._layers.index(own[0]), self._layers.index(own[-1])
        if first == 0:
            assert samples.x is not None
            h = samples.x[rows]
        else:
            before = self._layers[first - 1]
            h = self._new(rows.stop - rows.start, self._widths[before + 1])
            self._world.receive(h, self._placement.owner(before))
        for layer in own:
            s = self._blocks[layer].state
            h = linear(h, s.W, s.b, h.new_empty(len(h), len(s.b)))
            if layer != self._output:
                h = self._activation.forward(h, h)
        if own[-1] != self._output:
            self._world.send(h, self._placement.owner(self._layers[last + 1]))
        return h

    def _fan_in(self, layer: int) -> int:
        position = self._layers.index(layer)
        return self._widths[self._layers[position - 1] + 1] if position else self._widths[0]

    def _draw(self, layer: int, stream: int | None = None) -> tuple[Tensor, Tensor]:
        problem, config = self._problem, self._config
        fan_in, width = self._fan_in(layer), self._widths[layer + 1]
        stream = layer if stream is None else stream
        return initial_layer(config.seed, stream, fan_in, width, config.init, problem.dtype, problem.device)

    def _fill_linear(self, s: LayerState, out: Tensor) -> None:
        for rows in self._ws.tiling.tiles():
            linear(s.p[rows], s.W, s.b, out[rows])

    def _array(self, width: int) -> Tensor:
        return self._new(self._ws.tiling.local_samples, width)

    def _new(self, *shape: int) -> Tensor:
        return torch.empty(*shape, dtype=self._problem.dtype, device=self._problem.device)
