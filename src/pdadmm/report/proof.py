"""The certificate and the theory's condition of a run, in numbers and in words."""

from __future__ import annotations

from dataclasses import dataclass

from pdadmm.engine.problem import method_weights
from pdadmm.errors import UserError
from pdadmm.inspection import number_in
from pdadmm.math.activations import get_activations
from pdadmm.math.lagrangian import TOLERANCE, Theory
from pdadmm.report.runs import FoundRun
from pdadmm.report.series import uncertified
from pdadmm.session import FLOAT32_TOLERANCE

_LISTED = 12  # epochs that are named before the rest is only counted


@dataclass(frozen=True)
class Certificate:
    """What the history says of it."""

    epochs: int
    """Those that have a certificate."""
    failed: list[int]
    not_promised: int
    """Epochs in which `certain_drop` is not positive, so that nothing was promised."""
    below_rounding: int
    """Epochs that promised a drop which is smaller than the rounding that is allowed for."""
    dtype: str


def certificate(run: FoundRun) -> Certificate | None:
    """None of methods that have none."""
    rows = [row for row in run.rows if isinstance(row.get("certified"), bool)]
    if not rows or run.config is None:
        return None
    dtype = run.config.dtype
    tolerance = TOLERANCE if dtype == "float64" else FLOAT32_TOLERANCE
    promised = [(number_in(row, "certain_drop") or 0.0, number_in(row, "objective") or 0.0) for row in rows]
    small = sum(0 < drop < tolerance * (1 + abs(value)) for drop, value in promised)
    return Certificate(len(rows), uncertified(rows), sum(drop <= 0 for drop, _ in promised), small, dtype)


def words(found: Certificate) -> list[str]:
    """What it means, no more than it does."""
    held = found.epochs - len(found.failed)
    lines = [f"In {held} of {found.epochs} epochs the objective fell by at least what the updates guarantee."]
    if found.failed:
        named = ", ".join(map(str, found.failed[:_LISTED]))
        more = f" and {len(found.failed) - _LISTED} more" if len(found.failed) > _LISTED else ""
        lines.append(f"It did not in epoch{'s' if len(found.failed) > 1 else ''} {named}{more}.")
    if found.not_promised:
        lines.append(
            f"In {found.not_promised} the guaranteed drop is not positive: the objective was allowed to rise, and the "
            f"certificate holds without saying that it fell."
        )
    if found.dtype == "float64":
        lines.append(f"In float64 rounding is allowed for by {TOLERANCE:g} × (1 + |objective|): a failure is a defect.")
    else:
        lines.append(
            f"The run was in float32, where the certificate is shown and proves little: {FLOAT32_TOLERANCE:g} × "
            f"(1 + |objective|) is allowed for rounding, and in {found.below_rounding} epochs the guaranteed drop is "
            f"itself smaller than that. A failed epoch may be rounding; --dtype float64 decides it."
        )
    return lines


def theory_of(run: FoundRun) -> Theory | None:
    """The paper's condition with this run's weights; None of rivals, which have none."""
    if run.config is None or run.method != "pdadmm":
        return None
    try:
        activations = get_activations(run.config.activation, len(run.config.hidden))
        return Theory(method_weights(run.config), activations.lipschitz)
    except UserError:
        return None  # an activation that this version does not have


def theory_words(theory: Theory, batches: int) -> str:
    """Whether the paper's theorems speak of the run."""
    if theory.holds and batches > 1:
        return "The paper's condition holds, but its theorems are about whole iterations, and the run had batches."
    if theory.holds:
        return "The paper's condition holds: its bound and c_k are in the history, and its theorems apply."
    return (
        "The paper's condition does not hold, so its convergence theorems say nothing about this run, and c_k is not "
        "defined. That is usual and no error: the certificate above holds for any rho."
    )
