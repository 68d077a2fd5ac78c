"""A file's content as arrays, and the choice of which columns are features, target and weight."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pdadmm.data.arrays import Array, as_float, generated_names, shorten
from pdadmm.data.dataset import Part
from pdadmm.errors import UserError
from pdadmm.machine import available_memory, format_bytes

BLOCK_MULTIPLE = 4096
BLOCK_ELEMENTS = 1 << 20


Rows = tuple[Array, Array | None, Array | None]
"""Some rows of a file: features, target, weight."""


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


class ColumnFile(ABC):
    """A file of columns, which is read some rows at a time."""

    header: Header

    @abstractmethod
    def rows(self, columns: Columns) -> Iterator[Rows]:
        """All rows, some at a time; a mistake in them is named with its place."""

    @abstractmethod
    def most_rows(self) -> int:
        """As many rows as there may be."""

    def number_type(self, columns: Columns) -> np.dtype[Any]:
        """The type that holds all features."""
        return np.dtype(np.float64)

    def labels(self, y: Array) -> Array:
        """The targets of all rows, as `rows` gave them, in their own type."""
        return y

    def row_name(self, row: int) -> str:
        """How a user finds a row of the data in the file."""
        return row_number(row)

    def part(self, columns: Columns) -> Part:
        """All rows; nothing else of X's size is made on the way."""
        dtype, shape = self.number_type(columns), (self.most_rows(), len(columns.features))
        check_memory(math.prod(shape) * dtype.itemsize, f"X of {len(columns.features)} features")
        X, count = np.empty(shape, dtype), 0  # pages that are not written take no memory
        targets, weights = list[Array](), list[Array]()
        for features, target, weight in self.rows(columns):
            X[count : count + len(features)] = features
            count += len(features)
            targets += [] if target is None else [target]
            weights += [] if weight is None else [weight]
        y = self.labels(np.concatenate(targets)) if targets else np.empty(0)
        return Part(as_float(X[:count]), y, np.concatenate(weights) if weights else None)

    def stream(self, columns: Columns) -> Stream:
        """The features, block by block."""
        dtype = self.number_type(columns)
        pieces = (X.astype(dtype, copy=False) for X, _, _ in self.rows(columns))
        return Stream(in_blocks(pieces, block_rows(len(columns.features))), columns.feature_names, self.row_name)


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


def feature_columns(header: Header, wanted: tuple[str, ...], target: str | None) -> Columns:
    """The columns a model was trained on, by name where both sides have names, else by position.

    By name, other columns are ignored. By position, the target is left out if present.
    """
    names, count = header.names, len(wanted)
    if names is not None:
        position = {name: column for column, name in enumerate(names)}
        missing = [name for name in wanted if name not in position]
        if not missing:
            return Columns(tuple(position[name] for name in wanted), wanted)
        if wanted != generated_names(count):
            raise UserError(f"{header.path} must have the {count} features of the model; it lacks {shorten(missing)}")
    left = [column for column in range(header.count) if names is None or names[column] != target]
    found = len(left)
    if found > count and (target is None or names is None):
        left.remove(left[-1] if target is None else header.find("target", target))
    if len(left) != count:
        raise UserError(f"{header.path} must have the {count} features of the model; got {found} columns")
    return Columns(tuple(left), _names(header, left))


def _names(header: Header, columns: Sequence[int]) -> tuple[str, ...]:
    if header.names is None:
        return generated_names(len(columns))
    return tuple(header.names[column] for column in columns)
