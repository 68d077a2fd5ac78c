"""Read .parquet, batch by batch, so that only X is of the file's size.

polars reads it in a process of its own: a damaged file may make it end the process that it is in, or print pages of
what went wrong inside it.
"""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from pdadmm.data.arrays import Array
from pdadmm.data.tables import (
    Chooser,
    Columns,
    Header,
    Rows,
    Stream,
    Table,
    block_rows,
    in_blocks,
    row_number,
    to_table,
)
from pdadmm.errors import UserError

if TYPE_CHECKING:
    import polars

# pandas writes its row labels as a column of this name; they are no feature.
_PANDAS_INDEX = re.compile(r"__index_level_\d+__")
_BATCH_ELEMENTS = 1 << 20
_REFUSED = 3

# Gives the number of rows and a table of none, is told columns and the rows of a batch, and gives the batches.
_READER = f"""
import io, json, sys, polars

def give(frame):
    content = io.BytesIO()
    frame.write_ipc_stream(content)
    sys.stdout.buffer.write(content.tell().to_bytes(8, "little") + content.getbuffer())
    sys.stdout.buffer.flush()

try:
    table = polars.scan_parquet(sys.argv[1], glob=False, hive_partitioning=False)
    give(table.select(polars.len()).collect())
    give(table.head(0).collect())
    columns, rows = json.loads(sys.stdin.readline())
    for frame in table.select(columns).collect_batches(chunk_size=rows, maintain_order=True):
        give(frame)
except polars.exceptions.PolarsError as error:
    print(error, file=sys.stderr)
    sys.exit({_REFUSED})
"""


def read_parquet(path: Path, choose: Chooser) -> Table:
    """The columns that `choose` picks from the schema, as arrays."""
    with _opened(path) as file:
        columns = choose(file.header)
        return to_table(file.rows(columns), columns, file.num_rows, file.number_type(columns))


def stream_parquet(path: Path, choose: Chooser) -> Stream:
    """The features that `choose` picks, block by block; the schema is read at once."""
    with _opened(path) as file:
        columns = choose(file.header)
        file.number_type(columns)

    def pieces() -> Iterator[Array]:
        with _opened(path) as file:
            dtype = file.number_type(columns)
            for rows in file.rows(columns):
                yield rows.X.astype(dtype, copy=False)

    return Stream(in_blocks(pieces(), block_rows(len(columns.features))), columns.feature_names, row_number)


@contextmanager
def _opened(path: Path) -> Iterator[_File]:
    command = [sys.executable, "-P", "-c", _READER, str(path.absolute())]  # -P: nothing of the present directory
    with (
        tempfile.TemporaryFile() as said,
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
            env=os.environ | {"RUST_BACKTRACE": "0"},
            start_new_session=True,  # Ctrl-C at a terminal is for us
        ) as reader,
    ):
        try:
            yield _File(path, reader, said)
        finally:
            reader.kill()


class _File:
    """A Parquet file, as its reader gives it."""

    def __init__(self, path: Path, reader: subprocess.Popen[bytes], said: IO[bytes]) -> None:
        self._path, self._reader, self._said = path, reader, said
        counted, self._schema = self._next(), self._next()
        self.num_rows = int(counted.item())
        names = tuple(name for name in self._schema.columns if not _PANDAS_INDEX.fullmatch(name))
        self.header = Header(path, names, len(names))

    def rows(self, columns: Columns) -> Iterator[Rows]:
        """The columns chosen, some rows at a time."""
        names = self.header.names
        assert names is not None
        features = [names[column] for column in columns.features]
        target, weight = (None if column is None else names[column] for column in (columns.target, columns.weight))
        wanted = [name for name in (*features, target, weight) if name is not None]
        assert self._reader.stdin is not None
        self._reader.stdin.write(json.dumps([wanted, max(1, _BATCH_ELEMENTS // len(wanted))]).encode() + b"\n")
        self._reader.stdin.flush()
        start = 0
        while start < self.num_rows:
            frame = self._next()
            X = np.column_stack([self._numbers(frame, name, start) for name in features])
            y = None if target is None else self._labels(frame, target, start)
            yield Rows(X, y, None if weight is None else self._numbers(frame, weight, start).astype(np.float64))
            start += len(frame)

    def number_type(self, columns: Columns) -> np.dtype[Any]:
        """The type that holds all features; columns that are no numbers, though they must be, are refused."""
        names = self.header.names
        assert names is not None
        if columns.weight is not None:
            self._numbers(self._schema, names[columns.weight], 0)
        return np.result_type(*(self._numbers(self._schema, names[column], 0) for column in columns.features))

    def _next(self) -> polars.DataFrame:
        import polars

        assert self._reader.stdout is not None
        length = self._reader.stdout.read(8)
        size = int.from_bytes(length, "little")
        content = self._reader.stdout.read(size)
        if len(length) == 8 and len(content) == size:
            return polars.read_ipc_stream(io.BytesIO(content))
        code = self._reader.wait()
        self._said.seek(0)
        reason = self._said.readline().decode(errors="replace").strip() if code == _REFUSED else "it is damaged"
        raise UserError(f"{self._path} is not a Parquet file: {reason}")

    def _numbers(self, frame: polars.DataFrame, name: str, start: int) -> Array:
        import polars

        column = self._without_nulls(frame, name, start)
        values: Array = (column.cast(polars.Float64) if column.dtype.is_decimal() else column).to_numpy()
        if not (column.dtype.is_numeric() or column.dtype == polars.Boolean) or values.dtype.kind not in "biuf":
            raise UserError(f"{self._path}, column {name!r}: must be numbers; got type {column.dtype}")
        return values

    def _labels(self, frame: polars.DataFrame, name: str, start: int) -> Array:
        import polars

        column = self._without_nulls(frame, name, start)
        if column.dtype in (polars.String, polars.Categorical, polars.Enum):
            return np.array(column.cast(polars.String).to_list(), dtype=np.str_)
        if column.dtype.is_numeric() or column.dtype == polars.Boolean:
            return self._numbers(frame, name, start)
        raise UserError(
            f"{self._path}, column {name!r}: a target must be numbers, texts or booleans; got type {column.dtype}"
        )

    def _without_nulls(self, frame: polars.DataFrame, name: str, start: int) -> polars.Series:
        column = frame[name]
        if column.has_nulls():
            first = start + (column.is_null().arg_max() or 0)
            raise UserError(f"{self._path}, column {name!r}: must not be empty; got null at row {first}")
        return column
