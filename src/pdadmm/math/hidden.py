"""The element-wise work of a hidden layer on one tile: z, q, and what L_rho and its certificate need.

`HiddenStep` is a chain of passes over tiles that stay in cache. `FusedStep` is the same mathematics as one function
without side effects, which torch.compile turns into a single pass; it needs a C++ compiler on the machine.
"""

from __future__ import annotations

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
"""Tiles of z's shape to overwrite."""


class HiddenStep:
    """z by the activation, then q = (rho p_next + u + nu f(z)) / (rho + nu)."""

    def __init__(self, activation: Activation, weights: Weights) -> None:
        self._activation, self._weights = activation, weights

    def __call__(
        self, z: Tensor, q: Tensor, a: Tensor, p: Tensor, v: Tensor | None, work: Work, measured: Tensor
    ) -> None:
        """Update z and q, and measure; v = u/nu is q - f(z) where it is not given, and is overwritten."""
        w, (z_new, f, v_new) = self._weights, work
        if v is None:
            v = sub.scaled_dual(q, self._activation.forward(z, v_new))
        self._activation.z_step(a, q, z, w.z_prox, z_new)
        if w.z_relax != 1:
            z_new, f = self._activation.beyond(z, z_new, w.z_relax, f), z_new
        row_norms(z.sub_(z_new), measured[DZ])
        z.copy_(z_new)
        q_new = sub.q_step(p, v, self._activation.forward(z_new, f), w.nu, w.rho)
        row_norms(q.sub_(q_new), measured[DQ])
        q.copy_(q_new)
        measure(z_new, q_new, a, p, f, measured)


def measure(z: Tensor, q: Tensor, a: Tensor, p: Tensor, f: Tensor, measured: Tensor) -> None:
    """The terms of L_rho, from f = f(z); overwrites z, q and f, which must be tiles."""
    row_norms(q, measured[Q])
    row_norms(z.sub_(a), measured[FIT])
    v = sub.scaled_dual(q, f)
    row_norms(v, measured[GAP])
    r = torch.sub(p, q, out=q)
    row_norms(r, measured[RESIDUAL])
    torch.sum(r.mul_(v), 1, out=measured[COUPLING])


class FusedStep:
    """The same in one pass over the tile, compiled when it is first called."""

    def __init__(self, activation: Activation, weights: Weights) -> None:
        self._activation, self._weights = activation, weights
        self._compiled = torch.compile(self._values, dynamic=True, fullgraph=True)

    def __call__(
        self, z: Tensor, q: Tensor, a: Tensor, p: Tensor, v: Tensor | None, work: Work, measured: Tensor
    ) -> None:
        """The same; needs no work tiles."""
        # Else a second run with other weights makes them variables of the kernel, and torch 2.13 computes it wrongly.
        with torch._dynamo.config.patch(specialize_float=True):
            z_new, q_new, *rows = self._compiled(z, q, a, p, v)
        z.copy_(z_new)
        q.copy_(q_new)
        for kind, values in zip((DZ, DQ, Q, FIT, GAP, RESIDUAL, COUPLING), rows, strict=True):
            measured[kind] = values

    def _values(self, z: Tensor, q: Tensor, a: Tensor, p: Tensor, v: Tensor | None) -> tuple[Tensor, ...]:
        w, f = self._weights, self._activation
        if v is None:
            v = q - f.forward(z, torch.empty_like(z))
        z_new = f.z_step(a, q, z, w.z_prox, torch.empty_like(z))
        if w.z_relax != 1:
            z_new = f.beyond(z, z_new, w.z_relax, torch.empty_like(z))
        f_new = f.forward(z_new, torch.empty_like(z))
        q_new = torch.lerp(v + f_new, p, w.rho / (w.rho + w.nu))
        gap, r = q_new - f_new, p - q_new
        norms = [torch.linalg.vector_norm(x, dim=1) for x in (z - z_new, q - q_new, q_new, z_new - a, gap, r)]
        return (z_new, q_new, *norms, (gap * r).sum(1))


def why_not_compiled(step: FusedStep, dtype: torch.dtype, device: torch.device) -> str | None:
    """Compile a step on a small tile; the reason if that cannot be done, such as a missing compiler."""
    z, q, a, p = torch.zeros(4, 32, 48, dtype=dtype, device=device)
    try:
        step(z, q, a, p, None, (z, z, z), torch.zeros(len(MEASURED), 32, dtype=dtype, device=device))
    except Exception as error:  # whatever the compiler's many layers may raise
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
    return None
