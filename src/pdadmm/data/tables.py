"""A file's content as arrays, and the choice of which columns are features, target and weight."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pdadmm.data.arrays import Array, as_float, generated_names, shorten
from pdadmm.errors import UserError
from pdadmm.machine import available_memory, format_bytes

BLOCK_MULTIPLE = 4096
BLOCK_ELEMENTS = 1 << 20


@dataclass(frozen=True, eq=False)
class Table:
    """What one file holds for one part."""

    X: Array
    y: Array | None
    weight: Array | None
    feature_names: tuple[str, ...]
    notes: tuple[str, ...] = ()
    """What the user should know about it."""
    is_finite: bool = False
    """Whether the reader has refused every NaN and infinity in X."""


@dataclass(frozen=True, eq=False)
class Rows:
    """Some rows of a file: of a table without the names."""

    X: Array
    y: Array | None
    weight: Array | None


@dataclass(frozen=True, eq=False)
class Stream:
    """Features that are read as they are asked for; `blocks` can be walked once."""

    blocks: Iterator[Array]
    feature_names: tuple[str, ...]
    row_name: Callable[[int], str]
    """How an error message calls a row, counted from 0."""
    notes: tuple[str, ...] = ()


def block_rows(features: int) -> int:
    """Rows of a block: about a million numbers, and a multiple of what a network takes at once.

    The arithmetic of a network depends on how many rows it sees at once, so predictions for blocks of this size are
    those for all samples together, to the last bit.
    """
    return BLOCK_MULTIPLE * max(1, BLOCK_ELEMENTS // (BLOCK_MULTIPLE * max(1, features)))


def in_blocks(pieces: Iterable[Array], rows: int) -> Iterator[Array]:
    """The same rows in blocks of `rows`, but for the last."""
    waiting: list[Array] = []
    count = 0
    for piece in pieces:
        while count + len(piece) >= rows:
            room = rows - count
            yield _joined([*waiting, piece[:room]])
            waiting, count, piece = [], 0, piece[room:]
        if len(piece):
            waiting.append(piece)
            count += len(piece)
    if waiting:
        yield _joined(waiting)


def row_number(row: int) -> str:
    """The name of a row in a file without lines."""
    return f"row {row}"


def _joined(pieces: list[Array]) -> Array:
    return as_float(pieces[0] if len(pieces) == 1 else np.concatenate(pieces))


@dataclass(frozen=True)
class Header:
    """The columns of a file; `names` is None where its first line is data already."""

    path: Path
    names: tuple[str, ...] | None
    count: int

    def __post_init__(self) -> None:
        seen: set[str] = set()
        for name in self.names or ():
            if name in seen:
                raise UserError(f"{self.path}: column names must be unique; got {name!r} twice")
            seen.add(name)

    def label(self, column: int) -> str:
        """How an error message calls a column."""
        return f"{column} (counted from 0)" if self.names is None else repr(self.names[column])

    def find(self, option: str, wanted: str) -> int:
        """The column that the user's `option` means: a name or, without a header, a number from 0."""
        if self.names is not None:
            if wanted in self.names:
                return self.names.index(wanted)
            raise UserError(
                f"{option} must be a column of {self.path}; got {wanted!r}, columns: {shorten(list(self.names))}"
            )
        if wanted.isdecimal() and int(wanted) < self.count:
            return int(wanted)
        raise UserError(
            f"{option} must be a column number from 0 to {self.count - 1}, "
            f"because {self.path} has no header line; got {wanted!r}"
        )


@dataclass(frozen=True)
class Columns:
    """Where in the file everything is; `feature_names` belong to `features`, in order."""

    features: tuple[int, ...]
    feature_names: tuple[str, ...]
    target: int | None = None
    weight: int | None = None


Chooser = Callable[[Header], Columns]


def to_table(pieces: Iterable[Rows], columns: Columns, most_rows: int, dtype: np.dtype[Any]) -> Table:
    """All rows, of which there are at most so many; nothing else of X's size is made on the way."""
    shape = (most_rows, len(columns.features))
    check_memory(math.prod(shape) * dtype.itemsize, f"X of {len(columns.features)} features")
    X, count = np.empty(shape, dtype), 0  # pages that are not written take no memory
    targets, weights = [], []
    for rows in pieces:
        X[count : count + len(rows.X)] = rows.X
        count += len(rows.X)
        targets += [] if rows.y is None else [rows.y]
        weights += [] if rows.weight is None else [rows.weight]
    y = None if columns.target is None else np.concatenate(targets or [np.empty(0)])
    weight = None if columns.weight is None else np.concatenate(weights or [np.empty(0)])
    return Table(X[:count], y, weight, columns.feature_names)


def check_memory(size: int, what: str) -> None:
    """Refuse what memory cannot hold, before it is taken."""
    free = available_memory()
    if free is not None and size > free:
        raise UserError(f"{what} needs {format_bytes(size)} of memory, but only {format_bytes(free)} are free")


def training_columns(header: Header, target: str | None, weight: str | None) -> Columns:
    """Target (by default the last column), weight if any, and all the others as features."""
    weight_column = None if weight is None else header.find("weight", weight)
    if target is not None:
        target_column = header.find("target", target)
    else:
        target_column = max((c for c in range(header.count) if c != weight_column), default=-1)
    if target_column == weight_column:
        raise UserError(f"target and weight must be different columns; both are {header.label(target_column)}")
    features = tuple(c for c in range(header.count) if c not in (target_column, weight_column))
    if not features:
        raise UserError(
            f"{header.path} must have a target and at least one feature, in columns separated by commas; "
            f"its number of columns is {header.count}"
        )
    return Columns(features, _names(header, features), target_column, weight_column)


def feature_columns(header: Header, features: Sequence[str] | int, target: str | None) -> Columns:
    """The columns a model was trained on, by name where both sides have names, else by position.

    By name, other columns are ignored. By position, the target is left out if present.
    """
    if not isinstance(features, int):
        wanted = tuple(features)
        if header.names is not None:
            position = {name: column for column, name in enumerate(header.names)}
            missing = [name for name in wanted if name not in position]
            if not missing:
                return Columns(tuple(position[name] for name in wanted), wanted)
            if wanted != generated_names(len(wanted)):
                raise UserError(
                    f"{header.path} must have the {len(wanted)} features of the model; it lacks {shorten(missing)}"
                )
        features = len(wanted)
    chosen = _by_position(header, features, target)
    return Columns(chosen, _names(header, chosen))


def _by_position(header: Header, count: int, target: str | None) -> tuple[int, ...]:
    everything = tuple(range(header.count))
    if header.names is not None:
        everything = tuple(c for c in everything if header.names[c] != target)
        without_target = everything[:-1] if target is None else everything
    else:
        with_more = header.count > count
        without_target = training_columns(header, target, None).features if with_more else everything
    for candidate in (everything, without_target):
        if len(candidate) == count:
            return candidate
    raise UserError(f"{header.path} must have the {count} features of the model; got {len(everything)} columns")


def _names(header: Header, columns: tuple[int, ...]) -> tuple[str, ...]:
    if header.names is None:
        return generated_names(len(columns))
    return tuple(header.names[column] for column in columns)
