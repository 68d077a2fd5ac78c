"""The paper's method under way: what one epoch does, and what is kept from one epoch to the next."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

from torch import Tensor

from pdadmm import growth
from pdadmm.checkpoint.manifest import Progress
from pdadmm.checkpoint.restore import SavedRun
from pdadmm.config import Config
from pdadmm.engine.core import Engine, Usage
from pdadmm.engine.problem import Problem, method_weights
from pdadmm.errors import DivergenceError, UserError
from pdadmm.history import Row
from pdadmm.math.lagrangian import TOLERANCE, LayerReport, Theory, certain_drop, objective
from pdadmm.math.losses import is_regression
from pdadmm.method import Ground
from pdadmm.network import Network

RIDGE_PER_SAMPLE = 25.0  # the last ridge times the number of samples: the more samples, the less to guard against
MANY_FEATURES = 196  # with fewer the last ridge is lower in proportion; docs/tuning.md has the figures
MOST_FINAL_RIDGE = 0.005  # the last ridge of a few samples
MOST_PACE = 5.0  # by how much the ridge falls faster with any number of samples: the most that was tried
FLOAT32_TOLERANCE = 1e-5  # the certificate's rounding in float32, where it is only shown

DIVERGENCE_ADVICE = (
    "scale the features (--scaling standard), raise the damping (--set damping=0.1) or --rho, or use --dtype float64"
)


def final_ridge(first: float, final: float | None, num_samples: int, num_features: int) -> float:
    """The ridge that a run ends with: as it is told, else by the shape of the data; it never rises."""
    if final is None:
        share = min(1.0, num_features / MANY_FEATURES)
        final = min(MOST_FINAL_RIDGE, RIDGE_PER_SAMPLE * share / num_samples)
    return min(first, final)


@dataclass
class Session:
    """An engine with its data, and the state of the schedule and of the certificate."""

    begins_anew: ClassVar[str] = (
        "p, z and q come from a forward pass, the network does not grow, and a new certificate begins"
    )

    config: Config
    engine: Engine
    problem: Problem
    num_test: int
    theory: Theory
    stages: list[growth.Stage]
    epoch: int = 0
    objective: float = math.nan
    least_drop: float = math.inf
    layers: int = 0
    converged: bool = False

    @classmethod
    def begin(cls, ground: Ground, start: Network | None, after: int) -> Self:
        """With weights that are drawn, or those of `start` and no growth."""
        config = ground.config
        stages = [growth.Stage(after, tuple(range(len(config.hidden))))] if start else _stages(ground)
        session = cls._on(ground, stages, stages[0].layers)
        if message := session.theory.warning():
            ground.observer.on_note(message)
        session.engine.build(start)
        session.epoch = after
        return session

    @classmethod
    def go_on(cls, ground: Ground, saved: SavedRun, changed: bool) -> Self:
        """From a checkpoint; where options were `changed`, a new certificate begins."""
        progress, epochs = saved.manifest.progress, ground.config.epochs
        stages = [growth.Stage(begins, tuple(layers)) for begins, layers in progress.stages]
        if stages and stages[-1].epoch >= epochs:
            raise UserError(f"epochs must be more than {stages[-1].epoch}, where the network grows last; got {epochs}")
        session = cls._on(ground, stages, progress.layers[:-1])
        session.engine.restore(saved, progress.fresh_outputs)
        session.epoch, session.layers = saved.manifest.epoch, len(progress.layers) - 1
        if changed:  # L_rho is another function
            session.engine.finish()
            reports = session.engine.begin_stage(session.ridge(session.epoch + 1))
            session.objective = objective(reports, session.theory.weights)
            return session
        session.converged = progress.converged and session.config.tolerance >= saved.manifest.config["tolerance"]
        session.objective = progress.objective
        session.least_drop = math.inf if progress.least_drop is None else progress.least_drop
        return session

    @classmethod
    def _on(cls, ground: Ground, stages: list[growth.Stage], layers: Sequence[int]) -> Self:
        config, problem = ground.config, ground.problem
        engine = Engine(config, problem, layers, ground.world, ground.placement)
        theory = Theory(method_weights(config), ground.activations.lipschitz)
        return cls(config, engine, problem, ground.num_test, theory, stages)

    @property
    def rows(self) -> slice:
        """The samples of this process among all."""
        return self.engine.tiling.rows

    def saved_state(self) -> dict[int, dict[str, Tensor]]:
        """All that this process must save of its layers."""
        return self.engine.saved_state()

    def network(self) -> Network:
        """The whole network, on every process, once nothing is under way."""
        self.engine.finish()
        if self.config.fit_output == "on":
            self.engine.evaluation.fit_output(self._final_ridge)
        return self.engine.network()

    @property
    def spent(self) -> tuple[float, float, float]:
        """The seconds that this process computed, waited and sent in the last iteration."""
        return self.engine.spent

    def usage(self) -> list[Usage]:
        """What every process did in the iterations so far."""
        return self.engine.usage()

    def iterate(self, epoch: int) -> Row:
        """Grow if it is time, iterate once, and make the row."""
        began = time.perf_counter()  # growth, and the fit that the output layer begins with, are training too
        ridge, grown, weights = self.ridge(epoch), self._grow(epoch), self.theory.weights
        reports = self.engine.iterate(ridge)
        seconds = time.perf_counter() - began
        value = objective(reports, weights)
        if not math.isfinite(value):
            raise DivergenceError(self._what_diverged(epoch, reports))
        row: Row = {"epoch": epoch, "seconds": seconds, "objective": value, "ridge": ridge, "layers": len(reports) - 1}
        if grown:
            row["grown"] = grown
        row |= self._convergence(reports, value)
        # The next iteration is compared at its own, lower ridge.
        factor = self.ridge(epoch + 1) / ridge if ridge else 1.0
        self.objective = value - (1 - factor) * sum(report.ridge for report in reports)
        self.epoch = epoch
        self._check_converged(reports)
        return row

    def progress(self) -> Progress:
        """All that a checkpoint must hold besides the layers."""
        return Progress(
            objective=self.objective,
            least_drop=self.least_drop if math.isfinite(self.least_drop) else None,
            layers=self.engine.layers.present,
            stages=[(stage.epoch, list(stage.layers)) for stage in self.stages],
            fresh_outputs=self.engine.layers.fresh_outputs,
            converged=self.converged,
        )

    def _convergence(self, reports: list[LayerReport], value: float) -> Row:
        """Residuals, the certificate and, where it is defined, the paper's bound."""
        weights = self.theory.weights
        residuals = [report.residual for report in reports[:-1]]
        drop, needed = self.objective - value, certain_drop(reports, weights)
        slack = (TOLERANCE if self.config.dtype == "float64" else FLOAT32_TOLERANCE) * (1 + abs(value))
        row: Row = {
            "residual": math.sqrt(sum(residuals)),
            "residuals": [math.sqrt(square) for square in residuals],
            "dual_change": weights.rho * math.sqrt(sum(residuals)),
            "dual_residual": weights.rho * math.sqrt(sum(report.dq for report in reports[:-1])),
            "drop": drop,
            "certain_drop": needed,
            "certified": drop >= needed - slack,
            "output_residual": math.sqrt(reports[-1].prox_residual),
        }
        if self.theory.holds and self.config.batches == 1:
            row["paper_drop"] = self.theory.paper_drop(reports)
            self.least_drop = min(self.least_drop, row["paper_drop"])
            row["c_k"] = self.least_drop
        return row

    def add_evaluations(self, row: Row, last: bool) -> None:
        """Accuracies and stationarity, where they are due."""
        config, epoch = self.config, row["epoch"]
        if last or epoch % config.evaluate_every == 0:
            metric = "r2" if is_regression(config) else "accuracy"
            if config.fit_output == "on":
                row["seconds"] += self.engine.evaluation.fit_output(self._final_ridge)
            row[f"train_{metric}"] = self.engine.evaluation.score(self.problem.train, self.problem.num_samples)
            if self.problem.test is not None:
                row[f"test_{metric}"] = self.engine.evaluation.score(self.problem.test, self.num_test)
        if config.stationarity_every and (last or epoch % config.stationarity_every == 0):
            row["stationarity"] = self.engine.stationarity(row["ridge"])

    def ridge(self, epoch: int) -> float:
        """lambda of an epoch: geometric from its first to its last value, sooner with many samples."""
        first, final, epochs = self.config.ridge, self._final_ridge, self.config.ridge_epochs
        assert first is not None
        assert epochs is not None
        progress = min(1.0, self._ridge_pace * (epoch - 1) / max(1, epochs - 1))
        if first == 0 or final == 0:
            return first * (1 - progress)
        return float(first * (final / first) ** progress)

    @property
    def _ridge_pace(self) -> float:
        many = self.config.ridge_samples
        return min(MOST_PACE, max(1.0, self.problem.num_samples / many)) if many else 1.0

    @property
    def _final_ridge(self) -> float:
        assert self.config.ridge is not None
        problem = self.problem
        return final_ridge(self.config.ridge, self.config.ridge_final, problem.num_samples, problem.num_features)

    def _check_converged(self, reports: list[LayerReport]) -> None:
        """Whether residual and change of q are below the tolerance, relative to q."""
        if not self.config.tolerance or self.stages:
            return
        size = math.sqrt(sum(report.q for report in reports))
        residual = math.sqrt(sum(report.residual for report in reports))
        change = math.sqrt(sum(report.dq for report in reports))
        self.converged = max(residual, change) <= self.config.tolerance * size

    def _grow(self, epoch: int) -> int:
        """Begin the stage that is due; returns how many layers it inserted."""
        grown = 0
        if not self.stages or self.stages[0].epoch > epoch - 1:
            return grown
        stage = self.stages.pop(0)
        if self.layers:
            grown = len(stage.layers) - self.layers
            self.engine.grow(stage.layers)
        self.layers = len(stage.layers)
        self.objective = objective(self.engine.begin_stage(self.ridge(epoch)), self.theory.weights)
        self.least_drop = math.inf
        return grown

    def _what_diverged(self, epoch: int, reports: list[LayerReport]) -> str:
        found = self.engine.what_is_not_finite()
        weights = self.theory.weights
        troubled = next((i for i, r in enumerate(reports, start=1) if not math.isfinite(r.objective(weights))), 0)
        what = f"{found[1]} of layer {found[0]}" if found else f"a product or sum of layer {troubled}"
        return f"{what} became NaN, infinite or too large in epoch {epoch}; {DIVERGENCE_ADVICE}"


def _stages(ground: Ground) -> list[growth.Stage]:
    """The growth schedule, or one stage where the network cannot grow."""
    config, activations = ground.config, ground.activations
    assert config.grow is not None
    schedule = growth.parse_schedule(config.grow, len(config.hidden), config.epochs)
    kinds = list(zip(config.hidden, activations.names, strict=True))
    reason = growth.why_not(kinds, {f.name for f in activations if f.idempotent})
    if config.grow != "off" and reason is not None:
        ground.observer.on_note(f"the network starts whole instead of growing: {reason}")
        schedule = [(0, len(config.hidden))]
    return growth.stages(kinds, schedule)
