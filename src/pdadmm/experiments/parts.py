"""The data that runs train on: all of a data set, or a part that is kept as a file."""

from __future__ import annotations

import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from pdadmm.data import load_data
from pdadmm.data.arrays import Array
from pdadmm.data.cache import data_home, presence
from pdadmm.data.published import VARIANTS
from pdadmm.errors import UserError
from pdadmm.experiments.experiment import Settings
from pdadmm.rundir import make_directory, write_whole


def check_cached(names: Iterable[str]) -> None:
    """Refuse data sets that are not in the cache, all at once."""
    home, lacking = data_home(), []
    for name in names:
        collection = VARIANTS[name].collection
        if presence(collection, home) not in ("yes", "part" if collection.may_lack else "yes"):
            lacking.append(name)
    if lacking:
        raise UserError(
            f"{', '.join(lacking)} not in {home}: `pdadmm data fetch {' '.join(lacking)}` fetches what is missing, "
            f"--data picks other sets, and PDADMM_DATA_HOME names another folder"
        )


def write_part(name: str, settings: Settings) -> None:
    """Make the file of a part, its classes in proportion, unless it is there or not needed."""
    scale, path = settings.scale, Path(settings.source(name))
    if scale.samples is None or scale.tests is None or path.exists():
        return
    data = load_data(name)
    assert data.test is not None
    train, test = stratified(data.train.y, scale.samples), stratified(data.test.y, scale.tests)
    arrays = {"X_train": data.train.X[train], "y_train": data.train.y[train]}
    write_npz(path, arrays | {"X_test": data.test.X[test], "y_test": data.test.y[test]})


def write_npz(path: Path, arrays: dict[str, Any]) -> None:
    """Arrays as a file that `--data` takes."""
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    make_directory(path.parent)
    write_whole(path, buffer.getvalue())


def stratified(y: Array, count: int) -> Array:
    """Row numbers of `count` samples, evenly over the samples of each class, in the order they have."""
    if count >= len(y):
        return np.arange(len(y))
    by_class = np.argsort(y, kind="stable")
    rows: Array = np.sort(by_class[np.arange(count) * len(y) // count])
    return rows
