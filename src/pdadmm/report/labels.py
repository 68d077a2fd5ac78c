"""The options that were given to runs, and labels made of them: one for all runs that differ in their seed alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pdadmm.config import Config
from pdadmm.notation import format_hidden
from pdadmm.report.runs import FoundRun

_DECIDING = ("data", "method", "epochs", "solver", "nu")  # other defaults follow from these
_SHAPING = {"workers", "shards", "epochs"}  # a run may be resumed with others, but they shape seconds, ridge and growth
_SPELLED_OUT = 3  # differences in a label; with a fourth the run's own name is shorter


@dataclass(frozen=True)
class Option:
    """An option whose value differs from what it would be if it had not been given."""

    name: str
    value: str
    default: str
    help: str


def given(config: Config) -> list[Option]:
    """The options of a resolved configuration that were given."""
    names = _DECIDING if config.method == "pdadmm" else _DECIDING[:3]
    plain: dict[str, Any] = {name: getattr(config, name) for name in names}
    usual, first = Config(**plain).resolved(), Config().resolved()
    found = []
    for field in dataclasses.fields(config):
        default = getattr(first if field.name in plain else usual, field.name)
        if (value := getattr(config, field.name)) != default:
            found.append(Option(field.name, _text(value), _text(default), field.metadata["help"]))
    return found


def _text(value: object) -> str:
    return "not set" if value is None else format_hidden(value) if isinstance(value, tuple) else str(value)


def labels(runs: Sequence[FoundRun]) -> list[str]:
    """For every run its method, and the options that tell it from the others of that method on its data set."""
    free = {field.name for field in dataclasses.fields(Config) if field.metadata["on_resume"] == "free"}
    skipped = (free - _SHAPING) | {"seed", "method"}
    chosen = [
        {option.name: option.value for option in given(run.config) if option.name not in skipped} if run.config else {}
        for run in runs
    ]
    result = []
    for run, mine in zip(runs, chosen, strict=True):
        if run.config is None:
            result.append(run.name)
            continue
        beside = [
            theirs
            for other, theirs in zip(runs, chosen, strict=True)
            if (other.data, other.method) == (run.data, run.method)
        ]
        parts = [_part(name, value) for name, value in mine.items() if any(o.get(name) != value for o in beside)]
        if len(parts) > _SPELLED_OUT:
            alike = zip(runs, chosen, strict=True)
            parts = [next(r.name for r, theirs in alike if theirs == mine and r.data == run.data)]
        result.append(", ".join([run.method, *parts]))
    return result


def _part(name: str, value: str) -> str:
    return value if name in ("hidden", "solver") else f"{name.replace('_', ' ')} {value}"
