"""The loop: grow, iterate, record, stop.

`train` is the whole way from a data set to a trained model. It knows nothing of files or terminals: rows and notes
go to an observer as they come, and the caller says where they end up.
"""

from __future__ import annotations

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
from pdadmm.errors import PdadmmWarning, UserError
from pdadmm.history import Row
from pdadmm.machine import check_device, default_threads
from pdadmm.math.activations import Activation, get_activation
from pdadmm.math.lagrangian import Theory
from pdadmm.math.losses import is_regression
from pdadmm.model import Model, load_model
from pdadmm.network import Network, deepen
from pdadmm.plan import check_memory, plan_memory
from pdadmm.session import Session

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
        regression=is_regression(config),
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


def _prepare(config: Config, data: Dataset, observer: Observer) -> Session:
    """Check, plan, scale and build."""
    activation = get_activation(config.activation)
    check_device(config.device)
    check_dataset(data, is_regression(config))
    source = None if config.init_from is None else _source(config, activation, observer)
    regression = is_regression(config)
    assert config.scaling is not None
    preprocessor = (
        source.preprocessor if source else Preprocessor.fit(data.train, config.scaling, regression, data.feature_names)
    )
    tests = len(data.test.X) if data.test else 0
    check_memory(plan_memory(config, len(data.train.X), tests, data.train.X.shape[1], preprocessor.num_outputs))
    torch.set_num_threads(config.threads or default_threads())
    train_set = _tensors(config, preprocessor, data.train)
    test_set = _tensors(config, preprocessor, data.test) if data.test else None
    theory = Theory(method_weights(config), activation.lipschitz)
    if message := theory.warning():
        observer.on_note(message)
    stages = [growth.Stage(0, tuple(range(len(config.hidden))))] if source else _stages(config, activation, observer)
    start = deepen(source.network, config.hidden) if source else None
    problem = Problem(*train_set, preprocessor.num_outputs)
    engine = SerialEngine(config, problem, stages[0].layers, start)
    return Session(config, engine, problem, test_set, preprocessor, theory, stages)


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
    if model.preprocessor.regression != is_regression(config):
        raise UserError(f"loss {config.loss} does not fit the model to start from, {config.init_from}")
    growth.embed(model.network.hidden, config.hidden)
    observer.on_note(f"features are scaled as by the model to start from, {config.init_from}; --scaling is not used")
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
        if is_regression(config):
            raise UserError(f"class_weight balanced needs classes; the loss is {config.loss}")
        weight = weight * balanced_weights(targets, preprocessor.num_outputs)
    y = torch.from_numpy(targets).to(config.device)
    return x, y.to(dtype) if is_regression(config) else y, torch.from_numpy(weight).to(config.device, dtype)
