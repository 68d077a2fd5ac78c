"""Carry out experiments, one after the other: check all of them, then run, measure, write."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from pdadmm.errors import UserError
from pdadmm.experiments import accuracy, convergence, speedup_layers, speedup_neurons
from pdadmm.experiments.cases import Case
from pdadmm.experiments.meter import Meter
from pdadmm.experiments.results import Results, require_plot
from pdadmm.experiments.runner import Failure, Runner
from pdadmm.experiments.settings import Settings
from pdadmm.experiments.speedup import Speedup
from pdadmm.machine import usable_cores
from pdadmm.rundir import make_directory


class Experiment(Protocol):
    """Runs that are needed, and what they come to."""

    name: str
    title: str
    cases: list[Case]

    def check(self) -> None:
        """Refuse what cannot be run."""

    def make_data(self) -> None:
        """Write the data that is run on, where it is not a named set."""

    def results(self) -> Results:
        """What the finished runs came to."""


EXPERIMENTS: dict[str, Callable[[Settings], Experiment]] = {
    speedup_layers.NAME: speedup_layers.make,
    speedup_neurons.NAME: speedup_neurons.make,
    convergence.NAME: convergence.Convergence,
    accuracy.NAME: accuracy.Accuracy,
}
"""By name, in the order of the paper."""


@dataclass(frozen=True)
class Effort:
    """How the work is done."""

    threads: int = 1
    """Of a run; as many runs go side by side as the cores allow."""
    table_only: bool = False
    """Run nothing; write what the finished runs came to."""
    quiet: bool = False


def reproduce(names: Sequence[str], settings: Settings, effort: Effort) -> tuple[list[Results], list[Failure]]:
    """Carry the named experiments out; what each came to is written as soon as it is there."""
    require_plot()
    experiments = [EXPERIMENTS[name](settings) for name in names]
    for experiment in experiments:
        for case in experiment.cases:
            case.check()
        if not effort.table_only:
            experiment.check()
    make_directory(settings.out)
    meter = _meter(experiments, effort)
    runner = Runner(meter, max(1, usable_cores() // effort.threads), effort.threads)
    found, failures = [], list[Failure]()
    for experiment in experiments:
        failed: list[Failure] = []
        if not effort.table_only:
            experiment.make_data()
            failed = runner.run(experiment.cases)
            if isinstance(experiment, Speedup):
                experiment.measure(meter)
        results = experiment.results()
        if effort.table_only and not results.table.rows:
            raise UserError(f"{settings.folder(experiment.name)} has no finished run yet that a table could be made of")
        results.notes += [f"Failed: {failure}." for failure in failed]
        failures += failed
        results.write(settings.folder(experiment.name))
        found.append(results)
    return found, failures


def _meter(experiments: Sequence[Experiment], effort: Effort) -> Meter:
    """All there is to do; what was done before does not count for the time that is left."""
    cases = {case.key: case for experiment in experiments for case in experiment.cases}
    speedups = [experiment for experiment in experiments if isinstance(experiment, Speedup)]
    blocks = {block.key: (one, block) for one in speedups for block in one.blocks}
    work = {key: case.work for key, case in cases.items()} | {key: block.work for key, (_, block) in blocks.items()}
    meter = Meter(work, effort.quiet or effort.table_only)
    for key, case in cases.items():
        meter.skip(key, 1.0 if case.is_finished() else 0.999 * case.epochs_done() / case.config.epochs)
    for key, (one, block) in blocks.items():
        if one.is_measured(block):
            meter.skip(key)
    return meter
