"""What the experiments share: what was asked for, the sizes, the runs that are needed, and the notes on them."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pdadmm.config import PRESETS, Config
from pdadmm.errors import UserError
from pdadmm.experiments.published import DATA, PAPER
from pdadmm.experiments.result import Figure, Result, Table
from pdadmm.experiments.runs import Case


@dataclass(frozen=True)
class Scale:
    """The sizes of all experiments at one scale, as `paper.toml` explains them; None stands for all samples."""

    name: str
    depth: int
    width: int
    epochs: dict[str, int]
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

    def source(self, data: str) -> str:
        """What `--data` is to say: the name, where all of it is wanted, or the file that holds a part of it."""
        scale = self.scale
        return data if scale.samples is None else str(self.out / "data" / f"{data}-{scale.samples}-{scale.tests}.npz")


class Experiment(ABC):
    """Runs that are needed, and what they come to; `paper` is its part of `paper.toml`."""

    def __init__(self, settings: Settings, name: str, paper: dict[str, Any]) -> None:
        self.settings, self.name, self.paper = settings, name, paper
        known, asked = paper.get("data", DATA), settings.data
        if asked is not None:  # not every experiment has all data sets
            asked = tuple(one for one in asked if one in known or one not in DATA) or asked
        self.data = _chosen(f"--data of {name}", asked, known)
        self.methods = _chosen(f"--methods of {name}", settings.methods, paper["methods"])

    @property
    @abstractmethod
    def cases(self) -> list[Case]:
        """The runs."""

    def prepare(self, quiet: bool) -> None:  # noqa: B027
        """What must be done before the runs can be named."""

    @abstractmethod
    def result(self) -> Result:
        """What the finished ones came to."""

    def case(self, data: str, method: str, suffix: str = "", **more: Any) -> Case:
        """A run of one of the methods in `paper.toml`, on all of a data set or a part."""
        scale, chosen = self.settings.scale, self.paper["methods"][method]
        options = {
            **self.paper["options"],
            **PRESETS.get(chosen.get("preset"), {}),
            **chosen.get("options", {}),
            **more,
        }
        options |= {"data": self.settings.source(data), "hidden": (scale.width,) * scale.depth}
        config = Config.from_mapping({**options, "epochs": scale.epochs[self.name]})
        return Case(self.settings.out / self.name / "runs" / f"{data}-{method}{suffix}", config, data)

    def made(self, notes: Iterable[str], tables: list[Table], figures: list[Figure]) -> Result:
        """The result, with notes of what was run and what must be said of it."""
        values, scale = dataclasses.asdict(self.settings.scale), self.settings.scale
        templates = [*self.paper["notes"], self.paper["scaled_down"] if scale.samples else self.paper.get("full_size")]
        first = [f"Scale: {scale.name}. Made by `{self.settings.command}`."]
        first += [text.format(**values) for text in templates if text]
        last = [PAPER["defects"][name] for name in self.paper["defects"]]
        return Result(self.name, self.paper["title"], [*first, *notes, *last], tables, figures)

    def notes_on_runs(self, found: Collection[str]) -> list[str]:
        """What was really trained on, as caches may hold a part of a data set, and what is not among those `found`."""
        counts = {}
        for case in self.cases:
            if case.data is not None and case.is_finished and (summary := case.summary()) is not None:
                data = summary["data"]
                counts[DATA[case.data]] = f"{data['train_samples']:,}/{data['test_samples']:,}"
        shown, missing = (
            ", ".join(f"{name} {count}" for name, count in counts.items()),
            set(self.data).difference(found),
        )
        notes = [f"Training and test samples of the runs: {shown}."] if counts else []
        if missing:
            notes.append(f"No finished run yet: {', '.join(data for data in self.data if data in missing)}.")
        return notes


def _chosen(what: str, asked: Sequence[str] | None, known: Iterable[str]) -> list[str]:
    unknown = [name for name in asked or () if name not in known]
    if unknown:
        raise UserError(f"{what} must be among {', '.join(known)}; got {' '.join(unknown)}")
    return [name for name in known if asked is None or name in asked]
