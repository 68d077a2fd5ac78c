"""Read .csv: commas, UTF-8, and a header line if any field of the first line is not a number.

A first line of numbers and one text, over a line with a text in the same place, is a sample with its label, unless
the numbers just count the columns.

numpy parses the numbers in one go. Only when it fails is the file walked again, slowly, for the place to name.
"""

from __future__ import annotations

import csv
import itertools
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from pdadmm.data.arrays import Array
from pdadmm.data.tables import Chooser, Columns, Header, Table
from pdadmm.errors import UserError

# Spreadsheets put a byte order mark first; this encoding takes it off where it is.
_ENCODING = "utf-8-sig"
# Control characters that no text has: all but tab, line feed, form feed and their like.
_NOT_TEXT = re.compile(rb"[\x00-\x08\x0e-\x1f]")


def read_csv(path: Path, choose: Chooser) -> Table:
    """The columns that `choose` picks from the header, as arrays."""
    _check_text(path)
    try:
        header, lines_before_data = _read_header(path)
    except (UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{path} is not a CSV file: {error}") from None
    columns = choose(header)
    codes: dict[str, int] = {}
    try:
        matrix = _load(path, header, columns, lines_before_data, codes)
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not a CSV file: {error}") from None
    except ValueError as error:
        raise _explain(path, header, columns, lines_before_data, str(error)) from None
    if matrix.shape[1] != header.count:
        raise _explain(path, header, columns, lines_before_data, f"{matrix.shape[1]} fields per line")
    y = None if columns.target is None else _labels(codes)[matrix[:, columns.target].astype(np.intp)]
    weight = None if columns.weight is None else matrix[:, columns.weight].copy()
    return Table(_take(matrix, columns.features), y, weight, columns.feature_names)


def _check_text(path: Path) -> None:
    with path.open("rb") as file:
        start = file.read(1 << 16)
    if not start.strip():
        raise UserError(f"{path} is not a CSV file: it is empty")
    if _NOT_TEXT.search(start):
        raise UserError(f"{path} is not a CSV file: it holds binary data, not UTF-8 text")


def _rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Lines that are not blank, split into fields, with their number from 1."""
    with path.open(encoding=_ENCODING, newline="") as file:
        reader = csv.reader(file)
        for row in reader:
            if row:
                yield reader.line_num, row


def _read_header(path: Path) -> tuple[Header, int]:
    """The columns, and how many lines come before the data."""
    (line, first), *more = itertools.islice(_rows(path), 2)
    fields = [field.strip() for field in first]
    if not _names_columns(fields, more[0][1] if more else []):
        return Header(path, None, len(fields)), line - 1
    if not more:
        raise UserError(f"{path} must have at least one line of data after its header; got none")
    return Header(path, tuple(fields), len(fields)), line


def _names_columns(first: list[str], second: list[str]) -> bool:
    """Whether the first line is a header."""
    # An empty field says nothing: it may be a nameless column or a missing number.
    texts = [column for column, field in enumerate(first) if field and not _is_number(field)]
    if len(texts) != 1 or len(first) == 1 or "" in first:
        return bool(texts)
    [column] = texts
    if len(second) != len(first) or _is_number(second[column]):
        return True
    numbers = first[:column] + first[column + 1 :]
    counting = [[str(start + index) for index in range(len(numbers))] for start in (0, 1)]
    # Fewer than three numbers in a row may well be a sample.
    return len(numbers) >= 3 and numbers in counting


def _load(path: Path, header: Header, columns: Columns, skip: int, codes: dict[str, int]) -> Array:
    """All columns as float64; the target as codes, so that labels may be texts, columns not asked for as 0.

    Every column is parsed, and not just those in use, so that numpy notices lines of unequal length.
    """

    def encode(text: str) -> float:
        label = text.strip()
        if not label:
            raise ValueError("empty cell")
        return codes.setdefault(label, len(codes))

    asked_for = {*columns.features, columns.weight}
    converters: dict[int | str, Callable[[str], float]] = {
        column: (encode if column == columns.target else lambda _: 0.0)
        for column in range(header.count)
        if column not in asked_for
    }
    return np.loadtxt(
        path,
        delimiter=",",
        quotechar='"',
        comments=None,
        skiprows=skip,
        converters=converters,
        ndmin=2,
        encoding=_ENCODING,
    )


def _labels(codes: dict[str, int]) -> Array:
    """The distinct labels, in the order of their codes: whole numbers, else numbers, else texts."""
    texts = list(codes)
    if all(_is_number(text) for text in texts):
        try:
            return np.array([int(text) for text in texts], dtype=np.int64)
        except ValueError:
            return np.array([float(text) for text in texts])
        except OverflowError:
            pass  # As floats, neighbouring labels this long would become one.
    return np.array(texts)


def _take(matrix: Array, columns: tuple[int, ...]) -> Array:
    """The columns as a view where they are neighbours, so that a target at either end costs no copy."""
    start, stop = columns[0], columns[-1] + 1
    if columns == tuple(range(start, stop)):
        return matrix[:, start:stop]
    return matrix[:, columns]


def _explain(path: Path, header: Header, columns: Columns, skip: int, reason: str) -> UserError:
    """The first line that numpy could not have read, and why."""
    numeric = {*columns.features, columns.weight}
    for line, row in _rows(path):
        if line <= skip:
            continue
        if len(row) != header.count:
            return UserError(
                f"{path}, line {line}: every line must have the first line's {header.count} fields; got {len(row)}"
            )
        for column, field in enumerate(row):
            where = f"{path}, line {line}, column {header.label(column)}"
            if column in numeric and field.strip() and not _is_number(field):
                return UserError(f"{where}: must be a number; got {field!r}")
            if (column in numeric or column == columns.target) and not field.strip():
                return UserError(f"{where}: must not be empty; got {field!r}")
    return UserError(f"{path} is not a CSV file: {reason}")


def _is_number(text: str) -> bool:
    """Whether numpy reads it as a number; Python alone would also take 1_0."""
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text
