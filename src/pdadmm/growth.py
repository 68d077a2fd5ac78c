"""Growing depth: which hidden layers exist at which epoch.

A deep network that starts whole waits: labels move one layer every two iterations. A network that starts with its
first layers and takes in identity layers (W = I, b = 0) as it learns does not, and keeps what it has learned where
f(f(z)) = f(z). Such a layer needs a place where width and activation repeat: of each run of equal layers the first is
there from the start, and the others join behind it.

    hidden 4x100, schedule 1+1@2        epoch 0  [0]   epoch 2  [0 1]   epoch 4  [0 1 2]   epoch 6  [0 1 2 3]
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise

from pdadmm.errors import UserError
from pdadmm.notation import format_hidden, format_names

AUTO_START = 2  # hidden layers at first
AUTO_SHARE = 0.5  # of the run, after which the others join


@dataclass(frozen=True)
class Stage:
    """From `epoch` on, the hidden layers with these indices (into the full list of widths) exist."""

    epoch: int
    layers: tuple[int, ...]


def parse_schedule(text: str, depth: int, epochs: int) -> list[tuple[int, int]]:
    """(epoch, number of hidden layers) pairs from `off`, `auto`, `1+1@2` or `0:2,5:all`."""
    if text == "off":
        return [(0, depth)]
    if text == "auto":
        half = int(AUTO_SHARE * epochs)
        return [(0, depth)] if depth <= AUTO_START or half == 0 else [(0, AUTO_START), (half, depth)]
    if match := re.fullmatch(r"(\d+)\+(\d+)@(\d+)", text):
        start, add, every = map(int, match.groups())
        if not (start and add and every):
            raise UserError(f"grow START+ADD@EVERY needs numbers of at least 1; got {text!r}")
        steps = -(-max(0, depth - start) // add)
        pairs = [(step * every, min(depth, start + step * add)) for step in range(steps + 1)]
    elif re.fullmatch(r"\d+:(\d+|all)(,\d+:(\d+|all))*", text):
        parts = (part.split(":") for part in text.split(","))
        pairs = [(int(epoch), depth if layers == "all" else int(layers)) for epoch, layers in parts]
        pairs = [(epoch, min(layers, depth)) for epoch, layers in pairs]
    else:
        raise UserError(f"grow must be off, auto, a rule such as 1+1@2 or a list such as 0:2,5:all; got {text!r}")
    _check(pairs, text, depth, epochs)
    return pairs


def _check(pairs: list[tuple[int, int]], text: str, depth: int, epochs: int) -> None:
    if pairs[0][0] != 0 or pairs[0][1] < 1:
        raise UserError(f"grow must begin at epoch 0 with at least one layer; got {text!r}")
    if any(late[0] <= early[0] or late[1] < early[1] for early, late in pairwise(pairs)):
        raise UserError(f"grow must list rising epochs and depths; got {text!r}")
    if pairs[-1][1] != depth:
        raise UserError(f"grow must end with all {depth} hidden layers; {text!r} ends with {pairs[-1][1]}")
    # Where the network is no deeper than a stage before the last, that stage has all layers and later ones add none.
    whole = next(epoch for epoch, layers in pairs if layers == depth)
    if whole >= epochs:
        raise UserError(
            f"grow {text!r} adds its last layer at epoch {whole}, but the run has only {epochs} epochs; "
            f"raise --epochs or give another --grow"
        )


Kind = tuple[int, str]
"""A hidden layer's width and the name of its activation: an identity layer fits in behind a layer of its own kind."""


def joining(kinds: Sequence[Kind]) -> list[int]:
    """The layers that need not be there from the start."""
    return [i for i, kind in enumerate(kinds) if i > 0 and kind == kinds[i - 1]]


def stages(kinds: Sequence[Kind], schedule: Sequence[tuple[int, int]]) -> list[Stage]:
    """The layers of each stage; depths that the kinds do not allow are raised to the next that they do."""
    later = joining(kinds)
    anchors = [i for i in range(len(kinds)) if i not in later]
    result: list[Stage] = []
    for epoch, depth in schedule:
        layers = tuple(sorted(anchors + later[: max(0, depth - len(anchors))]))
        if not result or layers != result[-1].layers:
            result.append(Stage(epoch, layers))
    return result


def why_not(kinds: Sequence[Kind], idempotent: Collection[str]) -> str | None:
    """Why this network cannot grow without losing what it learned, or None if it can.

    `idempotent` names the activations with f(f(z)) = f(z).
    """
    if len(kinds) < 2:
        return "it has fewer than two hidden layers"
    later = joining(kinds)
    if not later:
        same = "" if len({activation for _, activation in kinds}) == 1 else " with the same activation"
        return f"no width repeats{same}, so no identity layer fits in"
    for _, activation in (kinds[layer] for layer in later):
        if activation not in idempotent:
            return f"f(f(z)) differs from f(z) for {activation}, so inserted layers would change the function"
    return None


def _shown(kinds: Sequence[Kind], mixed: bool) -> str:
    """Hidden layers as the command line has them, with their activations where these differ."""
    widths = format_hidden(tuple(width for width, _ in kinds))
    return f"{widths} ({format_names(tuple(name for _, name in kinds))})" if mixed else widths


def embed(source: Sequence[Kind], target: Sequence[Kind]) -> list[int | None]:
    """For each hidden layer of `target`, the layer of `source` it takes over, or None for an identity layer."""
    plan: list[int | None] = []
    used = 0
    for index, kind in enumerate(target):
        if used < len(source) and source[used] == kind:
            plan.append(used)
            used += 1
        elif index > 0 and target[index - 1] == kind:
            plan.append(None)
        else:
            break
    if len(plan) < len(target) or used < len(source):
        mixed = len({activation for _, activation in (*source, *target)}) > 1
        before, after = (_shown(kinds, mixed) for kinds in (source, target))
        raise UserError(
            f"hidden {after} cannot be reached from {before} by inserting layers that repeat the width before "
            f"them{' and its activation' if mixed else ''}: keep {before} and add such layers"
        )
    return plan
