"""Carry out experiments, one after the other: check all of them, then measure, run and write."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Protocol

from pdadmm.errors import UserError
from pdadmm.experiments import accuracy, convergence
from pdadmm.experiments.result import Result
from pdadmm.experiments.runs import Case, Failure, train
from pdadmm.experiments.settings import Settings, check_cached, write_part
from pdadmm.experiments.speedup import Speedup
from pdadmm.rundir import make_directory


class Experiment(Protocol):
    """Runs that are needed, and what they come to."""

    @property
    def cases(self) -> list[Case]:
        """The runs."""

    def result(self) -> Result:
        """What the finished ones came to."""


EXPERIMENTS: dict[str, Callable[[Settings], Experiment]] = {
    "speedup-layers": lambda settings: Speedup(settings, "speedup-layers"),
    "speedup-neurons": lambda settings: Speedup(settings, "speedup-neurons"),
    convergence.NAME: convergence.Convergence,
    accuracy.NAME: accuracy.Accuracy,
}
"""By name, in the order of the paper."""


def reproduce(
    names: Sequence[str], settings: Settings, threads: int = 1, table_only: bool = False, quiet: bool = False
) -> tuple[list[Result], list[Failure]]:
    """Carry the named experiments out; what each came to is written as soon as it is there.

    As many runs of `threads` go side by side as the cores allow. With `table_only` nothing is run.
    """
    experiments = {name: EXPERIMENTS[name](settings) for name in names}
    needed = {name: _data_needed(experiment) for name, experiment in experiments.items()}
    for experiment in experiments.values():
        for case in experiment.cases:
            case.check()
    if not table_only:
        check_cached(dict.fromkeys(data for sets in needed.values() for data in sets))
    make_directory(settings.out)
    results, failures = [], list[Failure]()
    for name, experiment in experiments.items():
        failed: list[Failure] = []
        if not table_only:
            for data in needed[name]:
                write_part(data, settings)
            if isinstance(experiment, Speedup):
                experiment.prepare(quiet)
            failed = train(experiment.cases, threads, quiet, name)
        result = experiment.result()
        if table_only and not result.tables:
            raise UserError(f"{settings.out / name} has no finished run yet that a table could be made of")
        result = dataclasses.replace(result, notes=[*result.notes, *(f"Failed: {failure}." for failure in failed)])
        result.write(settings.out / name)
        results.append(result)
        failures += failed
    return results, failures


def _data_needed(experiment: Experiment) -> list[str]:
    """The data sets of runs that are still to be trained."""
    return list(dict.fromkeys(case.data for case in experiment.cases if case.data and not case.is_finished))
