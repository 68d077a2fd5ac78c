"""A part of a named data set in a file, with its classes in proportion: what `--scale small` trains on."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import numpy as np

from pdadmm.data import Part, load_data
from pdadmm.data.arrays import Array
from pdadmm.experiments.cases import Case
from pdadmm.experiments.settings import Scale, Settings, check_cached, shape_of
from pdadmm.plan import Shape
from pdadmm.rundir import make_directory, write_whole


def source_of(name: str, scale: Scale, out: Path) -> str:
    """What `--data` is to say: the name, where all of it is wanted, or the file that holds a part of it."""
    if scale.samples is None:
        return name
    return str(out / "data" / f"{name}-{scale.samples}-{scale.tests}.npz")


def write_part(name: str, scale: Scale, out: Path) -> None:
    """Make that file, unless it is there or not needed."""
    path = Path(source_of(name, scale, out))
    if scale.samples is None or scale.tests is None or path.exists():
        return
    data = load_data(name)
    assert data.test is not None
    (X_train, y_train), (X_test, y_test) = _part(data.train, scale.samples), _part(data.test, scale.tests)
    buffer = io.BytesIO()
    np.savez(buffer, X_train=X_train, y_train=y_train, X_test=X_test, y_test=y_test)
    make_directory(path.parent)
    write_whole(path, buffer.getvalue())


def part_shape(name: str, scale: Scale) -> Shape:
    """Its shape, as far as can be told without reading it."""
    shape = shape_of(name)
    return shape if scale.samples is None else replace(shape, samples=min(shape.samples, scale.samples))


class OnData:
    """What experiments on the paper's data sets share; the name of each of their cases begins with its data set's."""

    cases: list[Case]
    _settings: Settings

    def check(self) -> None:
        """Refuse what cannot be run."""
        check_cached(self._needed())

    def make_data(self) -> None:
        """Write the data that is run on, where it is not a named set."""
        for data in self._needed():
            write_part(data, self._settings.scale, self._settings.out)

    def _needed(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(case.name.split("-")[0] for case in self.cases if not case.is_finished()))


def _part(part: Part, count: int) -> tuple[Array, Array]:
    rows = stratified(part.y, count)
    return part.X[rows], part.y[rows]


def stratified(y: Array, count: int) -> Array:
    """Row numbers of `count` samples, evenly over the samples of each class, in the order they have."""
    if count >= len(y):
        return np.arange(len(y))
    by_class = np.argsort(y, kind="stable")
    rows: Array = np.sort(by_class[np.arange(count) * len(y) // count])
    return rows
