"""The z-subproblem of a smooth activation, solved by a look-up table as the paper recommends.

For a bounded, increasing, smooth f and weight k = 1 + c, minimise over z, entry by entry and globally,

    F(z; v, q) = k (z - v)² + (q - f(z))²                                     v = (a + c z_old) / (1 + c)

The minimiser is a function of two numbers, (v, q). It is smooth except across a curve where it jumps from one basin
to another (for tanh with c = 1, from |q| of 3), so:

- `search` finds it from scratch: v and the lowest dips of F on a fan of points, each refined by safeguarded Newton
  steps; the best wins. It is right for any (v, q), and slow.
- the table holds its results on a grid of (v, q). Where the four corners of a cell agree, their bilinear
  interpolation and a few Newton steps are as good as a search; the other cells, and points off the grid, are searched.

In every case the result is kept only where it is no worse than z_old, so that the descent of the method holds.

Accuracy, checked against brute force in tests/math/test_activations.py: F exceeds the global minimum by less than
1e-6 (1 + q²) in float64.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Jet = Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]

V_LIMIT = 8.0  # the table's v runs over [-V_LIMIT, V_LIMIT]
SPACING = 1 / 16  # distance of grid points
AGREEMENT = 2 * SPACING  # corners further apart than this do not belong to one smooth branch
FAN = torch.linspace(-18.0, 18.0, 145, dtype=torch.float64)  # beyond 18, tanh and sigmoid are flat to rounding
DIPS = 2  # F has at most two minima where f bends
SEARCH_ROWS = 4096  # searched at a time, to bound the memory of the fan
NEWTON_IN_SEARCH = 20
NEWTON_IN_TABLE = 3


class LookupMinimiser:
    """The minimiser of F as a callable on tensors; building it fills the table."""

    def __init__(
        self, jet: Jet, k: float, q_range: tuple[float, float], dtype: torch.dtype, device: torch.device
    ) -> None:
        self._jet = jet
        self._k = k
        self._q_low, q_high = q_range
        v = torch.arange(-V_LIMIT, V_LIMIT + SPACING / 2, SPACING, dtype=torch.float64)
        q = torch.arange(self._q_low, q_high + SPACING / 2, SPACING, dtype=torch.float64)
        grid_v, grid_q = torch.meshgrid(v, q, indexing="ij")
        table = self.search(grid_v.reshape(-1), grid_q.reshape(-1)).reshape(grid_v.shape)
        corners = torch.stack([table[:-1, :-1], table[1:, :-1], table[:-1, 1:], table[1:, 1:]])
        apart = (corners.amax(0) - corners.amin(0) >= AGREEMENT).double()
        # A jump may end inside a cell whose corners agree, so the neighbours of a torn cell are not trusted either.
        smooth = torch.nn.functional.max_pool2d(apart[None, None], 3, stride=1, padding=1)[0, 0] == 0
        self._rows, self._cols = smooth.shape
        self._table = table.to(dtype=dtype, device=device).reshape(-1)
        self._smooth = smooth.to(device=device).reshape(-1)

    def __call__(self, v: Tensor, q: Tensor, z_old: Tensor, out: Tensor) -> Tensor:
        """The minimiser for every (v, q), never worse than z_old, into `out`."""
        row, down = self._cell(v, -V_LIMIT, self._rows)
        col, right = self._cell(q, self._q_low, self._cols)
        inside = (down >= 0) & (down <= 1) & (right >= 0) & (right <= 1)
        by_table = inside.logical_and_(self._smooth[row * self._cols + col])
        z = self._interpolate(row, down, col, right)
        for _ in range(NEWTON_IN_TABLE):
            z.sub_(self._newton_step(z, v, q))
        rest = by_table.logical_not_()
        if rest.any():
            z[rest] = self.search(v[rest], q[rest])
        no_worse = self._value(z, v, q) <= self._value(z_old, v, q)
        return torch.where(no_worse, z, z_old, out=out)

    def search(self, v: Tensor, q: Tensor) -> Tensor:
        """The minimiser from scratch, for 1-D v and q."""
        parts = zip(v.split(SEARCH_ROWS), q.split(SEARCH_ROWS), strict=True)
        return torch.cat([self._search_some(*part) for part in parts])

    def _search_some(self, v: Tensor, q: Tensor) -> Tensor:
        """F has its minima near v, where f may be flat, or where f bends."""
        fan = FAN.to(dtype=v.dtype, device=v.device)
        values = self._value(fan, v[:, None], q[:, None])
        middle = values[:, 1:-1]
        is_dip = (middle <= values[:, :-2]) & (middle <= values[:, 2:])
        dips = torch.where(is_dip, middle, torch.inf).topk(DIPS, dim=1, largest=False).indices + 1
        best = self._newton(v, v, q, NEWTON_IN_SEARCH)
        best_value = self._value(best, v, q)
        for start in fan[dips].unbind(1):
            z = self._newton(start, v, q, NEWTON_IN_SEARCH)
            value = self._value(z, v, q)
            best = torch.where(value < best_value, z, best)
            best_value = torch.minimum(value, best_value)
        return best

    def _cell(self, x: Tensor, low: float, cells: int) -> tuple[Tensor, Tensor]:
        """The cell that holds x and the place of x in it; off the grid that place is not in [0, 1]."""
        position = (x - low) / SPACING
        index = position.floor().clamp_(0, cells - 1).nan_to_num_(0.0)
        return index.long(), position.sub_(index)

    def _interpolate(self, row: Tensor, down: Tensor, col: Tensor, right: Tensor) -> Tensor:
        """Bilinear in the cell."""
        corner = row * (self._cols + 1) + col
        top = torch.lerp(self._table[corner], self._table[corner + 1], right)
        below = corner + self._cols + 1
        bottom = torch.lerp(self._table[below], self._table[below + 1], right)
        return torch.lerp(top, bottom, down)

    def _value(self, z: Tensor, v: Tensor, q: Tensor) -> Tensor:
        """F(z) - q², which orders points as F does and keeps its digits when q is huge."""
        f = self._jet(z)[0]
        return (z - v).square_().mul_(self._k).add_(f * (f - 2 * q))

    def _newton(self, z: Tensor, v: Tensor, q: Tensor, steps: int) -> Tensor:
        """Newton steps, each kept only where it lowers F; where it does not, the next one is shorter."""
        value, length = self._value(z, v, q), torch.ones_like(v)
        for _ in range(steps):
            trial = z - length * self._newton_step(z, v, q)
            trial_value = self._value(trial, v, q)
            better = trial_value < value
            z = torch.where(better, trial, z)
            value = torch.where(better, trial_value, value)
            length = torch.where(better, 1.0, length / 4)
        return z

    def _newton_step(self, z: Tensor, v: Tensor, q: Tensor) -> Tensor:
        """F'/|F''|, at most 1: where F is concave this still leads downhill."""
        f, df, ddf = self._jet(z)
        miss = f - q
        slope = (z - v).mul_(self._k).addcmul_(miss, df)
        bend = miss.mul_(ddf).addcmul_(df, df).add_(self._k)
        return slope.div_(bend.abs_().clamp_(min=0.1 * self._k)).clamp_(-1.0, 1.0)
