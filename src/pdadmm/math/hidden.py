"""The element-wise work of a hidden layer on one tile: z, q, and what L_rho and its certificate need.

Written once, as a chain of passes over tiles that stay in cache. `compiled` lets torch.compile fuse the chain into one
pass; where that cannot be done (no C++ compiler, say), the chain runs as it is and says so once.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from pdadmm.math import subproblems as sub
from pdadmm.math.activations import Activation
from pdadmm.math.subproblems import Weights
from pdadmm.math.tiles import row_norms

MEASURED = ("fit", "gap", "residual", "dz", "dq", "q", "prox_residual", "coupling", "risk")
"""What is measured of each row of a layer: norms up to `prox_residual`, then <u/nu, p - q> and R."""

FIT, GAP, RESIDUAL, DZ, DQ, Q, PROX_RESIDUAL, COUPLING, RISK = range(len(MEASURED))

Work = tuple[Tensor, Tensor, Tensor]
"""Tiles of z's shape to overwrite; the first holds u/nu."""

HiddenStep = Callable[[Tensor, Tensor, Tensor, Tensor, Work, Tensor], None]
"""(z, q, a, p_next, work, measured): updates z and q, and measures."""


def hidden_step(activation: Activation, w: Weights) -> HiddenStep:
    """The step of layers with this activation."""

    def step(z: Tensor, q: Tensor, a: Tensor, p: Tensor, work: Work, measured: Tensor) -> None:
        v, z_new, f = work
        activation.z_step(a, q, z, w.z_prox, z_new)
        row_norms(z.sub_(z_new), measured[DZ])
        z.copy_(z_new)
        q_new = sub.q_step(p, v, activation.forward(z_new, f), w.nu, w.rho)
        row_norms(q.sub_(q_new), measured[DQ])
        q.copy_(q_new)
        measure(z_new, q_new, a, p, f, measured)

    return step


def measure(z: Tensor, q: Tensor, a: Tensor, p: Tensor, f: Tensor, measured: Tensor) -> None:
    """The terms of L_rho, from f = f(z); overwrites z, q and f, which must be tiles."""
    row_norms(q, measured[Q])
    row_norms(z.sub_(a), measured[FIT])
    v = sub.scaled_dual(q, f)
    row_norms(v, measured[GAP])
    r = torch.sub(p, q, out=q)
    row_norms(r, measured[RESIDUAL])
    torch.sum(r.mul_(v), 1, out=measured[COUPLING])
