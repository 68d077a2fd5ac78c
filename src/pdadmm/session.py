"""A prepared run: what one epoch does, and what is kept from one epoch to the next."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import torch
from torch import Tensor

from pdadmm import growth
from pdadmm.config import Config
from pdadmm.data import Preprocessor
from pdadmm.engine.serial import Problem, SerialEngine
from pdadmm.errors import DivergenceError
from pdadmm.history import Row
from pdadmm.math.lagrangian import TOLERANCE, LayerReport, Theory, certain_drop, objective
from pdadmm.math.losses import is_regression
from pdadmm.math.tiles import sum_of_squares
from pdadmm.model import score

FLOAT32_TOLERANCE = 1e-5  # the certificate's rounding in float32, where it is only shown

DIVERGENCE_ADVICE = "scale the features (--scaling standard), raise --damping or --rho, or use --dtype float64"


@dataclass
class Session:
    """An engine with its data, and the state of the schedule and of the certificate."""

    config: Config
    engine: SerialEngine
    problem: Problem
    test: tuple[Tensor, Tensor, Tensor] | None
    preprocessor: Preprocessor
    theory: Theory
    stages: list[growth.Stage]
    objective: float = math.nan
    least_drop: float = math.inf

    def iterate(self, epoch: int) -> tuple[Row, list[LayerReport]]:
        """Grow if it is time, iterate once, and make the row."""
        ridge, grown, weights = self.ridge(epoch), self._grow(epoch), self.theory.weights
        began = time.perf_counter()
        try:
            reports = self.engine.iterate(ridge)
        except DivergenceError as error:
            raise DivergenceError(f"{error} in epoch {epoch}; {DIVERGENCE_ADVICE}") from None
        seconds = time.perf_counter() - began
        value = objective(reports, weights)
        if not math.isfinite(value):
            raise DivergenceError(self._what_diverged(epoch))
        row: Row = {"epoch": epoch, "seconds": seconds, "objective": value, "ridge": ridge, "layers": len(reports) - 1}
        if grown:
            row["grown"] = grown
        row |= self._convergence(reports, value)
        # The next iteration is compared at its own, lower ridge.
        factor = self.ridge(epoch + 1) / ridge if ridge else 1.0
        self.objective = value - (1 - factor) * self._ridge_term(reports)
        return row, reports

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
        if self.theory.holds:
            row["paper_drop"] = self.theory.paper_drop(reports)
            self.least_drop = min(self.least_drop, row["paper_drop"])
            row["c_k"] = self.least_drop
        return row

    def add_evaluations(self, row: Row, last: bool) -> None:
        """Accuracies and stationarity, where they are due."""
        config, epoch = self.config, row["epoch"]
        if last or epoch % config.evaluate_every == 0:
            network = self.engine.network()
            regression = is_regression(config)
            metric = "r2" if regression else "accuracy"
            parts = {"train": (self.problem.x, self.problem.y)}
            if self.test is not None:
                parts["test"] = self.test[:2]
            for name, (x, y) in parts.items():
                row[f"{name}_{metric}"] = score(network.forward(x), y, regression)
        if config.stationarity_every and (last or epoch % config.stationarity_every == 0):
            row["stationarity"] = self.engine.stationarity(row["ridge"])

    def ridge(self, epoch: int) -> float:
        """lambda of an epoch: geometric from its first to its last value."""
        first, final, epochs = self.config.ridge, self.config.ridge_final, self.config.ridge_epochs
        assert first is not None
        assert final is not None
        assert epochs is not None
        progress = min(1.0, (epoch - 1) / max(1, epochs - 1))
        if first == 0 or final == 0:
            return first * (1 - progress)
        return float(first * (final / first) ** progress)

    def is_converged(self, reports: list[LayerReport]) -> bool:
        """Residual and change of q below the tolerance, relative to q."""
        if not self.config.tolerance or self.stages:
            return False
        size = math.sqrt(sum(report.q for report in reports))
        residual = math.sqrt(sum(report.residual for report in reports))
        change = math.sqrt(sum(report.dq for report in reports))
        return max(residual, change) <= self.config.tolerance * size

    def _grow(self, epoch: int) -> int:
        """Begin the stage that is due; returns how many layers it inserted."""
        grown = 0
        if not self.stages or self.stages[0].epoch > epoch - 1:
            return grown
        stage = self.stages.pop(0)
        if epoch > 1:
            before = len(self.engine.blocks)
            self.engine.grow(stage.layers)
            grown = len(self.engine.blocks) - before
        self.objective = objective(self.engine.begin_stage(self.ridge(epoch)), self.theory.weights)
        self.least_drop = math.inf
        return grown

    def _ridge_term(self, reports: list[LayerReport]) -> float:
        """The part of the objective that scales with lambda: all of the weight terms but L2's."""
        weights = [block.state.W for block in self.engine.blocks]
        l2 = self.config.l2 / 2 * sum(float(sum_of_squares(W)) for W in weights) if self.config.l2 else 0.0
        return sum(report.weight for report in reports) - l2

    def _what_diverged(self, epoch: int) -> str:
        for layer, block in enumerate(self.engine.blocks, start=1):
            for name in ("p", "W", "b", "z", "q"):
                variable = getattr(block.state, name)
                if variable is not None and not bool(torch.isfinite(variable).all()):
                    return f"{name} of layer {layer} became NaN or infinite in epoch {epoch}; {DIVERGENCE_ADVICE}"
        return f"the objective became NaN or infinite in epoch {epoch}; {DIVERGENCE_ADVICE}"
