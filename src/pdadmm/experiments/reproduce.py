"""Carry out experiments, one after the other: check all of them, then measure, run and write."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from pdadmm.errors import UserError
from pdadmm.experiments.accuracy import Accuracy
from pdadmm.experiments.convergence import Convergence
from pdadmm.experiments.experiment import Experiment, Settings
from pdadmm.experiments.parts import check_cached, write_part
from pdadmm.experiments.result import Result
from pdadmm.experiments.runs import Failure, train
from pdadmm.experiments.speedup import Speedup
from pdadmm.rundir import make_directory

EXPERIMENTS: dict[str, Callable[[Settings, str], Experiment]] = {
    "speedup-layers": Speedup,
    "speedup-neurons": Speedup,
    "convergence": Convergence,
    "accuracy": Accuracy,
}
"""By name, in the order of the paper."""


def reproduce(
    names: Sequence[str], settings: Settings, threads: int = 1, table_only: bool = False, quiet: bool = False
) -> tuple[list[Result], list[Failure]]:
    """Carry the named experiments out; what each came to is written as soon as it is there.

    As many runs of `threads` go side by side as the cores allow. With `table_only` nothing is run.
    """
    experiments = [EXPERIMENTS[name](settings, name) for name in names]
    for case in (case for experiment in experiments for case in experiment.cases):
        case.check()
    if not table_only:
        check_cached(dict.fromkeys(data for experiment in experiments for data in _data_needed(experiment)))
    make_directory(settings.out)
    results, failures = [], list[Failure]()
    for experiment in experiments:
        folder, failed = settings.out / experiment.name, list[Failure]()
        if not table_only:
            for data in _data_needed(experiment):
                write_part(data, settings)
            experiment.prepare(quiet)
            failed = train(experiment.cases, threads, quiet, experiment.name)
        result = experiment.result()
        if table_only and not result.tables:
            raise UserError(f"{folder} has no finished run yet that a table could be made of")
        result = dataclasses.replace(result, notes=[*result.notes, *(f"Failed: {failure}." for failure in failed)])
        result.write(folder)
        results.append(result)
        failures += failed
    return results, failures


def _data_needed(experiment: Experiment) -> list[str]:
    """The data sets of runs that are still to be trained."""
    return list(dict.fromkeys(case.data for case in experiment.cases if case.data and not case.is_finished))
