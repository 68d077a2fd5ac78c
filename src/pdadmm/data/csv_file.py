"""Read .csv: commas, UTF-8, and a header line if any field of the first line is not a number.

A first line of numbers and one text, over a line with a text in the same place, is a sample with its label, unless
the numbers just count the columns.

numpy parses the numbers in one go. Only when it fails is the file walked again, slowly, for the place to name.
"""

from __future__ import annotations

import csv
import io
import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pdadmm.data.arrays import Array, row_chunks
from pdadmm.data.tables import Chooser, Columns, Header, Stream, Table, block_rows, in_blocks
from pdadmm.errors import UserError

# Spreadsheets put a byte order mark first; this encoding takes it off where it is.
_ENCODING = "utf-8-sig"
# Control characters that no text has: all but tab, line feed, form feed and their like.
_NOT_TEXT = re.compile(rb"[\x00-\x08\x0e-\x1f]")


def read_csv(path: Path, choose: Chooser) -> Table:
    """The columns that `choose` picks from the header, as arrays."""
    header, lines_before_data = _start(path)
    columns = choose(header)
    codes: dict[str, int] = {}
    matrix = _Parser(path, header, columns, lines_before_data, codes).matrix(path, lines_before_data)
    _check_finite(path, header, columns, lines_before_data, matrix)
    y = None if columns.target is None else _labels(codes)[matrix[:, columns.target].astype(np.intp)]
    weight = None if columns.weight is None else matrix[:, columns.weight].copy()
    return Table(_take(matrix, columns.features), y, weight, columns.feature_names)


def stream_csv(path: Path, choose: Chooser) -> Stream:
    """The features that `choose` picks, block by block; the header is read at once."""
    header, lines_before_data = _start(path)
    columns = choose(header)
    parser, rows = _Parser(path, header, columns, lines_before_data, {}), block_rows(header.count)

    def pieces() -> Iterator[Array]:
        try:
            for text in _pieces(path, lines_before_data, rows):
                yield _take(parser.matrix(io.StringIO(text), 0), columns.features)
        except UnicodeDecodeError:
            raise _not_utf8(path) from None

    def row_name(row: int) -> str:
        return _line_name(path, lines_before_data, row)

    return Stream(in_blocks(pieces(), rows), columns.feature_names, row_name)


def _line_name(path: Path, lines_before_data: int, row: int) -> str:
    """How a user finds a row of the data in the file."""
    lines = (line for line, _ in _rows(path) if line > lines_before_data)
    return f"line {next(itertools.islice(lines, row, None))}"


def _not_utf8(path: Path) -> UserError:
    with path.open("rb") as file:
        line = next((number for number, text in enumerate(file, 1) if not _is_utf8(text)), None)
    return UserError(f"{path} is not a CSV file in UTF-8: line {line} is not; save it as UTF-8")


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _check_finite(path: Path, header: Header, columns: Columns, lines_before_data: int, matrix: Array) -> None:
    """Refuse NaN and infinity by the line of the file, which an array no longer knows."""
    numeric = [*columns.features, *([] if columns.weight is None else [columns.weight])]
    for rows in row_chunks(matrix):
        bad = ~np.isfinite(matrix[rows][:, numeric])
        if bad.any():
            row, index = np.argwhere(bad)[0].tolist()
            line, column = _line_name(path, lines_before_data, rows.start + row), numeric[index]
            raise UserError(
                f"{path}, {line}, column {header.label(column)}: must be finite; got {matrix[rows][row, column]}; "
                f"leave such lines out, or put numbers in their place"
            )


def _pieces(path: Path, skip: int, count: int) -> Iterator[str]:
    """The lines after the first `skip`, so many at a time; a line break within quotes does not end a piece."""
    with path.open(encoding=_ENCODING) as file:
        for _ in range(skip):
            next(file)
        lines: list[str] = []
        quoted = False
        for line in file:
            lines.append(line)
            quoted ^= line.count('"') % 2 == 1
            if len(lines) >= count and not quoted:
                yield "".join(lines)
                lines = []
        yield "".join(lines)


def _start(path: Path) -> tuple[Header, int]:
    _check_text(path)
    try:
        return _read_header(path)
    except UnicodeDecodeError:
        raise _not_utf8(path) from None
    except csv.Error as error:
        raise UserError(f"{path} is not a CSV file: {error}") from None


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


@dataclass(frozen=True)
class _Parser:
    """Turns lines into numbers, the target's labels into `codes`."""

    path: Path
    header: Header
    columns: Columns
    lines_before_data: int
    codes: dict[str, int]

    def matrix(self, source: Path | io.StringIO, skip: int) -> Array:
        """All columns of a file or some lines of it; what numpy cannot read is named by its line in the file."""
        if isinstance(source, io.StringIO) and not source.getvalue().strip():
            return np.empty((0, self.header.count))
        try:
            matrix = self._load(source, skip)
        except UnicodeDecodeError:
            raise _not_utf8(self.path) from None
        except ValueError as error:
            raise self._explained(str(error)) from None
        if matrix.shape[1] != self.header.count:
            raise self._explained(f"{matrix.shape[1]} fields per line")
        return matrix

    def _explained(self, reason: str) -> UserError:
        return _explain(self.path, self.header, self.columns, self.lines_before_data, reason)

    def _encode(self, text: str) -> float:
        label = text.strip()
        if not label:
            raise ValueError("empty cell")
        return self.codes.setdefault(label, len(self.codes))

    def _load(self, source: Path | io.StringIO, skip: int) -> Array:
        """All columns as float64; the target as codes, so that labels may be texts, columns not asked for as 0.

        Every column is parsed, and not just those in use, so that numpy notices lines of unequal length.
        """
        asked_for = {*self.columns.features, self.columns.weight}
        converters: dict[int | str, Callable[[str], float]] = {
            column: (self._encode if column == self.columns.target else lambda _: 0.0)
            for column in range(self.header.count)
            if column not in asked_for
        }
        return np.loadtxt(
            source,
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
                return UserError(
                    f"{where}: must not be empty; got {field!r}; leave such lines out, or put numbers in their place"
                )
    return UserError(f"{path} is not a CSV file: {reason}")


def _is_number(text: str) -> bool:
    """Whether numpy reads it as a number; Python alone would also take 1_0."""
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text
