"""The loop: grow, iterate, record, stop.

`train` is the whole way from a data set to a trained model. It knows nothing of files or terminals: rows and notes
go to an observer as they come, and the caller says where they end up.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from pdadmm.checkpoint.restore import Source
from pdadmm.checkpoint.saver import Cost, Saver, Snapshot
from pdadmm.config import Config
from pdadmm.data import Dataset, load_data
from pdadmm.engine.core import Usage
from pdadmm.engine.world import World
from pdadmm.errors import DivergenceError, UserError
from pdadmm.history import Row
from pdadmm.math.losses import is_regression
from pdadmm.model import Model
from pdadmm.observer import Observer
from pdadmm.prepare import Start, prepare
from pdadmm.storage import Storage, storage_of

STATUS = {
    "converged": "residual and change fell below the tolerance; lower it (--set tolerance=VALUE) to go on",
    "completed": "all epochs were run; if the objective is still falling, raise --epochs",
    "interrupted": "stopped on request after a whole iteration; what it came to is saved",
}
"""Why a run may end, and what to do then."""


@dataclass(frozen=True, repr=False)
class Result:
    """What a run leaves behind."""

    model: Model
    history: list[Row]
    status: str
    config: Config
    usage: list[Usage]
    checkpoints: Cost | None
    """What saving the run has cost, where it was saved."""
    resumed_from: int | None
    """The epoch it went on from, where it was resumed."""

    def __repr__(self) -> str:
        return f"Result({self.status} after {self.history[-1]['epoch']} epochs, {self.model!r})"

    @property
    def advice(self) -> str:
        """What the status means and what to do about it."""
        return STATUS[self.status]


def load_for(config: Config, run: Path | None = None) -> Dataset:
    """The data set that the configuration names; `run` is where its directory is, or will be."""
    return load_data(
        config.data,
        target=config.target,
        weight=config.weight,
        test_fraction=config.test_fraction,
        split_seed=config.split_seed,
        regression=is_regression(config),
        storage=storage_of(config, run),
    )


def train(config: Config, data: Dataset, observer: Observer | None = None, start: Start | None = None) -> Result:
    """Train a network on `data` in this process; what can be refused is refused before the first iteration."""
    if not isinstance(data, Dataset):
        raise UserError(
            f"data must be a pdadmm.Dataset, such as load_data returns or "
            f"Dataset('mine', Part(X, y), Part(X_test, y_test), names) makes; got {type(data).__name__}"
        )
    if config.workers * config.shards != 1:
        raise UserError(
            f"train runs in this process alone; got workers {config.workers} and shards {config.shards}, which "
            f"`pdadmm train` starts"
        )
    result = train_in(World(), config, data, observer or Observer(), storage_of(config), start=start)
    assert result is not None
    return result


def train_in(
    world: World,
    config: Config,
    data: Dataset | None,
    observer: Observer,
    storage: Storage,
    saver: Saver | None = None,
    source: Source | None = None,
    start: Start | None = None,
) -> Result | None:
    """The same as one process of a run; the result is on the first one only. `data` may be None in between.

    With a `saver` the run is saved from time to time; with a `source` it is resumed, if there is something to resume.
    """
    prepared = prepare(config.resolved(), data, observer, world, storage, source, start)
    del data
    session, saved, is_first = prepared.session, prepared.saved, world.stage == world.shard == 0
    history: list[Row] = []
    if source is not None and saved is not None:
        history = source.go_on(saved.manifest)
    if saver is not None:
        saver.resumed(session.epoch)

    def snapshot() -> Snapshot:
        state, progress = session.saved_state(), session.progress()
        return Snapshot(session.epoch, progress, state, session.rows, prepared.fingerprint, prepared.num_samples)

    first, epochs, status = session.epoch + 1, session.config.epochs, "completed"
    for epoch in range(first, epochs + 1):
        if session.converged:  # before it was resumed
            status = "converged"
            break
        try:
            row = session.iterate(epoch)
        except DivergenceError as error:
            raise _with_way_back(error, saver) from None
        if epoch == first and prepared.handed_over_from is not None:
            row["handed_over_from"] = prepared.handed_over_from
        due = saver is not None and is_first and saver.is_due(epoch)
        writing = saver is not None and saver.is_writing
        flags = (observer.should_stop(), due, writing)
        (should_stop, due, writing), times = _compare_notes(world, flags, session.spent)
        if len(times) > 1:
            row["workers"] = times
        if session.converged:
            status = "converged"
        elif should_stop:
            status = "interrupted"
        last = status != "completed" or epoch == epochs
        session.add_evaluations(row, last)
        history.append(row)
        observer.on_row(row)
        if not last and observer.is_enough(row):
            status, last = "interrupted", True
        if saver is not None:
            saver.after_epoch(snapshot, due, writing, last)
        if last:
            break
    network, usage = session.network(), session.usage()
    cost = saver.total_cost() if saver else None
    if not is_first:
        return None
    assert prepared.preprocessor is not None
    model = Model(network, prepared.preprocessor)
    resumed_from = saved.manifest.epoch if saved else None
    return Result(model, history, status, session.config, usage, cost, resumed_from)


def _with_way_back(error: DivergenceError, saver: Saver | None) -> DivergenceError:
    """All processes have found the same; what they had saved before is made to count."""
    if saver is None:
        return error
    saver.finish()
    kept = saver.cost.last_epoch
    if kept is None:
        return error
    return DivergenceError(
        f"{error}; the checkpoint of epoch {kept} is kept: pdadmm train --resume {saver.folder.run} "
        f"--allow-changes goes on from it with other options"
    )


def _compare_notes(
    world: World, flags: tuple[bool, ...], spent: tuple[float, ...]
) -> tuple[list[bool], list[list[float]]]:
    """Each flag, true on every process if it is true on one; and how each process spent the iteration, by rank.

    After the iteration, so that what it waited for at its end is counted; and in one exchange, because small ones cost
    as much as large ones.
    """
    processes, rank = world.num_stages * world.num_shards, world.stage * world.num_shards + world.shard
    notes = torch.zeros(len(flags) + processes * len(spent), dtype=torch.float64)
    notes[: len(flags)] = torch.tensor(flags)
    times = notes[len(flags) :].view(processes, len(spent))
    times[rank] = torch.tensor(spent, dtype=torch.float64)
    notes = world.sum_over_shards(world.sum_over_stages(notes))
    told = notes[len(flags) :].view(processes, len(spent)).tolist()
    return [count > 0 for count in notes[: len(flags)].tolist()], told
