"""What to call the runs beside each other: one label for those that differ in their seed alone."""

from __future__ import annotations

from collections.abc import Sequence

from pdadmm.config import Config
from pdadmm.report.options import Option, options
from pdadmm.report.runs import FoundRun

_SHAPING = {"workers", "shards", "epochs"}  # a run may be resumed with others, but they shape seconds, ridge and growth
_NAMED = 3  # differences that a label spells out; with a fourth the run's own name is shorter


def labels(runs: Sequence[FoundRun]) -> list[str]:
    """For every run its method, and the options that were given it and tell it from the others on its data set.

    A default need not be said, nor what follows from another option.
    """
    names = [_method(run, runs) for run in runs]
    keys = [_key(run.config) if run.config else {} for run in runs]
    result = []
    for run, name, key in zip(runs, names, keys, strict=True):
        beside = [k for r, n, k in zip(runs, names, keys, strict=True) if (r.data, n) == (run.data, name)]
        parts = [_part(option) for option in key.values() if option.is_given and _differs(option, beside)]
        result.append(", ".join([name, *parts]) if len(parts) <= _NAMED else f"{name}, {run.name}")
    return result


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
