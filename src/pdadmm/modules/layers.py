"""Which modules are known, and what an `nn.Sequential` is made of.

Read is what the module computes in `eval` mode: nested Sequentials as if they were written out, Dropout left out. A
module that is not known is named by its place, because nothing else that is said of it would be true.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import nn

from pdadmm.errors import UserError
from pdadmm.math.activations import torch_modules

_UNIFORM_DEVIATION = 12**-0.5  # of a number drawn from [0, 1]
_DEVIATIONS = 5.0  # so far from its mean no draw is to be expected
_ROUNDING = 1e-2  # of bfloat16
_DROPOUTS = (nn.Dropout, nn.AlphaDropout, nn.FeatureAlphaDropout)


@dataclass
class Reading:
    """An `nn.Sequential` as a fully connected network."""

    linears: list[nn.Linear] = field(default_factory=list)
    activations: list[str] = field(default_factory=list)
    """What follows each Linear but the last, by our names."""
    flattens: bool = False
    """Whether samples of any shape are made rows first."""
    normalised_by: str | None = None
    """The Softmax or LogSoftmax at the end, if there is one."""
    notes: list[str] = field(default_factory=list)


def read(module: nn.Module) -> Reading:
    """What the module is made of; what cannot be trained is refused by name."""
    if not isinstance(module, nn.Sequential):
        raise UserError(f"module must be an nn.Sequential; got {_kind(module)}")
    found, dropouts = Reading(), 0
    activation: str | None = None  # behind the last Linear
    for path, part in _walk(module, ""):
        here, kind = f"layer {path} is {_kind(part)}", type(part)
        if kind is nn.Identity:
            continue
        if found.normalised_by is not None:
            raise UserError(f"{here} behind {found.normalised_by}, which must be the last layer")
        if kind in _DROPOUTS:
            dropouts += 1
        elif isinstance(part, nn.Flatten):
            if (part.start_dim, part.end_dim) != (1, -1):
                raise UserError(
                    f"{here} from {part.start_dim} to {part.end_dim}; it must make rows of samples, 1 to -1"
                )
            found.flattens = found.flattens or not found.linears
        elif isinstance(part, nn.Softmax | nn.LogSoftmax):
            if part.dim not in (1, -1, None) or activation is not None:
                raise UserError(f"{here} that is not over the outputs of the last Linear")
            found.normalised_by = _kind(part)
        elif kind is nn.Linear:
            assert isinstance(part, nn.Linear)
            _check_linear(here, part, found)
            if found.linears:
                found.activations.append(activation or "identity")
            found.linears.append(part)
            activation = None
        else:
            name = _name_of(here, part)
            if not found.linears:
                raise UserError(f"{here} before the first Linear; activations must follow a Linear")
            if activation is not None:
                raise UserError(f"{here} right behind another activation; a Linear must be between")
            activation = name
    if len(found.linears) < 2:
        raise UserError(f"module must have at least two Linear layers; got {len(found.linears)}")
    if activation is not None:
        raise UserError(
            f"module must end with a Linear (or Softmax, LogSoftmax), because the loss takes its outputs; "
            f"it ends with {activation}"
        )
    if dropouts:
        found.notes.append(f"{dropouts} Dropout left out while training; the module keeps them")
    return found


def is_untouched(linears: Sequence[nn.Linear]) -> bool:
    """Whether these look as `nn.Linear` draws its first weights: uniform within ±1/sqrt(fan-in).

    Training moves some weights beyond that, or the mean of their size away from half of it.
    """
    sizes = torch.cat(
        [
            values.detach().double().abs().flatten() * linear.in_features**0.5
            for linear in linears
            for values in (linear.weight, linear.bias)
        ]
    )
    spread = _UNIFORM_DEVIATION / len(sizes) ** 0.5
    return bool(sizes.max() <= 1 + _ROUNDING) and abs(float(sizes.mean()) - 0.5) <= _DEVIATIONS * spread + _ROUNDING


def _walk(module: nn.Sequential, prefix: str) -> Iterator[tuple[str, nn.Module]]:
    """Every part with its place, such as 2.0 for the first of a Sequential at 2."""
    if type(module).forward is not nn.Sequential.forward:
        raise UserError(f"module must be a plain nn.Sequential; {type(module).__name__} has a forward of its own")
    for name, part in module._modules.items():  # named_children leaves out what stands there twice
        assert part is not None
        if isinstance(part, nn.Sequential):
            yield from _walk(part, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", part


def _kind(part: nn.Module) -> str:
    kind = type(part)
    return f"nn.{kind.__name__}" if kind.__module__.startswith("torch.nn.modules") else kind.__name__


def _check_linear(here: str, part: nn.Linear, found: Reading) -> None:
    if part.bias is None:
        raise UserError(f"{here} without a bias; the method trains W and b, so give it bias=True")
    if any(part is other for other in found.linears):
        raise UserError(f"{here} that stands in the module twice; each layer needs its own")
    if not (part.weight.requires_grad and part.bias.requires_grad):
        raise UserError(f"{here} that does not require gradients; the method trains every layer")
    if found.linears and (before := found.linears[-1].out_features) != part.in_features:
        raise UserError(f"{here} that must take the {before} outputs of the Linear before it; got {part.in_features}")


def _name_of(here: str, part: nn.Module) -> str:
    """Our name of an activation."""
    known = torch_modules()
    for name, module in known.items():
        if type(part) is module:
            for setting in ("negative_slope", "min_val", "max_val"):
                given, needed = (getattr(one, setting, None) for one in (part, module()))
                if given != needed:
                    raise UserError(f"{here} with {setting} {given}; it must be {needed:g}")
            return name
    names = ", ".join(module.__name__ for module in known.values())
    raise UserError(f"{here}; pdadmm.fit trains Linear, {names}, Flatten, Dropout and Sequential of these")
