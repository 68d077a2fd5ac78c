"""Read .parquet, with pyarrow behind this door only; batch by batch, so that only X is of the file's size."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from pdadmm.data.arrays import Array
from pdadmm.data.tables import Chooser, Columns, Header, Stream, Table, block_rows, in_blocks, row_number
from pdadmm.errors import UserError

# pandas writes its row labels as a column of this name; they are no feature.
_PANDAS_INDEX = re.compile(r"__index_level_\d+__")


def read_parquet(path: Path, choose: Chooser) -> Table:
    """The columns that `choose` picks from the schema, as arrays."""
    with _opened(path) as (file, header):
        return _read(file, header, choose(header))


def stream_parquet(path: Path, choose: Chooser) -> Stream:
    """The features that `choose` picks, block by block; the schema is read at once."""
    with _opened(path) as (file, header):
        columns = choose(header)
        assert header.names is not None
        names = [header.names[column] for column in columns.features]
        dtype = np.result_type(*(_number_type(header, file.schema_arrow, name) for name in names))
    rows = block_rows(len(names))

    def pieces() -> Iterator[Array]:
        with _opened(path) as (file, header):
            start = 0
            for batch in file.iter_batches(batch_size=rows, columns=names):
                X = np.empty((batch.num_rows, len(names)), dtype)
                for column, name in enumerate(names):
                    X[:, column] = _numbers(header, batch, name, start)
                start += batch.num_rows
                yield X

    return Stream(in_blocks(pieces(), rows), columns.feature_names, row_number)


@contextmanager
def _opened(path: Path) -> Iterator[tuple[Any, Header]]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise UserError(
            f"reading {path} needs pyarrow, which is not installed: pip install 'pdadmm[parquet]'"
        ) from None
    try:
        with parquet.ParquetFile(path) as file:
            schema = file.schema_arrow
            names = tuple(name for name in schema.names if not _PANDAS_INDEX.fullmatch(name))
            yield file, Header(path, names, len(names))
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not a Parquet file: {error}") from None


def _read(file: Any, header: Header, columns: Columns) -> Table:
    assert header.names is not None
    schema = file.schema_arrow
    features = [header.names[column] for column in columns.features]
    dtypes = [_number_type(header, schema, name) for name in features]
    X = np.empty((file.metadata.num_rows, len(features)), dtype=np.result_type(*dtypes))
    target = None if columns.target is None else header.names[columns.target]
    weight = None if columns.weight is None else header.names[columns.weight]
    if weight is not None:
        _number_type(header, schema, weight)
    targets: list[Array] = []
    weights: list[Array] = []
    start = 0
    wanted = [name for name in (*features, target, weight) if name is not None]
    for batch in file.iter_batches(columns=wanted):
        rows = slice(start, start + batch.num_rows)
        for column, name in enumerate(features):
            X[rows, column] = _numbers(header, batch, name, start)
        if target is not None:
            targets.append(_labels(header, batch, target, start))
        if weight is not None:
            weights.append(_numbers(header, batch, weight, start).astype(np.float64))
        start = rows.stop
    y = None if target is None else _joined(targets)
    return Table(X, y, None if weight is None else _joined(weights), columns.feature_names)


def _number_type(header: Header, schema: Any, name: str) -> np.dtype[Any]:
    """numpy's type for a column that must hold numbers."""
    from pyarrow import types

    kind = schema.field(name).type
    if types.is_decimal(kind):
        return np.dtype(np.float64)
    if types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind):
        dtype: np.dtype[Any] = np.dtype(kind.to_pandas_dtype())
        return dtype
    raise UserError(f"{header.path}, column {name!r}: must be numbers; got type {kind}")


def _numbers(header: Header, batch: Any, name: str, start: int) -> Array:
    from pyarrow import float64, types

    column = _without_nulls(header, batch, name, start)
    if types.is_decimal(column.type):
        column = column.cast(float64())
    values: Array = column.to_numpy(zero_copy_only=False)
    return values


def _labels(header: Header, batch: Any, name: str, start: int) -> Array:
    from pyarrow import types

    column = _without_nulls(header, batch, name, start)
    if types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    if types.is_string(kind) or types.is_large_string(kind):
        return np.array(column.to_pylist(), dtype=np.str_)
    if types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_decimal(kind):
        return _numbers(header, batch, name, start)
    raise UserError(f"{header.path}, column {name!r}: a target must be numbers, texts or booleans; got type {kind}")


def _without_nulls(header: Header, batch: Any, name: str, start: int) -> Any:
    column = batch.column(name)
    if column.null_count:
        first = start + int(column.is_null().to_numpy(zero_copy_only=False).argmax())
        raise UserError(f"{header.path}, column {name!r}: must not be empty; got null at row {first}")
    return column


def _joined(pieces: list[Array]) -> Array:
    return np.concatenate(pieces) if pieces else np.empty(0)
