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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pdadmm.data.arrays import Array
from pdadmm.data.tables import ColumnFile, Columns, Header, Rows
from pdadmm.errors import UserError

_PIECE = 1 << 22
_LONGEST_LINE = 1 << 28
# Control characters that no text has: all but tab, line feed, form feed and their like.
_NOT_TEXT = re.compile(rb"[\x00-\x08\x0e-\x1f]")
_QUOTED = re.compile(rb'(?:(?<=[,\n])|\A)"[^"]*+(?:""[^"]*+)*+"(?=[,\r\n]|\Z)')
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"  # spreadsheets put it first
_POLARS_COLUMNS = 2000  # with more of them, the lines are read faster one by one
Parsed = tuple[Array, Array | None]


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


class CsvFile(ColumnFile):
    """A CSV file, of which the header is read at once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        text, _ = next(_pieces(path))
        (line, first), *more = itertools.islice(_lines(path, text, 0), 2)
        fields = [field.strip() for field in first]
        has_names = _names_columns(fields, more[0][1] if more else [])
        if has_names and not more:
            raise UserError(f"{path} must have at least one line of data after its header; got none")
        self._lines_before_data = line if has_names else line - 1
        self._codes: dict[str, int] = {}  # of each label that has been met
        self.header = Header(path, tuple(fields) if has_names else None, len(fields))

    def rows(self, columns: Columns) -> Iterator[Rows]:
        """Targets are codes of labels."""
        weight = [] if columns.weight is None else [columns.weight]
        parser = _Parser(self._path, self.header, [*columns.features, *weight], columns.target, self._codes)
        for text, lines in self._texts():
            numbers, codes = parser.parse(text, lines)
            yield numbers[:, : len(columns.features)], codes, numbers[:, -1] if weight else None

    def most_rows(self) -> int:
        """As many as there are lines, some of which may be blank."""
        return sum(1 + text.count(b"\n") + text.count(b"\r") - text.count(b"\r\n") for text, _ in self._texts())

    def labels(self, y: Array) -> Array:
        """Whole numbers, else numbers, else texts."""
        return _values(list(self._codes))[y]

    def row_name(self, row: int) -> str:
        """By its line."""
        lines = (line for text, before in self._texts() for line, _ in _lines(self._path, text, before))
        return f"line {next(itertools.islice(lines, row, None))}"

    def _texts(self) -> Iterator[tuple[bytes, int]]:
        """The pieces of the file without its header."""
        for text, lines in _pieces(self._path):
            before = self._lines_before_data if lines == 0 else 0
            yield text.split(b"\n", before)[-1], lines + before


@dataclass(frozen=True)
class _Parser:
    """Turns lines into the numbers of some columns, and the target's labels into codes."""

    path: Path
    header: Header
    numeric: list[int]
    target: int | None
    codes: dict[str, int]

    def parse(self, text: bytes, lines: int) -> Parsed:
        """Numbers and codes of a piece that has so many lines before it."""
        found = self._parse_by_polars(text) if self.header.count <= _POLARS_COLUMNS else None
        return found or self._parse_by_line(text, lines)

    def _parse_by_polars(self, text: bytes) -> Parsed | None:
        """None of what needs a closer look."""
        import polars

        if b'"' in text and b'"' in _QUOTED.sub(b"", text):
            return None  # polars may panic where quotes are not as they must be
        target, last = self.target, self.header.count - 1
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
        return numbers, codes

    def _parse_by_line(self, text: bytes, lines: int) -> Parsed:
        """The same for every spelling that Python knows; raises UserError at the first field that is wrong."""
        numbers, labels, numeric, target = [], [], self.numeric, self.target
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
        return np.array(numbers).reshape(-1, len(numeric)), codes

    def _wrong(self, line: int, row: list[str]) -> UserError:
        """What is wrong with the first field that is."""
        for column, field in enumerate(row):
            if column not in {*self.numeric, self.target}:
                continue
            where = f"{self.path}, line {line}, column {self.header.label(column)}"
            hint = "leave such lines out, or put numbers in their place"
            if not field.strip():
                return UserError(f"{where}: must not be empty; got {field!r}; {hint}")
            if column == self.target:
                continue
            if not _is_number(field):
                return UserError(f"{where}: must be a number; got {field!r}")
            if not np.isfinite(float(field)):
                return UserError(f"{where}: must be finite; got {field.strip()}; {hint}")
        raise AssertionError("a field is wrong")

    def _encode(self, labels: list[str]) -> list[int]:
        return [self.codes.setdefault(label, len(self.codes)) for label in labels]


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
