"""What a `pdadmm reproduce` is asked for, what its scales mean, and the data that its runs train on."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pdadmm.data import load_data
from pdadmm.data.arrays import Array
from pdadmm.data.cache import data_home, presence
from pdadmm.data.published import VARIANTS
from pdadmm.errors import UserError
from pdadmm.experiments.published import DATA, PAPER
from pdadmm.rundir import make_directory, write_whole


@dataclass(frozen=True)
class Scale:
    """The sizes of all experiments at one scale, as `paper.toml` explains them; None stands for all samples."""

    name: str
    depth: int
    width: int
    accuracy_epochs: int
    convergence_epochs: int
    narrower: int
    timed_epochs: int
    samples: int | None = None
    tests: int | None = None
    speedup_samples: int | None = None


SCALES = {name: Scale(name, **values) for name, values in PAPER["scales"].items()}


@dataclass(frozen=True)
class Settings:
    """What was asked for, and where it goes."""

    out: Path
    scale: Scale
    command: str
    data: tuple[str, ...] | None = None
    methods: tuple[str, ...] | None = None
    seeds: tuple[int, ...] = (0,)
    curves: Path | None = None
    """Accuracies measured before, which take the place of runs."""

    def chosen_data(self, known: Sequence[str], experiment: str) -> list[str]:
        """The data sets asked for that the experiment has, where it need not have all of them."""
        asked = None if self.data is None else [name for name in self.data if name in known or name not in DATA]
        return _chosen("--data", asked or self.data, known, experiment)

    def chosen_methods(self, known: Sequence[str], experiment: str) -> list[str]:
        """The methods asked for, all of which the experiment must have."""
        return _chosen("--methods", self.methods, known, experiment)

    def notes(self, paper: dict[str, Any], more: Iterable[str]) -> list[str]:
        """What was run and what must be said of it; `paper` is the experiment's part of `paper.toml`."""
        values = dataclasses.asdict(self.scale)
        templates = [*paper["notes"], paper["scaled_down"] if self.scale.samples else paper.get("full_size")]
        notes = [f"Scale: {self.scale.name}. Made by `{self.command}`."]
        notes += [text.format(**values) for text in templates if text]
        return [*notes, *more, *(PAPER["defects"][name] for name in paper["defects"])]


def _chosen(flag: str, asked: Sequence[str] | None, known: Sequence[str], experiment: str) -> list[str]:
    unknown = [name for name in asked or () if name not in known]
    if unknown:
        raise UserError(f"{flag} of {experiment} must be among {', '.join(known)}; got {' '.join(unknown)}")
    return [name for name in known if asked is None or name in asked]


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


def source_of(name: str, settings: Settings) -> str:
    """What `--data` is to say: the name, where all of it is wanted, or the file that holds a part of it."""
    scale = settings.scale
    return name if scale.samples is None else str(settings.out / "data" / f"{name}-{scale.samples}-{scale.tests}.npz")


def write_part(name: str, settings: Settings) -> None:
    """Make that file, its classes in proportion, unless it is there or not needed."""
    scale, path = settings.scale, Path(source_of(name, settings))
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
