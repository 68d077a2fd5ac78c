"""The z-subproblem of a smooth activation, solved by a look-up table as the paper recommends.

For a bounded, increasing, smooth f and weight k = 1 + c, minimise over z, entry by entry and globally,

    F(z; v, q) = k (z - v)² + (q - f(z))²                                     v = (a + c z_old) / (1 + c)

The minimiser is a function of two numbers, (v, q). It is smooth except across a curve where it jumps from one basin
to another (for tanh with c = 1, from |q| of 3), so:

- `search` finds it from scratch. f' has one peak, so for a given q there is at most one stretch of z where F is not
  convex, and it does not depend on v. F has at most one minimum on either side of it; Newton steps find both, and the
  lower one wins. It is right for any (v, q), and slow.
- the table holds, on a grid of (v, q), the displacement d = z - v of its results and the derivatives of d. From the
  nearest grid point, the tangent plane and one or two Newton steps are as good as a search. Building the table tries
  this at the corners of every cell. Cells where it fails hold NaN, and what falls into them is searched, as is every q
  off the grid. Beyond the largest v, f is flat and d stays as it is at the border.

In every case the result is kept only where it is no worse than z_old, so that the descent of the method holds. An
entry is computed from its own numbers alone, by operations that do not depend on its place: the bits are the same
however the entries are split into tiles, pieces and threads. NaN gives NaN.

Accuracy, checked against brute force in tests/math/test_activations.py: F exceeds the global minimum by less than
1e-6 (1 + q²) in float64.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

V_LIMIT = 8.0  # the table's v runs over [-V_LIMIT, V_LIMIT]
SPACING = 1 / 32  # distance of grid points
CLOSE = 1e-5  # in a good cell, one Newton step at its corners comes as close as this to the minimiser,
SHORT = 5e-3  # and is no longer than this, so that f at its end is known to rounding from its parabola
FLAT = 1e-2  # the largest |d| at the border in v that is carried on beyond it
NEWTON_IN_TABLE = {torch.float32: 1, torch.float64: 2}
REACH = 20.0  # tanh and sigmoid are flat, or nearly so, beyond
NEWTON_IN_SEARCH = 10
ASIDE = 0.25  # a search starts at least this far from where F stops being convex: Newton is lost where F'' is 0
LEAST_BEND = 1e-4  # what the search takes for F''/2 where it is less
PIECE = 1 << 16  # entries a thread works on at a time: few enough for the cache, enough to hide the cost of a call


class Curve(ABC):
    """What is to be known of f."""

    @abstractmethod
    def curve(self, z: Tensor) -> Tensor:
        """f(z) to the last digit of f's range, by operations that treat every entry alike wherever it lies."""

    @abstractmethod
    def bends(self, f: Tensor) -> tuple[Tensor, Tensor]:
        """f' and f'' where f has this value."""


class LookupMinimiser:
    """The minimiser of F as a callable on tensors; building it fills the table."""

    def __init__(
        self, curve: Curve, c: float, q_range: tuple[float, float], dtype: torch.dtype, device: torch.device
    ) -> None:
        self._curve = curve
        self._c, self._k = c, 1 + c
        self._q_low, q_high = q_range
        self._rows = round(2 * V_LIMIT / SPACING) + 1
        self._cols = round((q_high - self._q_low) / SPACING) + 1
        self._steps = NEWTON_IN_TABLE[dtype]
        self._ends = self._convex_ends()
        table = self._fill()
        self._ends = [(steps.to(device, dtype), ends.to(device, dtype)) for steps, ends in self._ends]
        self._table = [plane.to(device, dtype) for plane in table]

    def __call__(self, a: Tensor, q: Tensor, z_old: Tensor, out: Tensor) -> Tensor:
        """The minimiser for every entry, never worse than z_old, into `out`."""
        if not out.is_contiguous():
            return out.copy_(self(a, q, z_old, torch.empty(out.shape, dtype=out.dtype, device=out.device)))
        size = PIECE * torch.get_num_threads() if out.device.type == "cpu" else max(1, out.numel())
        pieces = zip(*(x.reshape(-1).split(size) for x in (a, q, z_old, out)), strict=True)
        unsolved = [self._piece(i * size, *piece) for i, piece in enumerate(pieces)]
        where, v, q, z_old = (torch.cat(parts) for parts in zip(*unsolved, strict=True))
        if len(where):
            z, value = self.search(v, q)
            out.view(-1).index_copy_(0, where, self._no_worse(z, value, v, q, z_old, torch.empty_like(z)))
        return out

    def search(self, v: Tensor, q: Tensor) -> tuple[Tensor, Tensor]:
        """The minimiser from scratch and its value, for 1-D v and q."""
        left, right = (ends[torch.searchsorted(steps, q)] for steps, ends in self._ends)
        low = torch.stack([torch.full_like(v, -torch.inf), right])
        high = torch.stack([left, torch.full_like(v, torch.inf)])
        z = torch.stack([torch.minimum(v, left - ASIDE), torch.maximum(v, right + ASIDE)])
        for n in range(NEWTON_IN_SEARCH):
            slope, bend, _, _ = self._derivatives(z - v, self._curve.curve(z), q)
            longest = 2 / (n + 1)  # ever shorter, so as not to go to and fro
            step = slope.div_(bend.clamp_(min=LEAST_BEND)).clamp_(-longest, longest)
            z = z.sub_(step).clamp_(low, high)
        value = self._value(z - v, self._curve.curve(z), q)
        return torch.where(value[1] < value[0], z[1], z[0]), torch.minimum(*value)

    def _piece(
        self, start: int, a: Tensor, q: Tensor, z_old: Tensor, out: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The minimiser by the table into `out`; returns the places still to be searched, with their v, q and z_old."""
        v = torch.add(a, z_old, alpha=self._c).div_(self._k)
        d = self._look_up(v, q)
        for _ in range(self._steps):
            f = self._curve.curve(v + d)
            slope, bend, df, ddf = self._derivatives(d, f, q)
            step = slope.div_(bend)
            d.sub_(step)
        f.addcmul_(step, ddf.mul_(step).mul_(0.5).sub_(df))
        value = self._value(d, f, q)
        z = d.add_(v)
        where = torch.ne(z, z).nonzero()[:, 0]
        unsolved = (where + start, v[where], q[where], z_old[where])
        self._no_worse(z, value, v, q, z_old, out)
        return unsolved

    def _no_worse(self, z: Tensor, value: Tensor, v: Tensor, q: Tensor, z_old: Tensor, out: Tensor) -> Tensor:
        """z, or z_old where that is better, into `out`."""
        value_old = self._value(z_old - v, self._curve.curve(z_old), q)
        return torch.where(value_old < value, z_old, z, out=out)

    def _look_up(self, v: Tensor, q: Tensor) -> Tensor:
        """d on the tangent plane at the nearest grid point; NaN in a bad cell."""
        down, row = self._cell(v, -V_LIMIT, self._rows)
        right, col = self._cell(q, self._q_low, self._cols)
        index = col.add_(row, alpha=self._cols).int().clamp_(0, self._rows * self._cols - 1)
        d, by_v, by_q = (plane.index_select(0, index) for plane in self._table)
        return d.addcmul_(by_v, down).addcmul_(by_q, right)

    def _cell(self, x: Tensor, low: float, cells: int) -> tuple[Tensor, Tensor]:
        """The place of x in its cell, from 0 to 1, and the cell; off the grid, those of the outermost grid point."""
        position = torch.mul(x, 1 / SPACING).add_(0.5 - low / SPACING).clamp_(0.5, cells - 0.5)
        cell = position.floor()
        return position.sub_(cell), cell

    def _value(self, d: Tensor, f: Tensor, q: Tensor) -> Tensor:
        """F - q² where z - v = d and f(z) = f: it orders points as F does and keeps its digits when q is huge."""
        return d.square().mul_(self._k).addcmul_(f, torch.sub(f, q, alpha=2))

    def _derivatives(self, d: Tensor, f: Tensor, q: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """F'/2, F''/2, f' and f'' where z - v = d and f(z) = f."""
        df, ddf = self._curve.bends(f)
        miss = f - q
        slope = torch.mul(d, self._k).addcmul_(miss, df)
        bend = miss.mul_(ddf).addcmul_(df, df).add_(self._k)
        return slope, bend, df, ddf

    def _convex_ends(self) -> list[tuple[Tensor, Tensor]]:
        """Where F stops being convex, coming from the left and from the right: steps of q and the z between them.

        F'' = 0 means q = Q(z) = f + (k + f'²)/f''. Left of the peak of f', Q falls to its least value and rises again:
        a larger q meets it twice. Right of the peak, Q rises to its greatest value and falls: a smaller q meets it
        twice. For a q between the two values F is convex everywhere; the nearer value's z divides it well. The ends
        lie up to a grid step inside the stretch where F is not convex, so that no minimum is cut off.
        """
        z = torch.arange(-REACH, REACH, SPACING / 2, dtype=torch.float64)
        f = self._curve.curve(z)
        df, ddf = self._curve.bends(f)
        peak = int(df.argmax())
        rise = (df.square() + self._k) / ddf.abs()
        z_up, q_up = z[:peak], (f + rise)[:peak]
        z_down, q_down = z[peak + 1 :], (f - rise)[peak + 1 :]
        least, greatest = int(q_up.argmin()), int(q_down.argmax())
        middle = (q_down[greatest] + q_up[least])[None] / 2
        last, first = z_down[greatest, None], z_up[least, None]
        left = (
            torch.cat([q_down[: greatest + 1], middle, q_up[: least + 1].flip(0)]),
            torch.cat([z_down[: greatest + 1], last, first, z_up[: least + 1].flip(0)]),
        )
        right = (
            torch.cat([q_down[greatest:].flip(0), middle, q_up[least:]]),
            torch.cat([z_down[greatest:].flip(0), last, first, z_up[least:]]),
        )
        return [(steps.cummax(0).values, ends) for steps, ends in (left, right)]

    def _fill(self) -> list[Tensor]:
        """The tangent plane of each cell's middle, a grid point: d at the cell's lower corner, and its changes with v
        and q across the cell. In bad cells d is NaN."""
        rows, cols = self._rows, self._cols
        v, q = self._mesh(torch.arange(rows), torch.arange(cols))
        z, _ = self.search(v, q)
        f = self._curve.curve(z)
        _, bend, df, _ = self._derivatives(z - v, f, q)
        by_v, by_q = (self._k / bend - 1) * SPACING, df / bend * SPACING
        d = z - v - (by_v + by_q) / 2
        corner_v, corner_q = self._mesh(torch.arange(rows + 1) - 0.5, torch.arange(cols + 1) - 0.5)
        corner_z, _ = self.search(corner_v, corner_q)
        bad = torch.zeros(rows, cols, dtype=torch.bool)
        for down in (0, 1):
            for right in (0, 1):
                v, q, z = (
                    x.view(rows + 1, cols + 1)[down : rows + down, right : cols + right].reshape(-1)
                    for x in (corner_v, corner_q, corner_z)
                )
                start = d + by_v * down + by_q * right
                slope, bend, _, _ = self._derivatives(start, self._curve.curve(v + start), q)
                step = slope / bend
                good = (step.abs() < SHORT) & ((v + start - step - z).abs() < CLOSE)
                bad |= ~good.view(rows, cols)
        # A jump may end inside a cell with good corners, so the neighbours of a bad cell are not trusted either.
        bad = torch.nn.functional.max_pool2d(bad[None].double(), 3, stride=1, padding=1)[0] > 0
        bad[:, [0, -1]] = True
        bad[[0, -1]] |= d.view(rows, cols)[[0, -1]].abs() > FLAT
        return [d.masked_fill_(bad.view(-1), torch.nan), by_v, by_q]

    def _mesh(self, row: Tensor, col: Tensor) -> tuple[Tensor, Tensor]:
        """v and q of these rows and columns of the grid, every one with every other, in float64."""
        v, q = torch.meshgrid(row * SPACING - V_LIMIT, col * SPACING + self._q_low, indexing="ij")
        return v.double().reshape(-1), q.double().reshape(-1)
