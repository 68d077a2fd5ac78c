"""The loop: grow, iterate, record, stop.

`train` is the whole way from a data set to a trained model. It knows nothing of files or terminals: rows and notes
go to an observer as they come, and the caller says where they end up.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from pdadmm import growth
from pdadmm.config import Config
from pdadmm.data import Dataset, Part, Preprocessor, balanced_weights, check_dataset, load_data
from pdadmm.engine.serial import Problem, SerialEngine, method_weights
from pdadmm.errors import DivergenceError, PdadmmWarning, UserError
from pdadmm.history import Row
from pdadmm.machine import usable_cores
from pdadmm.math.activations import Activation, get_activation
from pdadmm.math.lagrangian import TOLERANCE, LayerReport, Theory, certain_drop, objective
from pdadmm.math.losses import get_loss
from pdadmm.model import Model, load_model, score
from pdadmm.network import Network, deepen
from pdadmm.plan import check_memory, plan_memory

FLOAT32_TOLERANCE = 1e-5  # the certificate's rounding in float32, where it is only shown

STATUS = {
    "converged": "residual and change fell below the tolerance; lower --tolerance to go on",
    "completed": "all epochs were run; if the objective is still falling, raise --epochs",
    "interrupted": "stopped on request after a whole iteration; the model is that of the last row",
}
"""Why a run may end, and what to do then."""


def _warn(note: str) -> None:
    warnings.warn(note, PdadmmWarning, stacklevel=5)


@dataclass
class Observer:
    """Who hears of a run while it goes on. By default notes become warnings and nothing stops the run."""

    on_row: Callable[[Row], None] = field(default=lambda row: None)
    on_note: Callable[[str], None] = field(default=_warn)
    should_stop: Callable[[], bool] = field(default=lambda: False)


@dataclass(frozen=True)
class Result:
    """What a run leaves behind."""

    model: Model
    history: list[Row]
    status: str
    config: Config

    @property
    def advice(self) -> str:
        """What the status means and what to do about it."""
        return STATUS[self.status]


def load_for(config: Config) -> Dataset:
    """The data set that the configuration names."""
    return load_data(
        config.data,
        target=config.target,
        weight=config.weight,
        test_fraction=config.test_fraction,
        split_seed=config.split_seed,
        regression=config.is_regression,
    )


def train(config: Config, data: Dataset, observer: Observer | None = None) -> Result:
    """Train a network on `data`; everything that can be refused is refused before the first iteration."""
    observer = observer or Observer()
    session = _prepare(config.resolved(), data, observer)
    history: list[Row] = []
    status = "completed"
    for epoch in range(1, session.config.epochs + 1):
        row, reports = session.iterate(epoch)
        if session.is_converged(reports):
            status = "converged"
        elif observer.should_stop():
            status = "interrupted"
        last = status != "completed" or epoch == session.config.epochs
        session.add_evaluations(row, last)
        history.append(row)
        observer.on_row(row)
        if last:
            break
    return Result(Model(session.engine.network(), session.preprocessor), history, status, session.config)


def _prepare(config: Config, data: Dataset, observer: Observer) -> _Session:
    """Check, plan, scale and build."""
    activation = get_activation(config.activation)
    get_loss(config)
    check_dataset(data, config.is_regression)
    source = None if config.init_from is None else _source(config, activation, observer)
    regression = config.is_regression
    assert config.scaling is not None
    preprocessor = source.preprocessor if source else Preprocessor.fit(data.train, config.scaling, regression)
    tests = len(data.test.X) if data.test else 0
    check_memory(plan_memory(config, len(data.train.X), tests, data.train.X.shape[1], preprocessor.num_outputs))
    torch.set_num_threads(config.threads or usable_cores())
    train_set = _tensors(config, preprocessor, data.train)
    test_set = _tensors(config, preprocessor, data.test) if data.test else None
    theory = Theory(method_weights(config), activation.lipschitz)
    if message := theory.warning():
        observer.on_note(message)
    stages = [growth.Stage(0, tuple(range(len(config.hidden))))] if source else _stages(config, activation, observer)
    start = deepen(source.network, config.hidden) if source else None
    problem = Problem(*train_set, preprocessor.num_outputs)
    engine = SerialEngine(config, problem, stages[0].layers, start)
    return _Session(config, engine, problem, test_set, preprocessor, theory, stages)


def _stages(config: Config, activation: Activation, observer: Observer) -> list[growth.Stage]:
    """The growth schedule, or one stage where the network cannot grow."""
    assert config.grow is not None
    schedule = growth.parse_schedule(config.grow, len(config.hidden), config.epochs)
    reason = growth.why_not(config.hidden, config.activation, activation.idempotent)
    if config.grow != "off" and reason is not None:
        observer.on_note(f"the network starts whole instead of growing: {reason}")
        schedule = [(0, len(config.hidden))]
    return growth.stages(config.hidden, schedule)


def _source(config: Config, activation: Activation, observer: Observer) -> Model:
    """The model to start from."""
    assert config.init_from is not None
    model = load_model(config.init_from, config.device)
    if model.network.activation.name != activation.name:
        raise UserError(
            f"activation must be that of the model to start from, {model.network.activation.name}; "
            f"got {activation.name}"
        )
    if model.preprocessor.regression != config.is_regression:
        raise UserError(f"loss {config.loss} does not fit the model to start from, {config.init_from}")
    growth.embed(model.network.hidden, config.hidden)
    if len(config.hidden) > len(model.network.hidden) and not activation.idempotent:
        observer.on_note(f"inserting layers changes the function: f(f(z)) differs from f(z) for {activation.name}")
    dtype = getattr(torch, config.dtype)
    weights = [W.to(dtype) for W in model.network.weights]
    biases = [b.to(dtype) for b in model.network.biases]
    return Model(Network(weights, biases, activation), model.preprocessor)


def _tensors(config: Config, preprocessor: Preprocessor, part: Part) -> tuple[Tensor, Tensor, Tensor]:
    """Features, targets and sample weights on the run's device."""
    dtype = getattr(torch, config.dtype)
    x = torch.from_numpy(preprocessor.features(part.X, np.dtype(config.dtype))).to(config.device)
    targets = preprocessor.targets(part.y)
    weight = np.ones(len(x)) if part.weight is None else part.weight.astype(np.float64)
    if config.class_weight == "balanced":
        if config.is_regression:
            raise UserError(f"class_weight balanced needs classes; the loss is {config.loss}")
        weight = weight * balanced_weights(targets, preprocessor.num_outputs)
    y = torch.from_numpy(targets).to(config.device)
    return x, y.to(dtype) if config.is_regression else y, torch.from_numpy(weight).to(config.device, dtype)


@dataclass
class _Session:
    """A prepared run and what it keeps from one iteration to the next."""

    config: Config
    engine: SerialEngine
    problem: Problem
    test: tuple[Tensor, Tensor, Tensor] | None
    preprocessor: Preprocessor
    theory: Theory
    stages: list[growth.Stage]
    objective: float = math.nan
    least_drop: float = math.inf

    def iterate(self, epoch: int) -> tuple[Row, list[LayerReport]]:
        """Grow if it is time, iterate once, and make the row."""
        ridge, grown = self.ridge(epoch), self._grow(epoch)
        weights = self.theory.weights
        began = time.perf_counter()
        reports = self.engine.iterate(ridge)
        seconds = time.perf_counter() - began
        value = objective(reports, weights)
        if not math.isfinite(value):
            raise DivergenceError(self._what_diverged(epoch))
        residuals = [report.residual for report in reports[:-1]]
        drop, needed = self.objective - value, certain_drop(reports, weights)
        slack = (TOLERANCE if self.config.dtype == "float64" else FLOAT32_TOLERANCE) * (1 + abs(value))
        row: Row = {
            "epoch": epoch,
            "seconds": seconds,
            "objective": value,
            "residual": math.sqrt(sum(residuals)),
            "residuals": [math.sqrt(square) for square in residuals],
            "dual_change": weights.rho * math.sqrt(sum(residuals)),
            "dual_residual": weights.rho * math.sqrt(sum(report.dq for report in reports[:-1])),
            "drop": drop,
            "certain_drop": needed,
            "certified": drop >= needed - slack,
            "output_residual": math.sqrt(reports[-1].prox_residual),
            "ridge": ridge,
            "layers": len(reports) - 1,
        }
        if grown:
            row["grown"] = grown
        if self.theory.holds:
            row["paper_drop"] = self.theory.paper_drop(reports)
            self.least_drop = min(self.least_drop, row["paper_drop"])
            row["c_k"] = self.least_drop
        # The next iteration is compared at its own, lower ridge.
        factor = self.ridge(epoch + 1) / ridge if ridge else 1.0
        self.objective = value - (1 - factor) * self._ridge_term(reports)
        return row, reports

    def add_evaluations(self, row: Row, last: bool) -> None:
        """Accuracies and stationarity, where they are due."""
        config, epoch = self.config, row["epoch"]
        if last or epoch % config.evaluate_every == 0:
            network = self.engine.network()
            metric = "r2" if config.is_regression else "accuracy"
            parts = {"train": (self.problem.x, self.problem.y)}
            if self.test is not None:
                parts["test"] = self.test[:2]
            for name, (x, y) in parts.items():
                row[f"{name}_{metric}"] = score(network.forward(x), y, config.is_regression)
        if config.stationarity_every and (last or epoch % config.stationarity_every == 0):
            row["stationarity"] = self.engine.stationarity(row["ridge"])

    def ridge(self, epoch: int) -> float:
        """lambda of an epoch: geometric from its first to its last value."""
        first, final, epochs = self.config.ridge, self.config.ridge_final, self.config.ridge_epochs
        assert first is not None
        assert final is not None
        assert epochs is not None
        progress = min(1.0, (epoch - 1) / max(1, epochs - 1))
        if first == 0 or final == 0:
            return first * (1 - progress)
        return float(first * (final / first) ** progress)

    def is_converged(self, reports: list[LayerReport]) -> bool:
        """Residual and change of q below the tolerance, relative to q."""
        if not self.config.tolerance or self.stages:
            return False
        size = math.sqrt(sum(report.q for report in reports))
        residual = math.sqrt(sum(report.residual for report in reports))
        change = math.sqrt(sum(report.dq for report in reports))
        return max(residual, change) <= self.config.tolerance * size

    def _grow(self, epoch: int) -> int:
        """Begin the stage that is due; returns how many layers it inserted."""
        grown = 0
        if not self.stages or self.stages[0].epoch > epoch - 1:
            return grown
        stage = self.stages.pop(0)
        if epoch > 1:
            before = len(self.engine.blocks)
            self.engine.grow(stage.layers)
            grown = len(self.engine.blocks) - before
        self.objective = objective(self.engine.begin_stage(self.ridge(epoch)), self.theory.weights)
        self.least_drop = math.inf
        return grown

    def _ridge_term(self, reports: list[LayerReport]) -> float:
        """The part of the objective that scales with lambda: all of the weight terms but L2's."""
        weights = [block.state.W for block in self.engine.blocks]
        l2 = self.config.l2 / 2 * sum(float(W.double().square().sum()) for W in weights) if self.config.l2 else 0.0
        return sum(report.weight for report in reports) - l2

    def _what_diverged(self, epoch: int) -> str:
        advice = "lower the learning problem's scale (--scaling standard), raise --damping or --rho, or use float64"
        for layer, block in enumerate(self.engine.blocks, start=1):
            for name in ("p", "W", "b", "z", "q"):
                variable = getattr(block.state, name)
                if variable is not None and not bool(torch.isfinite(variable).all()):
                    return f"{name} of layer {layer} became NaN or infinite in epoch {epoch}; {advice}"
        return f"the objective became NaN or infinite in epoch {epoch}; {advice}"
