"""What a `pdadmm reproduce` is asked for, and what its scales mean."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pdadmm.data.cache import data_home
from pdadmm.data.published import VARIANTS
from pdadmm.errors import UserError
from pdadmm.experiments.published import DATA
from pdadmm.plan import Shape


@dataclass(frozen=True)
class Scale:
    """The sizes of all experiments at one scale."""

    name: str
    samples: int | None
    """Training samples of accuracy and convergence at most, or None for all."""
    tests: int | None
    """Test samples likewise."""
    depth: int
    width: int
    accuracy_epochs: int
    convergence_epochs: int
    speedup_samples: int | None
    """Samples of the networks whose speedup is asked at most."""
    narrower: int
    """By what the widths of those networks are divided."""
    timed_epochs: int
    """Epochs of a timed run; the first does not count."""

    @property
    def hidden(self) -> tuple[int, ...]:
        """The network of accuracy and convergence."""
        return (self.width,) * self.depth


SCALES = {
    scale.name: scale
    for scale in (
        Scale("tiny", 200, 100, 6, 16, 25, 12, 200, 100, 2),
        Scale("small", 4000, 2000, 9, 200, 95, 100, 2000, 8, 8),
        Scale("paper", None, None, 9, 500, 95, 100, None, 1, 3),
    )
}
"""By name: tiny proves that all works and means nothing, small takes minutes, paper has the published sizes."""


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

    def folder(self, experiment: str) -> Path:
        """Where an experiment writes."""
        return self.out / experiment

    def chosen_data(self, known: tuple[str, ...], experiment: str) -> tuple[str, ...]:
        """The data sets asked for that the experiment has."""
        _check("--data", self.data or (), tuple(DATA), "reproduce")
        chosen = tuple(name for name in known if self.data is None or name in self.data)
        if not chosen:
            raise UserError(f"--data of {experiment} must be among {', '.join(known)}; got {' '.join(self.data or ())}")
        return chosen

    def chosen_methods(self, known: tuple[str, ...], default: tuple[str, ...], experiment: str) -> tuple[str, ...]:
        """The methods asked for that the experiment has."""
        if self.methods is None:
            return default
        _check("--methods", self.methods, known, experiment)
        return tuple(name for name in known if name in self.methods)


def _check(flag: str, asked: tuple[str, ...], known: tuple[str, ...], experiment: str) -> None:
    for name in asked:
        if name not in known:
            raise UserError(f"{flag} of {experiment} must be among {', '.join(known)}; got {name!r}")


def check_cached(names: tuple[str, ...]) -> None:
    """Refuse data sets that are not in the cache, all at once."""
    home, lacking = data_home(), []
    for name in names:
        collection = VARIANTS[name].collection
        train = [(home / file.path).exists() for file in collection.train]
        test = [(home / file.path).exists() for file in collection.test]
        if not all(test) or not (any(train) if collection.may_lack else all(train)):
            lacking.append(name)
    if lacking:
        raise UserError(
            f"{', '.join(lacking)} not in {home}: `pdadmm data fetch {' '.join(lacking)}` fetches what is missing, "
            f"--data picks other sets, and PDADMM_DATA_HOME names another folder"
        )


def shape_of(data: str) -> Shape:
    """The shape of a data set of the paper."""
    variant = VARIANTS[data]
    return Shape(*variant.samples, variant.features, variant.num_classes)
