"""The history of a run: one row an epoch, the same in memory and in `history.jsonl`."""

from __future__ import annotations

from typing import Any

Row = dict[str, Any]

KEYS: dict[str, str] = {
    "epoch": "1 for the first iteration",
    "seconds": "wall time of that iteration alone; evaluation is not in it",
    "objective": "L_rho after the iteration, ridge and L2 terms included; risk and L2 term for gradient methods",
    "residual": "|p - q| over all layer boundaries (the primal residual); |z_L - a_L| for dlADMM",
    "residuals": "the same for each boundary, from the first hidden layer on",
    "dual_change": "|u - u_old|, which is rho times the residual",
    "dual_residual": "rho |q - q_old|",
    "drop": "by how much L_rho fell, both sides at this iteration's ridge",
    "certain_drop": "by how much it had to fall, for any rho (the certificate)",
    "certified": "drop >= certain_drop, up to rounding",
    "paper_drop": "the bound of the paper's Lemma 1; only where rho satisfies the theory's condition",
    "c_k": "its least value since the growth stage began (Theorem 3); likewise",
    "stationarity": "norm of L_rho's partial gradients, at the chosen interval and in the last row",
    "output_residual": "norm of the gradient that the output's solver left",
    "ridge": "lambda in this iteration",
    "workers": "[compute, wait, send] seconds of each process in that iteration; only where there are several",
    "layers": "hidden layers in this iteration",
    "grown": "hidden layers inserted just before this iteration; a new certificate begins",
    "method": "the method, where it is not pdadmm",
    "handed_over_from": "the method whose weights this iteration began with, where another takes over a run",
    "train_accuracy": "share of training samples classified rightly by the network itself, evaluated forward",
    "test_accuracy": "the same on the test samples",
    "train_r2": "coefficient of determination instead, where y is real-valued",
    "test_r2": "the same on the test samples",
}
"""Every key of a row and its meaning. Accuracies are fractions; the last row always has them."""
