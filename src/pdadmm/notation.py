"""The short texts for what each hidden layer has: widths such as `9x500`, activations such as `tanh,2xrelu`."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable

from pdadmm.errors import UserError

MOST_LAYERS = 10_000  # beyond it a text such as 9999999x100 is a slip that would fill the memory before any check


def parse_hidden(text: str) -> tuple[int, ...]:
    """`9x500` or `800,400,200`, or both: `2x800,400`."""
    widths: list[int] = []
    for part in text.split(","):
        count, times, width = part.lower().rpartition("x")
        try:
            repeat, value = int(count) if times else 1, int(width)
        except ValueError:
            raise UserError(f"hidden must look like 9x500 or 800,400,200; got {text!r}") from None
        if repeat < 1:
            raise UserError(f"hidden must have each width at least once, as 1x500; got {part!r} in {text!r}")
        if len(widths) + repeat > MOST_LAYERS:
            raise UserError(f"hidden must have at most {MOST_LAYERS} layers; got {text!r}")
        widths += [value] * repeat
    return tuple(widths)


def format_hidden(hidden: tuple[int, ...]) -> str:
    """The shortest text that `parse_hidden` reads back."""
    return _in_runs(hidden)


def parse_names(text: str, count: int) -> tuple[str, ...]:
    """The activation of each of `count` hidden layers from `relu`, one for all, or `tanh,2xrelu`, one for each."""
    if not isinstance(text, str):
        raise UserError(f"activation must be a text such as 'relu' or 'tanh,2xrelu'; got {text!r}")
    names: list[str] = []
    for part in text.split(","):
        repeat, name = re.fullmatch(r"\s*(?:(\d{1,5})x)?(.*?)\s*", part, re.DOTALL).groups()  # type: ignore[union-attr]
        names += [name] * int(repeat or 1)
    if len(names) == 1:
        return tuple(names * count)
    if len(names) != count:
        raise UserError(
            f"activation must be one for all hidden layers or one for each of the {count}; got {len(names)} in {text!r}"
        )
    return tuple(names)


def format_names(names: tuple[str, ...]) -> str:
    """The shortest text that `parse_names` reads back."""
    return names[0] if len(set(names)) == 1 else _in_runs(names)


def _in_runs(values: Iterable[object]) -> str:
    """Equal neighbours as one, with their number."""
    runs = [(len(list(alike)), value) for value, alike in itertools.groupby(values)]
    return ",".join(str(value) if count == 1 else f"{count}x{value}" for count, value in runs)
