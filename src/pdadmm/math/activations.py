"""Activations, each with the z-subproblem of the layer it closes.

An activation f is used in three ways: forward, in the z-step, and in the theory through its Lipschitz constant S.
The z-step minimises, entry by entry and globally,

    (z - a)² + (q - f(z))² + c (z - z_old)²            (paper, equation for z_l; c = 1 there)

which, with t = a + c z_old, is (1 + c) z² - 2 t z + (q - f(z))² up to a constant. Piecewise-linear activations have
a closed form; smooth ones use a look-up table (`pdadmm.math.lookup`).

To add an activation, write a class here with `Activation`'s members and decorate it with `@register`: the command
line, the plan and the shared tests take it up by its name. docs/extending.md walks through one.
"""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, TypeVar

import torch
from torch import Tensor, nn

from pdadmm.errors import UserError
from pdadmm.math.lookup import Curve, LookupMinimiser
from pdadmm.notation import format_names, parse_names


class Activation(ABC):
    """What a layer needs of its activation."""

    name: ClassVar[str]
    lipschitz: ClassVar[float]  # S of the paper's Assumption 1
    idempotent: ClassVar[bool]  # f(f(z)) = f(z): identity layers may be inserted without changing the network
    module: ClassVar[type[nn.Module] | None] = None  # the same in PyTorch, as it is made without arguments

    @abstractmethod
    def forward(self, z: Tensor, out: Tensor) -> Tensor:
        """f(z) into `out`, which may be z itself."""

    @abstractmethod
    def slopes(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """The derivatives from the left and from the right, equal where f is smooth."""

    @abstractmethod
    def z_step(self, a: Tensor, q: Tensor, z_old: Tensor, c: float, out: Tensor) -> Tensor:
        """The global minimiser of the z-subproblem into `out`."""

    def beyond(self, z_old: Tensor, z: Tensor, relax: float, out: Tensor) -> Tensor:
        """A point past the minimiser z, `relax` times as far from z_old, where the subproblem certainly falls.

        It falls there by at least c/2 |Δz|², as for z itself, for 1 <= relax < 2. Here that is known of z alone.
        """
        return out.copy_(z)


_REGISTRY: dict[str, Callable[[], Activation]] = {}
_A = TypeVar("_A", bound=Activation)


def register(cls: type[_A]) -> type[_A]:
    """Make an activation known by its name."""
    _REGISTRY[cls.name] = cls
    return cls


def get_activation(name: str) -> Activation:
    """A fresh activation by its name."""
    if name not in _REGISTRY:
        raise UserError(f"activation must be one of {', '.join(_REGISTRY)}; got {name!r}")
    return _REGISTRY[name]()


class Activations(tuple[Activation, ...]):
    """Those of the hidden layers, in their order."""

    @property
    def names(self) -> tuple[str, ...]:
        """By layer."""
        return tuple(f.name for f in self)

    @property
    def name(self) -> str:
        """As `Config.activation` has it."""
        return format_names(self.names)

    @property
    def lipschitz(self) -> float:
        """S of all of them."""
        return max(f.lipschitz for f in self)


def get_activations(text: str, hidden: int) -> Activations:
    """The activations of so many hidden layers, as `Config.activation` has them."""
    return Activations(map(get_activation, parse_names(text, hidden)))


def activation_names() -> tuple[str, ...]:
    """All known names."""
    return tuple(_REGISTRY)


def torch_modules() -> dict[str, type[nn.Module]]:
    """Those that PyTorch has too, by our names; a class does not inherit it, since it may compute something else."""
    modules = {name: vars(type(get_activation(name))).get("module") for name in _REGISTRY}
    return {name: module for name, module in modules.items() if module is not None}


@dataclass(frozen=True)
class Piece:
    """f(z) = slope z + offset on [low, high]."""

    low: float
    high: float
    slope: float
    offset: float


class PiecewiseLinear(Activation):
    """An activation made of linear pieces, in order from left to right.

    On a piece the subproblem is a parabola: its minimiser over the piece is the vertex, clamped. The best piece wins.
    """

    pieces: ClassVar[tuple[Piece, ...]]

    def slopes(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """The slope of the piece that holds z; at a kink, those of both neighbours."""
        left, right = torch.empty_like(z), torch.empty_like(z)
        for piece in self.pieces:
            left.masked_fill_((z > piece.low) | (piece.low == -math.inf), piece.slope)
            right.masked_fill_((z >= piece.low) | (piece.low == -math.inf), piece.slope)
        return left, right

    def z_step(self, a: Tensor, q: Tensor, z_old: Tensor, c: float, out: Tensor) -> Tensor:
        """The best of the pieces' own minimisers."""
        t = torch.add(a, z_old, alpha=c)
        best_value: Tensor | None = None
        for piece in self.pieces:
            target = q - piece.offset
            z = t.add(target, alpha=piece.slope).div_(1 + c + piece.slope**2).clamp_(piece.low, piece.high)
            value = z.mul(1 + c).sub_(t, alpha=2).mul_(z).add_(target.sub_(z, alpha=piece.slope).square_())
            if best_value is None:
                best_value = value
                out.copy_(z)
            else:
                torch.where(value < best_value, z, out, out=out)
                torch.minimum(value, best_value, out=best_value)
        return out

    def beyond(self, z_old: Tensor, z: Tensor, relax: float, out: Tensor) -> Tensor:
        """On the piece that holds both, where the subproblem is one parabola; the minimiser elsewhere.

        It goes no further past z than z_old is from a kink, so that a z_old of 0 but for rounding, whose side is
        chance, gives the same as any near it.
        """
        past = torch.sub(z, z_old).mul_(relax - 1)
        out.copy_(z)
        for piece in self.pieces:
            holds = (torch.minimum(z, z_old) > piece.low) & (torch.maximum(z, z_old) < piece.high)
            room = torch.minimum(z_old - piece.low, piece.high - z_old)
            there = torch.clamp(past, -room, room).add_(z).clamp_(piece.low, piece.high)
            torch.where(holds, there, out, out=out)
        return out


def only_where_positive(values: Tensor, mask: Tensor) -> Tensor:
    """`values` where `mask` is positive, else 0, in the place of `values`: four times as fast as torch.where."""
    return torch.ops.aten.threshold_backward.grad_input(values, mask, 0, grad_input=values)  # type: ignore[no-any-return]


@register
class ReLU(PiecewiseLinear):
    """max(z, 0)."""

    name = "relu"
    lipschitz = 1.0
    idempotent = True
    module = nn.ReLU
    pieces = (Piece(-math.inf, 0.0, 0.0, 0.0), Piece(0.0, math.inf, 1.0, 0.0))

    def forward(self, z: Tensor, out: Tensor) -> Tensor:
        """max(z, 0)."""
        return torch.clamp(z, min=0, out=out)

    def z_step(self, a: Tensor, q: Tensor, z_old: Tensor, c: float, out: Tensor) -> Tensor:
        """The two candidates of the paper, compared on the whole subproblem.

        With w = t + q their values are q² - min(t, 0)²/(1+c) and q² - max(w, 0)²/(2+c), so the positive side wins
        when w sqrt((1+c)/(2+c)) exceeds -min(t, 0): no squares, so nothing can overflow.
        """
        t = torch.add(a, z_old, alpha=c)
        positive = torch.add(t, q)
        negative = t.clamp_(max=0)
        keeps = torch.add(negative, positive, alpha=math.sqrt((1 + c) / (2 + c)), out=out)
        negative.div_(1 + c)
        rise = positive.div_(2 + c).sub_(negative)
        return torch.add(negative, only_where_positive(rise, keeps), out=out)

    def beyond(self, z_old: Tensor, z: Tensor, relax: float, out: Tensor) -> Tensor:
        """The same in short form: on the side of 0 where both are, and not across it."""
        side, room = torch.mul(z, z_old), z_old.abs()
        past = torch.sub(z, z_old, out=out).mul_(relax - 1)
        past = torch.clamp(past, -room, room, out=past)
        torch.add(z, only_where_positive(past, side), out=out)
        return only_where_positive(out, torch.mul(z, out, out=side))


@register
class LeakyReLU(PiecewiseLinear):
    """z for z > 0, else z/100."""

    name = "leaky_relu"
    lipschitz = 1.0
    idempotent = False
    negative_slope = 0.01
    module = nn.LeakyReLU
    pieces = (Piece(-math.inf, 0.0, negative_slope, 0.0), Piece(0.0, math.inf, 1.0, 0.0))

    def forward(self, z: Tensor, out: Tensor) -> Tensor:
        """max(z, slope z), as the slope is below 1."""
        return torch.maximum(z, z * self.negative_slope, out=out)


@register
class HardTanh(PiecewiseLinear):
    """z clamped to [-1, 1]."""

    name = "hardtanh"
    lipschitz = 1.0
    idempotent = True
    module = nn.Hardtanh
    pieces = (Piece(-math.inf, -1.0, 0.0, -1.0), Piece(-1.0, 1.0, 1.0, 0.0), Piece(1.0, math.inf, 0.0, 1.0))

    def forward(self, z: Tensor, out: Tensor) -> Tensor:
        """Clamp to [-1, 1]."""
        return torch.clamp(z, -1, 1, out=out)


@register
class Identity(PiecewiseLinear):
    """z itself: a linear layer."""

    name = "identity"
    lipschitz = 1.0
    idempotent = True
    module = nn.Identity
    pieces = (Piece(-math.inf, math.inf, 1.0, 0.0),)

    def forward(self, z: Tensor, out: Tensor) -> Tensor:
        """A copy."""
        return out.copy_(z)


class _Smooth(Activation, Curve):
    """A bounded, increasing, smooth activation whose z-step is a refined look-up."""

    table_q: ClassVar[tuple[float, float]]  # the range of q that the table covers

    def z_step(self, a: Tensor, q: Tensor, z_old: Tensor, c: float, out: Tensor) -> Tensor:
        """Look up, refine by Newton, and never be worse than z_old."""
        return _minimiser(type(self), c, a.dtype, a.device)(a, q, z_old, out)

    def slopes(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """f'(z) twice."""
        slope = self.bends(self.forward(z, torch.empty_like(z)))[0]
        return slope, slope


@functools.lru_cache(maxsize=16)
def _minimiser(cls: type[_Smooth], c: float, dtype: torch.dtype, device: torch.device) -> LookupMinimiser:
    return LookupMinimiser(cls(), c, cls.table_q, dtype, device)


@register
class Tanh(_Smooth):
    """The hyperbolic tangent."""

    name = "tanh"
    lipschitz = 1.0
    idempotent = False
    module = nn.Tanh
    table_q = (-6.0, 6.0)

    def forward(self, z: Tensor, out: Tensor) -> Tensor:
        """tanh(z)."""
        return torch.tanh(z, out=out)

    def curve(self, z: Tensor) -> Tensor:
        """1 - 2 / (1 + exp(2 z)), in half the time of torch.tanh."""
        return torch.mul(z, 2).exp_().add_(1).reciprocal_().mul_(-2).add_(1)

    def bends(self, f: Tensor) -> tuple[Tensor, Tensor]:
        """1 - f², -2 f (1 - f²)."""
        df = f.square().neg_().add_(1)
        return df, torch.mul(f, df).mul_(-2)


@register
class Sigmoid(_Smooth):
    """The logistic function."""

    name = "sigmoid"
    lipschitz = 0.25
    idempotent = False
    module = nn.Sigmoid
    table_q = (-5.0, 6.0)

    def forward(self, z: Tensor, out: Tensor) -> Tensor:
        """1 / (1 + exp(-z)) step by step: torch.sigmoid rounds the last few entries of a run differently."""
        return torch.neg(z, out=out).exp_().add_(1).reciprocal_()

    def curve(self, z: Tensor) -> Tensor:
        """The same, into a new tensor."""
        return self.forward(z, torch.empty_like(z))

    def bends(self, f: Tensor) -> tuple[Tensor, Tensor]:
        """f (1 - f), f (1 - f) (1 - 2 f)."""
        df = f.square().neg_().add_(f)
        return df, torch.mul(f, -2).add_(1).mul_(df)
