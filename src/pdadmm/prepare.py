"""From a configuration and data to a session that can iterate: check, plan, scale, place, build.

Everything that can be refused is refused here, before the first iteration. In a run of several processes, each keeps
only what its layers and its shard need: the rows of its shard, features where the first layer is, targets where the
output layer is. The processes in between load nothing and are told the shape.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from pdadmm import growth
from pdadmm.checkpoint.manifest import Manifest
from pdadmm.checkpoint.restore import SavedRun, Source, find_newest
from pdadmm.config import Config, to_toml
from pdadmm.data import Dataset, Part, Preprocessor, balanced_weights, check_dataset
from pdadmm.engine.output import with_fitted_output
from pdadmm.engine.problem import Problem, Samples
from pdadmm.engine.world import World
from pdadmm.errors import DamageError, UserError
from pdadmm.machine import check_device, default_threads
from pdadmm.math.activations import Activations, get_activations
from pdadmm.math.losses import get_loss, is_regression
from pdadmm.math.tiles import Tiling
from pdadmm.method import Ground, saved_network
from pdadmm.model import load_model
from pdadmm.network import Network, deepen
from pdadmm.observer import Observer
from pdadmm.plan import Shape, check_room, place, plan_memory
from pdadmm.rivals.dladmm import DlAdmm
from pdadmm.rivals.gradient import GradientDescent
from pdadmm.rivals.rival import Rival
from pdadmm.session import Session, final_ridge
from pdadmm.storage import Storage
from pdadmm.version import __version__

Method = Session | Rival


def holds_data(world: World) -> bool:
    """True where the first or the output layer is."""
    return world.stage in (0, world.num_stages - 1)


@dataclass(frozen=True)
class Start:
    """What a run does not make itself: the map of features and targets and, perhaps, the first weights."""

    preprocessor: Preprocessor
    network: Network | None = None


@dataclass(frozen=True)
class Prepared:
    """A session on this process, and what it stands on."""

    session: Method
    preprocessor: Preprocessor | None
    num_samples: int
    fingerprint: str
    saved: SavedRun | None
    """What the session was resumed from."""
    handed_over_from: str | None
    """The method that wrote it, where that is another."""


def prepare(
    config: Config,
    data: Dataset | None,
    observer: Observer,
    world: World,
    storage: Storage,
    resume: Source | None = None,
    given: Start | None = None,
) -> Prepared:
    """Check, plan and build on this process; `data` is given where the first or the output layer is."""
    activations = get_activations(config.activation, len(config.hidden))
    check_device(config.device)
    source = _source(config, given, activations, observer)
    preprocessor = None
    if data is not None:
        data = check_dataset(data, is_regression(config))
        for note in data.notes:
            observer.on_note(note)
        preprocessor = source.preprocessor if source else _fit(config, data)
    shape, fingerprint = _agree(config, data, preprocessor, world)
    placement = place(config, shape)
    if world.num_stages * world.num_shards == 1:
        check_room(config, plan_memory(config, shape, data), storage)
    torch.set_num_threads(config.threads or default_threads())
    problem = _problem(config, data, preprocessor, shape, world, storage)
    ground = Ground(config, problem, shape.tests, activations, placement, world, observer)
    if resume:

        def changes(saved: Manifest, allowed: bool = resume.allow_changes) -> list[str]:
            return _changes(config, saved, shape, fingerprint, allowed)

        own, warn = placement.stages[world.stage], observer.on_warning
        saved = find_newest(world, resume, own, _rows(shape.samples, config, world), problem.device, changes, warn)
        if saved is not None:
            session, handed_over_from = _go_on(ground, saved, changes(saved.manifest, True))
            return Prepared(session, preprocessor, shape.samples, fingerprint, saved, handed_over_from)
        observer.on_note("there is no checkpoint yet; the run begins anew")
    start = None
    if source and source.network:
        start = deepen(source.network.to(problem.dtype, problem.device), config.hidden, activations)
    session = _kind(config).begin(ground, start, 0)
    return Prepared(session, preprocessor, shape.samples, fingerprint, None, None)


def _kind(config: Config) -> type[Session] | type[GradientDescent] | type[DlAdmm]:
    """What trains by the configured method."""
    if config.method == "pdadmm":
        return Session
    return DlAdmm if config.method == "dladmm" else GradientDescent


def _changes(config: Config, saved: Manifest, shape: Shape, fingerprint: str, allow_changes: bool) -> list[str]:
    """Refuse to go on with what would not be the same run; returns the changes that were allowed."""
    try:
        before = Config.from_mapping(saved.config)
    except UserError as error:
        raise UserError(f"the checkpoint was written with options this version does not have: {error}") from None
    changes = config.check_resumes(before, allow_changes)
    samples, shards = shape.samples, config.shards
    if saved.num_samples != samples:
        raise UserError(f"the run was begun with {saved.num_samples} training samples; the data now has {samples}")
    _check_progress(saved, len(config.hidden))
    others = []
    tilings = [Tiling(samples, 1, 0, count, max(config.hidden)) for count in (before.shards, shards)]
    if before.shards != shards and not all(tiling.keeps_bits for tiling in tilings):
        others.append(f"shards was {before.shards} and is now {shards}, which changes the order of sums")
    if saved.data != fingerprint:
        others.append(f"the data was {saved.data[:16]}… and is now {fingerprint[:16]}…, by SHA-256")
    if others and not allow_changes:
        raise UserError(f"{others[0]}; give --allow-changes if that is meant")
    return changes + others


def _go_on(ground: Ground, saved: SavedRun, changes: list[str]) -> tuple[Method, str | None]:
    """A session that goes on from a checkpoint, and the method that wrote it if that is another."""
    config, note, epoch = ground.config, ground.observer.on_note, saved.manifest.epoch
    if epoch > config.epochs:
        raise UserError(f"the run already has {epoch} epochs; raise --epochs, which is {config.epochs}")
    method, before = config.method, Config.from_mapping(saved.manifest.config)
    if before.method == method:
        for change in changes:
            note(f"{change}; a new certificate begins" if method == "pdadmm" else change)
        return _kind(config).go_on(ground, saved, bool(changes)), None
    if epoch == config.epochs:
        raise UserError(f"the run already has {epoch} epochs, so none is left for {method}; raise --epochs")
    for change in changes:
        if not change.startswith("method was"):
            note(change)
    network, problem = saved_network(ground, saved), ground.problem  # it may still have been growing
    if before.fit_output == "on":  # as in the last row: the checkpoint has the output layer of the iteration
        assert before.ridge is not None
        ridge = final_ridge(before.ridge, before.ridge_final, problem.num_samples, problem.num_features)
        network = with_fitted_output(network, get_loss(before), problem, ridge)
    session = _kind(config).begin(ground, deepen(network, config.hidden, ground.activations), epoch)
    kept = f"{method} takes over from {before.method} after epoch {epoch}; weights and history are kept"
    note(f"{kept}; {session.begins_anew}")
    return session, before.method


def _check_progress(saved: Manifest, output: int) -> None:
    """Refuse growth that this network cannot have."""
    steps = [saved.progress.layers[:-1], *(layers for _, layers in saved.progress.stages)]
    epochs = [saved.epoch, *(epoch for epoch, _ in saved.progress.stages)]
    rising = all(late >= early for early, late in pairwise(epochs))
    nested = all(set(few) < set(more) for few, more in pairwise(steps))
    inside = all(layers == sorted(set(layers)) and set(layers) <= set(range(output)) for layers in steps)
    whole = len(steps[-1]) == output and saved.progress.layers[-1:] == [output]
    if not (rising and nested and inside and whole and steps[0]):
        raise DamageError(f"the checkpoint of epoch {saved.epoch} has layers that the network does not have")


def check_run(config: Config, data: Dataset, storage: Storage) -> None:
    """What `prepare` would refuse, before any process starts."""
    check_device(config.device)
    data = check_dataset(data, is_regression(config))
    shape = _shape(data, _fit(config, data))
    place(config, shape)
    _check_shards(config.shards, shape)
    check_room(config, plan_memory(config, shape, data), storage)
    growth.parse_schedule(config.grow or "off", len(config.hidden), config.epochs)


def _fit(config: Config, data: Dataset) -> Preprocessor:
    assert config.scaling is not None
    return Preprocessor.fit(data.train, config.scaling, is_regression(config), data.feature_names)


def _shape(data: Dataset, preprocessor: Preprocessor) -> Shape:
    tests = len(data.test.X) if data.test else 0
    return Shape(len(data.train.X), tests, data.train.X.shape[1], preprocessor.num_outputs)


def _agree(config: Config, data: Dataset | None, preprocessor: Preprocessor | None, world: World) -> tuple[Shape, str]:
    """Shape and fingerprint of the data, known on every process, once all have found that they run the same."""
    mine, mark = None, ""
    if data is not None:
        assert preprocessor is not None
        mine = _shape(data, preprocessor)
        mark = _fingerprint(data, preprocessor)
    first = world.gather(json.dumps([dataclasses.asdict(mine), mark] if mine else None))[0]
    values, shared_mark = json.loads(first)
    shape = Shape(**values)
    # Threads, files and where arrays live may differ from machine to machine; everything else is the mathematics.
    same = dataclasses.replace(config, threads=None, device="cpu", data="", storage="memory", storage_dir=None)
    world.agree(
        {
            "version": __version__,
            "torch": torch.__version__,
            "configuration": hashlib.sha256(to_toml(same).encode()).hexdigest()[:16],
            "shape of the data": dataclasses.astuple(mine or shape),
            "the data's SHA-256": mark or shared_mark,
        }
    )
    _check_shards(world.num_shards, shape)
    return shape, shared_mark


def _fingerprint(data: Dataset, preprocessor: Preprocessor) -> str:
    """Of the data as the network sees it: `--init-from` brings a scaling of its own."""
    digest = hashlib.sha256(data.fingerprint().encode())
    for name, array in preprocessor.to_tensors().items():
        digest.update(name.encode() + array.tobytes())
    digest.update(json.dumps(preprocessor.to_metadata(), sort_keys=True).encode())
    return digest.hexdigest()


def _check_shards(num_shards: int, shape: Shape) -> None:
    fewest = min(shape.samples, shape.tests) if shape.tests else shape.samples
    if num_shards > fewest:
        raise UserError(f"shards must not be more than the samples of a part, which are {fewest}; got {num_shards}")


def _problem(
    config: Config,
    data: Dataset | None,
    preprocessor: Preprocessor | None,
    shape: Shape,
    world: World,
    storage: Storage,
) -> Problem:
    """This process's part of the data, on the run's device."""
    dtype = getattr(torch, config.dtype)
    rows = _rows(shape.samples, config, world)
    train, test, weight = Samples(None, None), Samples(None, None), None
    if data is not None:
        assert preprocessor is not None
        train = _samples(config, preprocessor, data.train, rows, world, storage)
        if train.y is not None:
            weight = _sample_weights(config, preprocessor, data.train)[rows].to(config.device, dtype)
        if data.test is not None:
            test_rows = _rows(shape.tests, config, world)
            test = _samples(config, preprocessor, data.test, test_rows, world, storage)
    device = torch.device(config.device)
    has_test = test if shape.tests else None
    return Problem(shape.samples, shape.features, shape.outputs, dtype, device, train, weight, has_test, storage)


def _rows(samples: int, config: Config, world: World) -> slice:
    """Those of the shard among so many samples."""
    return Tiling(samples, 1, world.shard, world.num_shards, max(config.hidden)).rows


def _samples(
    config: Config, preprocessor: Preprocessor, part: Part, rows: slice, world: World, storage: Storage
) -> Samples:
    """Features on the first stage, targets on the last, of these rows."""
    x = y = None
    if world.stage == 0:
        X = part.X[rows]
        x = storage.empty(*X.shape, dtype=getattr(torch, config.dtype))
        preprocessor.features(X, np.dtype(config.dtype), x.numpy())
        x = x.to(config.device)
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


def _source(config: Config, given: Start | None, activations: Activations, observer: Observer) -> Start | None:
    """What to start from, if anything: what the caller gave, or the model that the options name."""
    if config.init_from is None:
        return given
    model = load_model(config.init_from, config.device)
    known = model.network.activations
    if set(known.names) != set(activations.names):
        raise UserError(f"activation must be that of the model to start from, {known.name}; got {activations.name}")
    if model.preprocessor.regression != is_regression(config):
        kind = "real values: give --loss squared or huber" if model.preprocessor.regression else "classes"
        raise UserError(
            f"loss {config.loss} does not fit the model to start from, {config.init_from}, which predicts {kind}"
        )
    plan = growth.embed(model.network.kinds, list(zip(config.hidden, activations.names, strict=True)))
    observer.on_note(f"features are scaled as by the model to start from, {config.init_from}; --scaling is not used")
    inserted = [f for f, source in zip(activations, plan, strict=True) if source is None and not f.idempotent]
    if inserted:
        observer.on_note(f"inserting layers changes the function: f(f(z)) differs from f(z) for {inserted[0].name}")
    return Start(model.preprocessor, model.network)
