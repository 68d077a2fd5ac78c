"""What to call the runs beside each other: one label for those that differ in their seed alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pdadmm.config import Config
from pdadmm.report.options import Option, options
from pdadmm.report.runs import FoundRun

_SHAPING = {"workers", "shards", "epochs"}  # a run may be resumed with others, but they shape seconds, ridge and growth
_NAMED = 3  # differences that a label spells out; with a fourth the run's own name is shorter


@dataclass(frozen=True)
class _Kind:
    """What trained a run, data and seed aside."""

    method: str
    given: tuple[tuple[str, str], ...]


def labels(runs: Sequence[FoundRun]) -> list[str]:
    """For every run its method, and the options that were given it and tell it from the others on its data set.

    A default need not be said, nor what follows from another option. Where the options would be too many, what the
    names of such runs have in common stands for them.
    """
    keys = [_key(run.config) if run.config else {} for run in runs]
    kinds = [
        _Kind(_method(run, runs), tuple((option.name, option.value) for option in key.values() if option.is_given))
        for run, key in zip(runs, keys, strict=True)
    ]
    result = []
    for run, kind, key in zip(runs, kinds, keys, strict=True):
        beside = [k for r, o, k in zip(runs, kinds, keys, strict=True) if (r.data, o.method) == (run.data, kind.method)]
        parts = [_part(option) for option in key.values() if option.is_given and _differs(option, beside)]
        if len(parts) > _NAMED:
            parts = [_common_name([other.name for other, o in zip(runs, kinds, strict=True) if o == kind])]
        result.append(", ".join([kind.method, *parts]))
    return _told_apart(runs, kinds, result)


def _common_name(names: Sequence[str]) -> str:
    """The parts of the last folder's name that all have: `mnist-theory` and `kmnist-theory` are `theory`."""
    first, *others = [Path(name).name.split("-") for name in names]
    return "-".join(part for part in first if all(part in other for other in others)) or Path(names[0]).name


def _told_apart(runs: Sequence[FoundRun], kinds: Sequence[_Kind], found: Sequence[str]) -> list[str]:
    """Runs of other options on the same data set must not share a label: then each has its own name in it."""
    known: dict[tuple[str, str], set[_Kind]] = {}
    for run, kind, label in zip(runs, kinds, found, strict=True):
        known.setdefault((run.data, label), set()).add(kind)
    return [
        label if len(known[run.data, label]) == 1 else f"{kind.method}, {run.name}"
        for run, kind, label in zip(runs, kinds, found, strict=True)
    ]


def _method(run: FoundRun, runs: Sequence[FoundRun]) -> str:
    if run.config is None or run.method != "pdadmm":
        return run.method
    solvers = {other.config.solver for other in runs if other.config and other.method == "pdadmm"}
    return f"pdadmm {run.config.solver}" if len(solvers) > 1 else "pdadmm"


def _key(config: Config) -> dict[str, Option]:
    """The options that make another curve of it."""
    free = {name for name, field in Config.__dataclass_fields__.items() if field.metadata["on_resume"] == "free"}
    skipped = (free - _SHAPING) | {"seed", "method", "solver"}
    return {option.name: option for option in options(config) if option.name not in skipped}


def _differs(option: Option, beside: Sequence[dict[str, Option]]) -> bool:
    return any(key[option.name].value != option.value for key in beside if option.name in key)


def _part(option: Option) -> str:
    return option.value if option.name == "hidden" else f"{option.name.replace('_', ' ')} {option.value or 'not set'}"
