"""Losses R(z; y), each with the prox that the output layer needs.

A loss is a sum over samples, weighted by `weight` (one number a sample). The z_L-step minimises

    R(z; y) + nu/2 |z - a|²                                                     (paper, equation for z_L)

sample by sample. To add a loss, write a class here with `Loss`'s members and decorate it with `@register`; the
shared tests check its gradient against autograd and its prox against brute force.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar, TypeVar

import torch
from torch import Tensor

from pdadmm.config import Config
from pdadmm.errors import UserError


class Loss(ABC):
    """What the output layer needs of its loss; options of its own are in `config`."""

    name: ClassVar[str]
    real_valued: ClassVar[bool] = True  # y holds numbers of the shape of z; else class indices
    curvature: ClassVar[float] = 1.0  # a bound of the second derivative of R of a sample of weight 1, in any direction

    def __init__(self, config: Config) -> None:
        self._config = config

    @abstractmethod
    def value(self, z: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        """R per sample, weighted."""

    @abstractmethod
    def gradient(self, z: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        """dR/dz."""

    @abstractmethod
    def prox(self, a: Tensor, y: Tensor, weight: Tensor, z_old: Tensor, nu: float) -> tuple[Tensor, int]:
        """The minimiser of R(z; y) + nu/2 |z - a|², and in how many steps from z_old; 0 for a closed form."""

    def initial(self, a: Tensor, y: Tensor) -> Tensor:
        """A first z_L that already knows the targets: these themselves, where they are real values."""
        return y.clone()


_REGISTRY: dict[str, type[Loss]] = {}
_L = TypeVar("_L", bound=Loss)


def register(cls: type[_L]) -> type[_L]:
    """Make a loss known by its name."""
    _REGISTRY[cls.name] = cls
    return cls


def get_loss(config: Config) -> Loss:
    """The loss that the configuration names, with its options."""
    if config.loss not in _REGISTRY:
        raise UserError(f"loss must be one of {', '.join(_REGISTRY)}; got {config.loss!r}")
    return _REGISTRY[config.loss](config)


def is_regression(config: Config) -> bool:
    """True where y is real-valued."""
    return get_loss(config).real_valued


def loss_names() -> tuple[str, ...]:
    """All known names."""
    return tuple(_REGISTRY)


@register
class CrossEntropy(Loss):
    """Softmax cross-entropy; y holds class indices.

    The prox is found by Newton or by FISTA. The Hessian of one sample, w (diag(s) - s sᵀ) + nu I with s = softmax(z),
    is a diagonal and one rank, so Newton's system is solved in O(classes) by Sherman-Morrison.
    """

    name = "cross_entropy"
    real_valued = False
    curvature = 0.5

    def value(self, z: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        """w (logsumexp(z) - z_y)."""
        return (z.logsumexp(dim=1) - z.gather(1, y[:, None])[:, 0]).mul_(weight)

    def gradient(self, z: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        """w (softmax(z) - onehot(y))."""
        s = z.softmax(dim=1)
        s.scatter_add_(1, y[:, None], s.new_full((len(y), 1), -1.0))
        return s.mul_(weight[:, None])

    def initial(self, a: Tensor, y: Tensor) -> Tensor:
        """+1 for the sample's class and -1 elsewhere, as the authors start."""
        return torch.full_like(a, -1.0).scatter_(1, y[:, None], 1.0)

    def prox(self, a: Tensor, y: Tensor, weight: Tensor, z_old: Tensor, nu: float) -> tuple[Tensor, int]:
        """By the chosen solver, until each sample's gradient has shrunk to the chosen share."""

        def gradient(z: Tensor) -> Tensor:
            return self.gradient(z, y, weight).add_(z - a, alpha=nu)

        # Not below what rounding allows.
        rounding = (z_old - a).abs_().amax(1).mul_(nu).add_(weight).mul_(8 * torch.finfo(a.dtype).eps)
        goal = torch.linalg.vector_norm(gradient(z_old), dim=1).mul_(self._config.output_tolerance).add_(rounding)
        solve = self._newton if self._config.output_solver == "newton" else self._fista
        return solve(gradient, z_old, goal, weight, nu)

    def _newton(
        self, gradient: Callable[[Tensor], Tensor], start: Tensor, goal: Tensor, weight: Tensor, nu: float
    ) -> tuple[Tensor, int]:
        """Damped Newton with a step length that guarantees descent without a line search.

        Along a direction h the third derivative of logsumexp is at most R = max(h) - min(h) times the second, hence
        phi(t) <= phi(0) + phi'(0) t + phi''(0) (exp(R t) - 1 - R t) / R²; for a Newton direction the right side is
        least at t = log(1 + R) / R, which tends to the full step as R vanishes.
        """
        z, w = start, weight[:, None]
        slope = gradient(z)
        for step in range(self._config.output_steps):
            if bool((torch.linalg.vector_norm(slope, dim=1) <= goal).all()):
                return z, step
            s = z.softmax(dim=1)
            inverse = (w * s).add_(nu).reciprocal_()
            h = inverse * slope
            # 1 - w sᵀ inverse s, in the form that cannot cancel because the entries of s add up to 1.
            remainder = (s * inverse).sum(1, keepdim=True).mul_(nu)
            h.add_(s * inverse * (w * (s * h).sum(1, keepdim=True) / remainder))
            spread = h.amax(1, keepdim=True) - h.amin(1, keepdim=True)
            length = torch.where(spread > 0, spread.log1p() / spread, 1.0)
            z = z - length * h
            slope = gradient(z)
        return z, self._config.output_steps

    def _fista(
        self, gradient: Callable[[Tensor], Tensor], start: Tensor, goal: Tensor, weight: Tensor, nu: float
    ) -> tuple[Tensor, int]:
        """The paper's solver: gradient steps, accelerated.

        The samples are independent problems, each with a Lipschitz constant L of its own and the modulus nu of strong
        convexity; one momentum, the constant (sqrt(L) - sqrt(nu)) / (sqrt(L) + sqrt(nu)) of the largest L, serves all
        (Beck and Teboulle's scheme for strongly convex problems).
        """
        lipschitz = weight[:, None] / 2 + nu
        largest = math.sqrt(float(lipschitz.max()))
        momentum = (largest - math.sqrt(nu)) / (largest + math.sqrt(nu))
        z, ahead = start, start
        for step in range(self._config.output_steps):
            slope = gradient(ahead)
            if bool((torch.linalg.vector_norm(slope, dim=1) <= goal).all()):
                return ahead, step
            z_new = ahead - slope / lipschitz
            ahead = z_new + momentum * (z_new - z)
            z = z_new
        return z, self._config.output_steps


@register
class Squared(Loss):
    """w/2 |z - y|², for real-valued y of the shape of z."""

    name = "squared"

    def value(self, z: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        """w/2 |z - y|²."""
        return (z - y).square_().sum(1).mul_(weight / 2)

    def gradient(self, z: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        """w (z - y)."""
        return (z - y).mul_(weight[:, None])

    def prox(self, a: Tensor, y: Tensor, weight: Tensor, z_old: Tensor, nu: float) -> tuple[Tensor, int]:
        """(w y + nu a) / (w + nu)."""
        w = weight[:, None]
        return (w * y + nu * a) / (w + nu), 0


@register
class Huber(Loss):
    """w times: r²/2 where |r| <= delta, else delta (|r| - delta/2), for r = z - y entry by entry."""

    name = "huber"

    def value(self, z: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        """r²/2 - max(|r| - delta, 0)²/2, which is the same and needs no branch."""
        size = (z - y).abs_()
        beyond = (size - self._config.huber_delta).clamp_(min=0)
        # (|r| - beyond)(|r| + beyond)/2 does not cancel for large r.
        return ((size - beyond) * (size + beyond)).sum(1).mul_(weight / 2)

    def gradient(self, z: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        """w clamp(r, -delta, delta)."""
        return (z - y).clamp_(-self._config.huber_delta, self._config.huber_delta).mul_(weight[:, None])

    def prox(self, a: Tensor, y: Tensor, weight: Tensor, z_old: Tensor, nu: float) -> tuple[Tensor, int]:
        """a minus (w/nu) times the gradient at the solution, whose residual is nu (a - y)/(w + nu), clamped."""
        w = weight[:, None]
        pull = ((a - y) * (nu / (w + nu))).clamp_(-self._config.huber_delta, self._config.huber_delta)
        return a - pull * (w / nu), 0
