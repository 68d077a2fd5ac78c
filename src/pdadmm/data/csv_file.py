"""Read .csv: commas, UTF-8, and a header line if any field of the first line is not a number.

A first line of numbers and one text, over a line with a text in the same place, is a sample with its label, unless
the numbers just count the columns.

The file is cut into pieces of whole lines, which polars parses. What it refuses or finds empty, and tables of more
columns than it is good at, are read again line by line: that knows every spelling of a number, and names the line and
the column of what is none.
"""

from __future__ import annotations

import csv
import io
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from pdadmm.data.arrays import Array
from pdadmm.data.tables import Chooser, Columns, Header, Rows, Stream, Table, block_rows, in_blocks, to_table
from pdadmm.errors import UserError

_PIECE = 1 << 22
_LONGEST_LINE = 1 << 28
# Control characters that no text has: all but tab, line feed, form feed and their like.
_NOT_TEXT = re.compile(rb"[\x00-\x08\x0e-\x1f]")
_QUOTED = re.compile(rb'(?:(?<=[,\n])|\A)"[^"]*+(?:""[^"]*+)*+"(?=[,\r\n]|\Z)')
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"  # spreadsheets put it first
_POLARS_COLUMNS = 2000  # with more of them, the lines are read faster one by one


def read_csv(path: Path, choose: Chooser) -> Table:
    """The columns that `choose` picks from the header, as arrays."""
    parser = _parser(path, choose)
    table = to_table(parser.pieces(), parser.columns, parser.most_rows(), np.dtype(np.float64))
    y = None if table.y is None else _values(list(parser.labels))[table.y]
    return replace(table, y=y, is_finite=True)


def stream_csv(path: Path, choose: Chooser) -> Stream:
    """The features that `choose` picks, block by block; the header is read at once."""
    parser = _parser(path, choose)
    rows = block_rows(parser.header.count)
    return Stream(
        in_blocks((piece.X for piece in parser.pieces()), rows), parser.columns.feature_names, parser.row_name
    )


def _parser(path: Path, choose: Chooser) -> _Parser:
    header, lines = _read_header(path)
    return _Parser(path, header, choose(header), lines, {})


def _read_header(path: Path) -> tuple[Header, int]:
    """The columns, and how many lines come before the data."""
    text, _ = next(_pieces(path))
    (line, first), *more = itertools.islice(_lines(path, text, 0), 2)
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
    """Turns the lines of a file into numbers, and the target's labels into codes."""

    path: Path
    header: Header
    columns: Columns
    lines_before_data: int
    labels: dict[str, int]
    """The code of each label that has been met."""

    @property
    def numeric(self) -> list[int]:
        """The columns that must hold numbers."""
        weight = self.columns.weight
        return [*self.columns.features, *([] if weight is None else [weight])]

    def pieces(self) -> Iterator[Rows]:
        """All rows, some at a time."""
        for text, lines in self._texts():
            yield self._parse(text, lines)

    def most_rows(self) -> int:
        """As many as there are lines, some of which may be blank."""
        ends = ((b"\n", 1), (b"\r", 1), (b"\r\n", -1))
        return sum(1 + sum(sign * text.count(end) for end, sign in ends) for text, _ in self._texts())

    def row_name(self, row: int) -> str:
        """How a user finds a row of the data in the file."""
        lines = (line for text, before in self._texts() for line, _ in _lines(self.path, text, before))
        return f"line {next(itertools.islice(lines, row, None))}"

    def _texts(self) -> Iterator[tuple[bytes, int]]:
        for text, lines in _pieces(self.path):
            if lines == 0:
                start = 0
                for _ in range(self.lines_before_data):
                    start = text.index(b"\n", start) + 1
                yield text[start:], self.lines_before_data
            else:
                yield text, lines

    def _parse(self, text: bytes, lines: int) -> Rows:
        rows = self._parse_by_polars(text) if self.header.count <= _POLARS_COLUMNS else None
        return rows or self._parse_by_line(text, lines)

    def _parse_by_polars(self, text: bytes) -> Rows | None:
        """None of what needs a closer look."""
        import polars

        if b'"' in text and b'"' in _QUOTED.sub(b"", text):
            return None  # polars may panic where quotes are not as they must be
        target, last = self.columns.target, self.header.count - 1
        schema: dict[str, Any] = {str(column): polars.String for column in range(last + 1)}
        schema |= {str(column): polars.Float64 for column in self.numeric}
        wanted = sorted({*self.numeric, last, last if target is None else target})
        try:
            frame = polars.read_csv(io.BytesIO(text), has_header=False, schema=schema, columns=wanted)
        except (polars.exceptions.PolarsError, polars.exceptions.PanicException):
            return None
        if frame[str(last)].has_nulls():  # which is also how it marks a line with too few fields
            return None
        numbers = np.empty((len(frame), len(self.numeric)))
        for place, column in enumerate(self.numeric):
            numbers[:, place] = frame[str(column)].to_numpy()
        if not np.isfinite(numbers).all():
            return None
        codes = None
        if target is not None:
            found = frame[str(target)]
            distinct = found.unique()
            labels = ["" if label is None else label.strip() for label in distinct]
            if "" in labels:
                return None
            codes = found.replace_strict(distinct, self._encode(labels), return_dtype=polars.Int64).to_numpy()
        return self._rows(numbers, codes)

    def _parse_by_line(self, text: bytes, lines: int) -> Rows:
        """The same for every spelling that Python knows; raises UserError at the first field that is wrong."""
        numbers, labels, numeric, target = [], [], self.numeric, self.columns.target
        for line, row in _lines(self.path, text, lines):
            if len(row) != self.header.count:
                raise UserError(
                    f"{self.path}, line {line}: every line must have the first line's {self.header.count} fields; "
                    f"got {len(row)}"
                )
            fields = [row[column] for column in numeric]
            try:
                values = np.array(fields, dtype=np.float64)
            except ValueError:
                values = np.full(1, np.nan)
            label = None if target is None else row[target].strip()
            if not np.isfinite(values).all() or label == "" or any("_" in field for field in fields):
                raise self._wrong(line, row)
            numbers.append(values)
            labels.append(label)
        codes = None if target is None else np.array(self._encode([label or "" for label in labels]), dtype=np.int64)
        return self._rows(np.array(numbers).reshape(-1, len(numeric)), codes)

    def _wrong(self, line: int, row: list[str]) -> UserError:
        """What is wrong with the first field that is."""
        for column, field in enumerate(row):
            if column not in {*self.numeric, self.columns.target}:
                continue
            where = f"{self.path}, line {line}, column {self.header.label(column)}"
            hint = "leave such lines out, or put numbers in their place"
            if not field.strip():
                return UserError(f"{where}: must not be empty; got {field!r}; {hint}")
            if column == self.columns.target:
                continue
            if not _is_number(field):
                return UserError(f"{where}: must be a number; got {field!r}")
            if not np.isfinite(float(field)):
                return UserError(f"{where}: must be finite; got {field.strip()}; {hint}")
        raise AssertionError("a field is wrong")

    def _rows(self, numbers: Array, codes: Array | None) -> Rows:
        features = numbers[:, : len(self.columns.features)]
        return Rows(features, codes, None if self.columns.weight is None else numbers[:, -1])

    def _encode(self, labels: list[str]) -> list[int]:
        return [self.labels.setdefault(label, len(self.labels)) for label in labels]


def _pieces(path: Path) -> Iterator[tuple[bytes, int]]:
    """Whole lines, and how many lines come before them; a line break within quotes does not end a piece."""
    with path.open("rb") as file:
        rest = file.read(1 << 16).removeprefix(_BYTE_ORDER_MARK)
        if not rest.strip():
            raise UserError(f"{path} is not a CSV file: it is empty")
        if _NOT_TEXT.search(rest):
            raise UserError(f"{path} is not a CSV file: it holds binary data, not UTF-8 text")
        has_returns = b"\r" in rest and b"\n" not in rest  # which ended the lines of old Macs
        lines, more = 0, True
        while rest or more:
            block = file.read(_PIECE)
            more, rest = bool(block), rest + block
            if has_returns:
                rest = rest.replace(b"\r", b"\n")
            end = _end_of_lines(rest) if more else len(rest)
            piece, rest = rest[:end], rest[end:]
            if b"\0" in piece:
                line = lines + piece.count(b"\n", 0, piece.index(b"\0")) + 1
                raise UserError(f"{path} is not a CSV file: line {line} holds a null byte")
            if piece:
                yield piece, lines
            lines += piece.count(b"\n")
            if len(rest) > _LONGEST_LINE:
                raise UserError(
                    f"{path}, line {lines + 1}: a line must end within {_LONGEST_LINE:,} bytes; is a quote open?"
                )


def _end_of_lines(text: bytes) -> int:
    """Where the last line ends that is whole, and not in the middle of a quoted field."""
    end = text.rfind(b"\n") + 1
    within_quotes = text.count(b'"', 0, end) % 2
    while end and within_quotes:
        previous = text.rfind(b"\n", 0, end - 1) + 1
        within_quotes ^= text.count(b'"', previous, end) % 2
        end = previous
    return end


def _lines(path: Path, text: bytes, before: int) -> Iterator[tuple[int, list[str]]]:
    """Lines that are not blank, split into fields, with their number in the file, from 1."""
    try:
        reader = csv.reader(io.StringIO(text.decode("utf-8"), newline=""))
        for row in reader:
            if row:
                yield before + reader.line_num, row
    except UnicodeDecodeError as error:
        line = before + text.count(b"\n", 0, error.start) + 1
        raise UserError(f"{path} is not a CSV file in UTF-8: line {line} is not; save it as UTF-8") from None
    except csv.Error as error:
        raise UserError(f"{path} is not a CSV file: {error}") from None


def _values(texts: list[str]) -> Array:
    """Labels as whole numbers, else as numbers, else as texts."""
    if all(_is_number(text) for text in texts):
        try:
            return np.array([int(text) for text in texts], dtype=np.int64)
        except ValueError:
            return np.array([float(text) for text in texts])
        except OverflowError:
            pass  # As floats, neighbouring labels this long would become one.
    return np.array(texts)


def _is_number(text: str) -> bool:
    """Whether it is a number to those who write data; Python alone would also take 1_0."""
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text
