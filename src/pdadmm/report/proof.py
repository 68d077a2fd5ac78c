"""The certificate of a run in words, and the theory's condition."""

from __future__ import annotations

from pdadmm.engine.problem import method_weights
from pdadmm.errors import UserError
from pdadmm.math.activations import get_activations
from pdadmm.math.lagrangian import Theory
from pdadmm.report.runs import FoundRun

_LISTED = 12  # epochs that are named before the rest is only counted


def certified(run: FoundRun) -> tuple[int, int] | None:
    """In how many epochs the certificate held, and how many have one; None of methods without."""
    found = [row["certified"] for row in run.rows if isinstance(row.get("certified"), bool)]
    return (sum(found), len(found)) if found else None


def certificate_words(run: FoundRun) -> str:
    """What the certificate means, no more than it does; nothing for methods without."""
    counted = certified(run)
    if counted is None or run.config is None:
        return ""
    found = f"In {counted[0]} of {counted[1]} epochs the objective fell by at least what the updates guarantee. "
    if failed := [str(row["epoch"]) for row in run.rows if row.get("certified") is False]:
        more = f" and {len(failed) - _LISTED} more" if len(failed) > _LISTED else ""
        found += f"It did not in epoch {', '.join(failed[:_LISTED])}{more}. "
    if run.config.dtype == "float64":
        return found + "The run was in float64, where a failure is a defect."
    return found + f"The run was in {run.config.dtype}, where this proves little: a drop may be smaller than rounding."


def theory_of(run: FoundRun) -> Theory | None:
    """The paper's condition with this run's weights; None of rivals, which have none."""
    if run.config is None or run.method != "pdadmm":
        return None
    try:
        activations = get_activations(run.config.activation, len(run.config.hidden))
        return Theory(method_weights(run.config), activations.lipschitz)
    except UserError:
        return None  # an activation that this version does not have
