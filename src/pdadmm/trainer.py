"""The loop: grow, iterate, record, stop.

`train` is the whole way from a data set to a trained model. It knows nothing of files or terminals: rows and notes
go to an observer as they come, and the caller says where they end up.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from pdadmm.config import Config
from pdadmm.data import Dataset, load_data
from pdadmm.engine.core import Usage
from pdadmm.engine.world import LocalWorld, World
from pdadmm.errors import UserError
from pdadmm.history import Row
from pdadmm.math.losses import is_regression
from pdadmm.model import Model
from pdadmm.observer import Observer
from pdadmm.prepare import prepare

STATUS = {
    "converged": "residual and change fell below the tolerance; lower --tolerance to go on",
    "completed": "all epochs were run; if the objective is still falling, raise --epochs",
    "interrupted": "stopped on request after a whole iteration; the model is that of the last row",
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

    def __repr__(self) -> str:
        return f"Result({self.status} after {self.history[-1]['epoch']} epochs, {self.model!r})"

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
    result = train_in(LocalWorld(), config, data, observer or Observer())
    assert result is not None
    return result


def train_in(world: World, config: Config, data: Dataset | None, observer: Observer) -> Result | None:
    """The same as one process of a run; the result is on the first one only. `data` may be None in between."""
    session, preprocessor = prepare(config.resolved(), data, observer, world)
    del data
    history: list[Row] = []
    status = "completed"
    for epoch in range(1, session.config.epochs + 1):
        row, reports = session.iterate(epoch)
        if session.is_converged(reports):
            status = "converged"
        elif _anyone(world, observer.should_stop()):
            status = "interrupted"
        last = status != "completed" or epoch == session.config.epochs
        session.add_evaluations(row, last)
        history.append(row)
        observer.on_row(row)
        if last:
            break
    session.engine.finish()
    network, usage = session.engine.network(), session.engine.usage()
    if world.stage or world.shard:
        return None
    assert preprocessor is not None
    return Result(Model(network, preprocessor), history, status, session.config, usage)


def _anyone(world: World, flag: bool) -> bool:
    """True on every process if it is true on one."""
    count = torch.tensor([float(flag)], dtype=torch.float64)
    return bool(world.sum_over_shards(world.sum_over_stages(count)) > 0)
