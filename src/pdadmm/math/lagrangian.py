"""L_rho, its certificate and the theory's condition, from the sums that the layers measure.

The certificate: in every iteration, for any rho, L_rho falls by at least

    p       linearized Σ_i tau_i/2 |Δp_i|²,  exact (1/omega - 1/2) rho |Δp|²
    W, b    linearized Σ_j theta_j/2 |ΔW_j|² + nu N/2 |Δb|²,
            exact, at omega = 1, nu/2 |p ΔWᵀ + 1 Δb|² + (nu s (delta + lambda/2) + mu/2) |ΔW|²
    z       c nu/2 |Δz|², and nu/2 |Δz_L|² - |r| |Δz_L| with r the final gradient of the output's solver
    q, u    (rho + nu)/2 |Δq|² - |Δu|²/rho, an identity, with Δu = rho (p - q)

where the output layer has a nu of its own, and omega is how far the exact steps go beyond their minimisers.

The first two come from the solvers (`drop`), the rest is measured. The paper's own bound (Lemma 1) has C_1 |Δz|² and
C_2 |Δq|² instead, and means something only where both are positive; c_k of Theorem 3 is its running minimum.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pdadmm.math.subproblems import Weights

TOLERANCE = 1e-11  # rounding allowed to the certificate in float64, relative to 1 + |L_rho|


@dataclass
class LayerReport:
    """What one layer measured in one iteration; norms are squared sums over all samples."""

    drop: float = 0.0  # certain fall of L_rho by the p-, W- and b-steps
    paper_drop: float = 0.0  # the same as Lemma 1 has it
    fit: float = 0.0  # |z - a|²
    gap: float = 0.0  # |q - f(z)|²
    residual: float = 0.0  # |p_next - q|²
    coupling: float = 0.0  # <u, p_next - q>
    risk: float = 0.0  # R(z_L; y)
    ridge: float = 0.0  # nu s lambda/2 |W|²
    l2: float = 0.0  # mu/2 |W|²
    dz: float = 0.0  # |Δz|²
    dq: float = 0.0  # |Δq|²
    q: float = 0.0  # |q|²
    prox_residual: float = 0.0  # |r|², r the gradient left by the output's solver

    def objective(self, w: Weights) -> float:
        """This layer's terms of L_rho."""
        penalties = w.nu / 2 * (self.fit + self.gap) + self.coupling + w.rho / 2 * self.residual
        return self.risk + penalties + self.ridge + self.l2


def objective(reports: Sequence[LayerReport], w: Weights) -> float:
    """L_rho."""
    *hidden, output = reports
    return math.fsum([*(report.objective(w) for report in hidden), output.objective(w.of_output())])


def certain_drop(reports: Sequence[LayerReport], w: Weights) -> float:
    """By how much L_rho must have fallen in the iteration that made these reports, for any rho."""
    *hidden, output = reports
    certain = [report.drop + hidden_drop(report, w) for report in hidden]
    return math.fsum([*certain, output.drop, output_drop(output, w)])


def hidden_drop(report: LayerReport, w: Weights) -> float:
    """What the z-, q- and u-steps of a hidden layer contribute."""
    return w.z_prox * w.nu / 2 * report.dz + (w.rho + w.nu) / 2 * report.dq - w.rho * report.residual


def output_drop(report: LayerReport, w: Weights) -> float:
    """What the z-step of the output layer contributes."""
    return w.nu_output / 2 * report.dz - math.sqrt(report.prox_residual * report.dz)


@dataclass(frozen=True)
class Theory:
    """The condition of Lemma 1 and its constants, for weight c on |z - z_old|² and Lipschitz constant S."""

    weights: Weights
    lipschitz: float

    @property
    def rho_bound(self) -> float:
        """rho must exceed max(4 nu S²/c, (sqrt(17) + 1) nu/2)."""
        w = self.weights
        by_z = 4 * w.nu * self.lipschitz**2 / w.z_prox if w.z_prox > 0 else math.inf
        return max(by_z, (math.sqrt(17) + 1) * w.nu / 2)

    @property
    def holds(self) -> bool:
        """True where the paper's convergence theorems apply."""
        return self.weights.rho > self.rho_bound

    @property
    def C_1(self) -> float:
        """c nu/2 - 2 nu² S²/rho."""
        w = self.weights
        return w.z_prox * w.nu / 2 - 2 * w.nu**2 * self.lipschitz**2 / w.rho

    @property
    def C_2(self) -> float:
        """rho/2 - 2 nu²/rho - nu/2."""
        w = self.weights
        return w.rho / 2 - 2 * w.nu**2 / w.rho - w.nu / 2

    def paper_drop(self, reports: Sequence[LayerReport]) -> float:
        """The right side of Lemma 1; c_k is its running minimum."""
        *hidden, output = reports
        drop = math.fsum(report.paper_drop for report in reports) + self.weights.nu_output / 2 * output.dz
        return drop + math.fsum(self.C_1 * report.dz + self.C_2 * report.dq for report in hidden)

    def warning(self) -> str | None:
        """What to tell the user where the condition fails."""
        if self.holds:
            return None
        w = self.weights
        return (
            f"rho = {w.rho:g} is outside the paper's convergence theorems, which need rho > {self.rho_bound:g} "
            f"(nu = {w.nu:g}, S = {self.lipschitz:g}, z_prox = {w.z_prox:g}). That is usual and no error: the "
            f"certificate of each iteration holds for any rho."
        )
