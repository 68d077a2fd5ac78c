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
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pdadmm.data.arrays import Array
from pdadmm.data.tables import ColumnFile, Columns, Header, Rows
from pdadmm.errors import UserError

if TYPE_CHECKING:
    import polars

# pandas writes its row labels as a column of this name; they are no feature.
_PANDAS_INDEX = re.compile(r"__index_level_\d+__")
_BATCH_ELEMENTS = 1 << 18
_REFUSED = 3

# Is told columns and the rows of a batch, and gives the batches; for no columns the number of rows and an empty table.
_READER = f"""
import io, json, sys, polars

def give(frame):
    content = io.BytesIO()
    frame.write_ipc_stream(content)
    sys.stdout.buffer.write(content.tell().to_bytes(8, "little") + content.getbuffer())
    sys.stdout.buffer.flush()

columns, rows = json.loads(sys.stdin.read())
try:
    table = polars.scan_parquet(sys.argv[1], glob=False, hive_partitioning=False)
    if columns is None:
        give(table.select(polars.len()).collect())
        give(table.head(0).collect())
    else:
        for frame in table.select(columns).collect_batches(chunk_size=rows, maintain_order=True):
            give(frame)
except polars.exceptions.PolarsError as error:
    print(error, file=sys.stderr)
    sys.exit({_REFUSED})
"""


class ParquetFile(ColumnFile):
    """A Parquet file, of which the schema is read at once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        counted, self._schema = self._frames(None, 1)
        self._count = int(counted.item())
        names = tuple(name for name in self._schema.columns if not _PANDAS_INDEX.fullmatch(name))
        self.header = Header(path, names, len(names))

    def rows(self, columns: Columns) -> Iterator[Rows]:
        """A null is refused, and named by its row."""
        features, target, weight = self._named(columns)
        wanted = [name for name in (*features, target, weight) if name is not None]
        start = 0
        for frame in self._frames(wanted, max(1, _BATCH_ELEMENTS // len(wanted))):
            if start + len(frame) > self._count:
                break
            X = np.column_stack([self._numbers(frame, name, start) for name in features])
            y = None if target is None else self._labels(frame, target, start)
            yield X, y, None if weight is None else self._numbers(frame, weight, start).astype(np.float64)
            start += len(frame)
        if start != self._count:
            raise UserError(f"{self._path} is not a Parquet file: it is damaged")

    def most_rows(self) -> int:
        """As many as the file says."""
        return self._count

    def number_type(self, columns: Columns) -> np.dtype[Any]:
        """Columns that are no numbers, though they must be, are refused."""
        features, _, weight = self._named(columns)
        if weight is not None:
            self._numbers(self._schema, weight, 0)
        return np.result_type(*(self._numbers(self._schema, name, 0) for name in features))

    def _named(self, columns: Columns) -> tuple[list[str], str | None, str | None]:
        names = self.header.names
        assert names is not None
        target, weight = (None if column is None else names[column] for column in (columns.target, columns.weight))
        return [names[column] for column in columns.features], target, weight

    def _frames(self, columns: list[str] | None, rows: int) -> Iterator[polars.DataFrame]:
        """What a reader of its own gives; it ends with the iteration."""
        import polars

        command = [sys.executable, "-P", "-c", _READER, str(self._path.absolute())]  # -P: not the present directory
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
            assert reader.stdin is not None
            assert reader.stdout is not None
            try:
                reader.stdin.write(json.dumps([columns, rows]).encode())
                reader.stdin.close()
                while size := int.from_bytes(reader.stdout.read(8), "little"):
                    content = io.BytesIO(reader.stdout.read(size))
                    if content.getbuffer().nbytes < size:
                        break
                    frame = polars.read_ipc_stream(content)
                    del content
                    yield frame
                if code := reader.wait():
                    said.seek(0)
                    reason = said.readline().decode(errors="replace").strip() if code == _REFUSED else "it is damaged"
                    raise UserError(f"{self._path} is not a Parquet file: {reason}")
            finally:
                reader.kill()

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
