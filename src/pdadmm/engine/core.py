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
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pdadmm.block import Block
from pdadmm.config import Config
from pdadmm.engine.batches import Batches
from pdadmm.engine.evaluation import Evaluation
from pdadmm.engine.layers import Layers, SavedLayers
from pdadmm.engine.placement import Placement, from_counts
from pdadmm.engine.problem import Problem, method_weights
from pdadmm.engine.schedule import Schedule, Step, make_schedules
from pdadmm.engine.world import World
from pdadmm.errors import DamageError
from pdadmm.math.activations import Activations
from pdadmm.math.lagrangian import LayerReport
from pdadmm.math.state import TileSource
from pdadmm.math.tiles import Tiling
from pdadmm.network import Network

if TYPE_CHECKING:
    from pdadmm.engine.comm import Boundary

VARIABLES = ("p", "W", "b", "z", "q")
_REPORT_FIELDS = tuple(field.name for field in dataclasses.fields(LayerReport))


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
    unless the network grows). `build` and `begin_stage` must follow, or `restore`.
    """

    def __init__(
        self,
        config: Config,
        problem: Problem,
        layers: Iterable[int],
        world: World | None = None,
        placement: Placement | None = None,
    ) -> None:
        self._config, self._problem = config, problem
        self._world: World = world or World()
        placement = placement or from_counts([len(config.hidden) + 1])
        self.layers = Layers(config, problem, layers, self._world, placement)
        self._ws = self.layers.workspace
        self._rounds = config.messages == "bfloat16"
        self._schedule: Schedule = []
        self._left: Boundary | None = None
        self._right: Boundary | None = None
        self._usage = torch.zeros(5, dtype=torch.float64)
        self.spent = (0.0, 0.0, 0.0)
        """The seconds that this process computed, waited and sent in the last iteration."""
        self._regresses = False
        self.evaluation = Evaluation(config, problem, self.layers, self._world)
        self._batches: Batches | None = None
        if config.batches > 1:
            weights = method_weights(config)
            self._batches = Batches(self.layers, weights, config.batches, self._message_to, self._p_after)

    def build(self, start: Network | None = None) -> None:
        """Make the layers by a forward pass; `start` gives their weights, if they are not to be drawn."""
        self.layers.build(start)
        fitted = self._config.solver == "exact" and self._config.init_output == "regression"
        self._regresses = start is None and fitted

    def saved_state(self) -> dict[int, dict[str, Tensor]]:
        """All that this process must save to go on from here, layer by layer; nothing is copied."""
        saved = self.layers.saved_state()
        if self._rounds and self._right is not None:
            saved[self.layers.own[-1]]["message"] = self._right.outbox.array
        return saved

    def restore(self, saved: SavedLayers, fresh_outputs: int) -> None:
        """Go on from what `saved_state` gave, in place of `build` and `begin_stage`."""
        self.layers.restore(saved, fresh_outputs)
        self._connect()
        self._send_first_m(saved.extra(self.layers.own[-1], "message") if self._rounds and self._right else None)
        if self._batches is not None:
            self._batches.begin()

    @property
    def tiling(self) -> Tiling:
        """How this process walks its samples."""
        return self._ws.tiling

    @property
    def blocks(self) -> list[Block]:
        """This stage's layers, in order."""
        return [self.layers.blocks[layer] for layer in self.layers.own]

    def begin_stage(self, ridge: float) -> list[LayerReport]:
        """Connect the stages, fix the units of damping and ridge, and measure L_rho where the growth stage begins."""
        self._connect()
        self._send_first_p()
        self._send_first_m()
        for block in self.blocks:
            block.begin_stage()
        if self._regresses and self.layers.output in self.layers.blocks:
            self.layers.blocks[self.layers.output].regress(ridge)
        self._regresses = False
        if self._batches is not None:
            self._batches.begin()
        blocks = self.layers.blocks
        reports = {layer: blocks[layer].measure(self._p_after(layer), ridge) for layer in self.layers.own}
        return self._share(reports)

    def iterate(self, ridge: float) -> list[LayerReport]:
        """One iteration; the reports of all layers, in order, are the same on every process."""
        self.evaluation.forget()
        before, began = dataclasses.replace(self._world.traffic), time.perf_counter()
        reports = self._iterate(ridge)
        after = self._world.traffic
        seconds, waited = time.perf_counter() - began, after.wait_seconds - before.wait_seconds
        sent, count = after.send_seconds - before.send_seconds, after.bytes_sent - before.bytes_sent
        self._usage += torch.tensor([seconds, waited, sent, count, 1], dtype=torch.float64)
        self.spent = (seconds - waited - sent, waited, sent)
        return reports

    def usage(self) -> list[Usage]:
        """What every process did in the iterations so far, stage by stage, on every process."""
        world = self._world
        table = torch.zeros(world.num_stages, world.num_shards, len(self._usage), dtype=torch.float64)
        table[world.stage, world.shard] = self._usage
        table = world.sum_over_shards(world.sum_over_stages(table))
        stages = self.layers.placement.stages
        return [
            Usage(stage + 1, shard + 1, [layer + 1 for layer in stages[stage]], *table[stage, shard].tolist())
            for stage in range(world.num_stages)
            for shard in range(world.num_shards)
        ]

    def _iterate(self, ridge: float) -> list[LayerReport]:
        if self._batches is not None:
            return self._share(self._batches.iterate(ridge))
        if self._left is not None:
            self._left.outbox.finish()  # p may change once it has left
        if self._right is not None:
            self._right.inbox.post()
        reports: dict[int, LayerReport] = {}
        for step in self._schedule:
            report = self._take(step, ridge)
            if report is not None:
                reports[step.layer] = report
        return self._share(reports)

    def stationarity(self, ridge: float) -> float:
        """The norm of all partial gradients of L_rho."""
        squares = torch.zeros(len(self.layers.widths), dtype=torch.float64)
        for layer in self.layers.own:
            block = self.layers.blocks[layer]
            squares[layer] = block.stationarity(self._message_to(layer), self._p_after(layer), ridge)
        return math.sqrt(math.fsum(self._world.sum_over_stages(squares).tolist()))

    def network(self) -> Network:
        """The whole network, on every process; its tensors are replaced, not changed, by later iterations."""
        layers = self.layers
        weights, biases = [], []
        for layer in layers.present:
            n_in, n_out = layers.fan_in(layer), layers.widths[layer + 1]
            owner = layers.placement.owner(layer)
            if layer not in layers.blocks:
                W, b = layers.new(n_out, n_in), layers.new(n_out)
            elif layer == layers.output:
                W, b = self.evaluation.output_layer()
            else:
                W, b = layers.blocks[layer].state.W, layers.blocks[layer].state.b
            weights.append(self._world.broadcast(W, owner))
            biases.append(self._world.broadcast(b, owner))
        return Network(weights, biases, Activations(layers.activations[layer] for layer in layers.present[:-1]))

    def grow(self, layers: Sequence[int]) -> None:
        """Insert identity layers until the hidden layers are `layers`; `begin_stage` must follow."""
        self.finish()
        for layer in layers:
            if layer not in self.layers.present:
                self.layers.insert(layer)
        if self._config.grow_output == "fresh":
            self.layers.renew_output()

    def finish(self) -> None:
        """Wait for every message that is under way."""
        for boundary in (self._left, self._right):
            if boundary is not None:
                boundary.outbox.finish()
                boundary.inbox.finish()

    def what_is_not_finite(self) -> tuple[int, str] | None:
        """The layer (counted from 1) and variable where NaN or infinity began, agreed on by all stages.

        Variables are updated in the order of VARIABLES in all layers at once, so the first one has it first.
        """
        found = torch.zeros(len(self.layers.widths), len(VARIABLES), dtype=torch.float64)
        for layer, block in self.layers.blocks.items():
            for column, name in enumerate(VARIABLES):
                variable = getattr(block.state, name)
                found[layer, column] = variable is not None and not bool(torch.isfinite(variable).all())
        places = self._world.sum_over_stages(found).t().nonzero().tolist()
        return (places[0][1] + 1, VARIABLES[places[0][0]]) if places else None

    # --- an iteration

    def _take(self, step: Step, ridge: float) -> LayerReport | None:
        block = self.layers.blocks[step.layer]
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
        for rows in list(self._ws.tiling.chunks())[chunk].tiles:
            if self._rounds:
                outbox.array[rows] = last.message(rows, self._ws.tile(4, rows.stop - rows.start, len(last.state.b)))
            else:
                last.message(rows, outbox.array[rows])
        outbox.send(chunk)

    def _message_to(self, layer: int) -> TileSource | None:
        """m of the layer before, wherever it is."""
        before = self.layers.before(layer)
        if before is None:
            return None
        if before in self.layers.blocks:
            return self.layers.blocks[before].message
        assert self._left is not None
        return self._left.inbox.tile

    def _p_after(self, layer: int) -> TileSource | None:
        """p of the layer after, wherever it is."""
        after = self.layers.after(layer)
        if after is None:
            return None
        if after in self.layers.blocks:
            return self.layers.blocks[after].p_tile
        assert self._right is not None
        return self._right.inbox.tile

    def _share(self, reports: dict[int, LayerReport]) -> list[LayerReport]:
        """Everyone's reports, on every process."""
        table = torch.zeros(len(self.layers.widths) - 1, len(_REPORT_FIELDS), dtype=torch.float64)
        for layer, report in reports.items():
            table[layer] = torch.tensor(dataclasses.astuple(report), dtype=torch.float64)
        values = self._world.sum_over_stages(table).tolist()
        return [LayerReport(*values[layer]) for layer in self.layers.present]

    # --- connecting the stages

    def _connect(self) -> None:
        """Make the schedule and the boundaries of the present layers, and be ready for m from the left."""
        layers = self.layers
        self._schedule = make_schedules(self.layers.placement.present(layers.present))[self._world.stage]
        self._left = self._right = None
        own = self.layers.own
        if not own:
            return
        bounds = list(self._ws.tiling.chunk_bounds())
        first, last = layers.blocks[own[0]].state, layers.blocks[own[-1]].state
        before, after = layers.before(own[0]), layers.after(own[-1])
        for block in self.blocks:
            block.state.lane, block.state.rounded_p, block.state.rounded_m = 0, None, None
        if before is not None:
            # Its sums are under way while the stage's other layers are visited.
            first.lane = 1 if len(own) > 1 else 0
            stage = self.layers.placement.owner(before)
            m = self._wire(first.p.shape[1])
            first.rounded_p = self._wire(first.p.shape[1]) if self._rounds else None
            sent = first.p if first.rounded_p is None else first.rounded_p
            self._left = self._world.boundary(stage, m, sent, bounds)
            self._left.inbox.post()
        if after is not None:
            stage = self.layers.placement.owner(after)
            p, m = self._wire(len(last.b)), self._wire(len(last.b))
            last.rounded_m = m if self._rounds else None
            self._right = self._world.boundary(stage, p, m, bounds)

    def _send_first_p(self) -> None:
        """p where the growth stage begins, which L_rho is measured with there."""
        if self._right is not None:
            self._right.inbox.post()
        if self._left is None:
            return
        first = self.blocks[0].state
        if first.round_p(slice(None)) and first.a is not None:
            self.layers.fill_linear(first, first.a)
        self._left.outbox.send_all()

    def _send_first_m(self, as_saved: Tensor | None = None) -> None:
        """m that the first iteration begins with, rounded anew unless it was saved as it was sent."""
        if self._right is None:
            return
        if as_saved is None:
            for chunk in range(len(list(self._ws.tiling.chunks()))):
                self._send_message(chunk)
            return
        wire = self._right.outbox.array
        if (as_saved.shape, as_saved.dtype) != (wire.shape, wire.dtype):
            raise DamageError("the checkpoint's message does not fit")
        wire.copy_(as_saved)
        self._right.outbox.send_all()

    def _wire(self, width: int) -> Tensor:
        """An array as it crosses a boundary."""
        problem, rows = self._problem, self._ws.tiling.local_samples
        dtype = torch.bfloat16 if self._rounds else problem.dtype
        return problem.storage.empty(rows, width, dtype=dtype, device=problem.device)
