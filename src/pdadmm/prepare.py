"""From a configuration and data to a session that can iterate: check, plan, scale, place, build.

Everything that can be refused is refused here, before the first iteration. In a run of several processes, each keeps
only what its layers and its shard need: the rows of its shard, features where the first layer is, targets where the
output layer is. The processes in between load nothing and are told the shape.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json

import numpy as np
import torch
from torch import Tensor

from pdadmm import growth
from pdadmm.config import Config, to_toml
from pdadmm.data import Dataset, Part, Preprocessor, balanced_weights, check_dataset
from pdadmm.engine.core import Engine
from pdadmm.engine.problem import Problem, Samples, method_weights
from pdadmm.engine.world import World
from pdadmm.errors import UserError
from pdadmm.machine import check_device, default_threads
from pdadmm.math.activations import Activation, get_activation
from pdadmm.math.lagrangian import Theory
from pdadmm.math.losses import is_regression
from pdadmm.math.tiles import Tiling
from pdadmm.model import Model, load_model
from pdadmm.network import Network, deepen
from pdadmm.observer import Observer
from pdadmm.plan import Shape, check_memory, place, plan_memory
from pdadmm.session import Session
from pdadmm.version import __version__

CACHE_LINE = 64


def holds_data(world: World) -> bool:
    """True where the first or the output layer is."""
    return world.stage in (0, world.num_stages - 1)


def prepare(
    config: Config, data: Dataset | None, observer: Observer, world: World
) -> tuple[Session, Preprocessor | None]:
    """A session on this process, and the preprocessing where the data is."""
    activation = get_activation(config.activation)
    check_device(config.device)
    source = None if config.init_from is None else _source(config, activation, observer)
    preprocessor = None
    if data is not None:
        check_dataset(data, is_regression(config))
        preprocessor = source.preprocessor if source else _fit(config, data)
    shape = _agree(config, data, preprocessor, world)
    placement = place(config, shape)
    if world.num_stages * world.num_shards == 1:
        check_memory(plan_memory(config, shape))
    torch.set_num_threads(config.threads or default_threads())
    theory = Theory(method_weights(config), activation.lipschitz)
    if message := theory.warning():
        observer.on_note(message)
    stages = [growth.Stage(0, tuple(range(len(config.hidden))))] if source else _stages(config, activation, observer)
    start = deepen(source.network, config.hidden) if source else None
    problem = _problem(config, data, preprocessor, shape, world)
    engine = Engine(config, problem, stages[0].layers, world, placement)
    engine.build(start)
    return Session(config, engine, problem, shape.tests, theory, stages), preprocessor


def check_run(config: Config, data: Dataset) -> None:
    """What `prepare` would refuse, before any process starts."""
    check_device(config.device)
    check_dataset(data, is_regression(config))
    outputs = _fit(config, data).num_outputs
    shape = Shape(len(data.train.X), len(data.test.X) if data.test else 0, data.train.X.shape[1], outputs)
    place(config, shape)
    _check_shards(config.shards, shape)
    check_memory(plan_memory(config, shape))
    growth.parse_schedule(config.grow or "off", len(config.hidden), config.epochs)


def _fit(config: Config, data: Dataset) -> Preprocessor:
    assert config.scaling is not None
    return Preprocessor.fit(data.train, config.scaling, is_regression(config), data.feature_names)


def _agree(config: Config, data: Dataset | None, preprocessor: Preprocessor | None, world: World) -> Shape:
    """The shape, known on every process, once all have found that they run the same."""
    mine = None
    if data is not None:
        assert preprocessor is not None
        tests = len(data.test.X) if data.test else 0
        mine = Shape(len(data.train.X), tests, data.train.X.shape[1], preprocessor.num_outputs)
    shape = Shape(**json.loads(world.share(json.dumps(dataclasses.asdict(mine)) if mine else "")))
    # Threads may differ from machine to machine; everything else is the mathematics.
    same = dataclasses.replace(config, threads=None, device="")
    world.agree(
        {
            "version": __version__,
            "torch": torch.__version__,
            "configuration": hashlib.sha256(to_toml(same).encode()).hexdigest()[:16],
            "shape of the data": dataclasses.astuple(mine or shape),
        }
    )
    _check_shards(world.num_shards, shape)
    return shape


def _check_shards(num_shards: int, shape: Shape) -> None:
    fewest = min(shape.samples, shape.tests) if shape.tests else shape.samples
    if num_shards > fewest:
        raise UserError(f"shards must not be more than the samples of a part, which are {fewest}; got {num_shards}")


def _problem(
    config: Config, data: Dataset | None, preprocessor: Preprocessor | None, shape: Shape, world: World
) -> Problem:
    """This process's part of the data, on the run's device."""
    dtype = getattr(torch, config.dtype)
    rows = Tiling(shape.samples, 1, world.shard, world.num_shards).rows
    train, test, weight = Samples(None, None), Samples(None, None), None
    if data is not None:
        assert preprocessor is not None
        train = _samples(config, preprocessor, data.train, rows, world)
        if train.y is not None:
            weight = _sample_weights(config, preprocessor, data.train)[rows].to(config.device, dtype)
        if data.test is not None:
            rows = Tiling(shape.tests, 1, world.shard, world.num_shards).rows
            test = _samples(config, preprocessor, data.test, rows, world)
    device = torch.device(config.device)
    has_test = test if shape.tests else None
    return Problem(shape.samples, shape.features, shape.outputs, dtype, device, train, weight, has_test)


def _samples(config: Config, preprocessor: Preprocessor, part: Part, rows: slice, world: World) -> Samples:
    """Features on the first stage, targets on the last, of these rows."""
    x = y = None
    if world.stage == 0:
        x = torch.from_numpy(preprocessor.features(part.X[rows], np.dtype(config.dtype))).to(config.device)
        x = x if x.data_ptr() % CACHE_LINE == 0 else x.clone()  # numpy's memory may lie anywhere
    if world.stage == world.num_stages - 1:
        y = torch.from_numpy(preprocessor.targets(part.y[rows])).to(config.device)
        y = y.to(getattr(torch, config.dtype)) if is_regression(config) else y
    return Samples(x, y)


def _sample_weights(config: Config, preprocessor: Preprocessor, part: Part) -> Tensor:
    """One weight a sample: the user's, times its class's."""
    weight = np.ones(len(part.X)) if part.weight is None else part.weight.astype(np.float64)
    if config.class_weight == "balanced":
        if is_regression(config):
            raise UserError(f"class_weight balanced needs classes; the loss is {config.loss}")
        weight = weight * balanced_weights(preprocessor.targets(part.y), preprocessor.num_outputs)
    return torch.from_numpy(weight)


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
