"""From what the user calls the data (a name or a file) to a checked `Dataset`.

Where the data has no test part, one is held out; in classification each class gives its share.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from pdadmm.data.arrays import Array, row_chunks
from pdadmm.data.checks import check_dataset, check_part
from pdadmm.data.dataset import Dataset, Part
from pdadmm.data.formats import EXTENSIONS, has_known_extension, read_tables, stream_features
from pdadmm.data.named import load_named
from pdadmm.data.published import VARIANTS
from pdadmm.data.split import split_rows
from pdadmm.data.tables import Header, Stream, Table, block_rows, feature_columns, in_blocks, row_number
from pdadmm.errors import UserError, did_you_mean
from pdadmm.storage import Storage

_LARGEST_SEED = 2**32 - 1  # what numpy's generator takes, as scikit-learn seeds it


def load_data(
    source: str,
    *,
    target: str | None = None,
    weight: str | None = None,
    test_fraction: float = 0.2,
    split_seed: int = 0,
    regression: bool = False,
    one_class_allowed: bool = False,
    storage: Storage | None = None,
) -> Dataset:
    """Read, check and, where there is no test part yet, split the data; test_fraction 0 holds nothing out.

    `source` is a name in `SOURCES` or a file; `target` and `weight` name columns of a .csv or .parquet file.
    Class labels come back as int64, bool or str. `one_class_allowed` is for data to evaluate on, not to learn from.
    With a `storage` on the disk the features are never in memory as a whole, if the file is an uncompressed .npz.
    """
    if not 0 <= test_fraction < 1:
        raise UserError(f"test_fraction must be at least 0 and below 1; got {test_fraction}")
    if not 0 <= split_seed <= _LARGEST_SEED:
        raise UserError(f"split_seed must be from 0 to {_LARGEST_SEED}; got {split_seed}")
    place = storage or Storage()
    train_table, test_table = _read(source, target, weight, mapped=place.is_disk)
    name = source if source in SOURCES else Path(source).name
    names = train_table.feature_names
    notes = train_table.notes
    if regression and source in SOURCES:
        notes += (f"{source} has classes; the regression is on their numbers",)
    whole = _part(train_table)
    if test_table is not None:
        return check_dataset(Dataset(name, whole, _part(test_table), names, notes + test_table.notes), regression)
    whole = check_part(whole, name, regression, names, one_class_allowed, train_table.is_finite)
    checked_for = None if one_class_allowed else regression
    if test_fraction == 0:
        return Dataset(name, whole, None, names, notes, checked_for)
    place.check_room(whole.X.nbytes, "the training and the test part of the data")
    split = split_rows(len(whole.X), test_fraction, split_seed, None if regression else whole.y)
    train, test = (_rows(whole, rows, place) for rows in split)
    return Dataset(name, train, test, names, notes, checked_for)


def stream_samples(source: str, features: Sequence[str], target: str | None = None) -> Stream:
    """Samples to predict for, a block at a time: those of a file, or the test part of a named set, else all of it."""
    if source not in SOURCES:
        return stream_features(_known_file(source), features, target=target)
    train, test = _read(source, target, weight=None, mapped=False)
    table = train if test is None else test
    header = Header(Path(source), table.feature_names, len(table.feature_names))
    chosen = feature_columns(header, features, target=None)
    in_order = chosen.features == tuple(range(header.count))
    X = table.X if in_order else table.X[:, chosen.features]
    return Stream(in_blocks([X], block_rows(X.shape[1])), chosen.feature_names, row_number, table.notes)


def _digits() -> tuple[Table, Table | None]:
    """1797 images of handwritten digits, 8 by 8, which scikit-learn brings along."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    return Table(digits.data, digits.target, None, tuple(digits.feature_names)), None


SOURCES: dict[str, Callable[[], tuple[Table, Table | None]]] = {
    "digits": _digits,
    **{name: partial(load_named, variant) for name, variant in VARIANTS.items()},
}
"""Data sets by name; a loader returns the training part and, where one is defined, the test part."""


def _read(source: str, target: str | None, weight: str | None, mapped: bool) -> tuple[Table, Table | None]:
    if source in SOURCES:
        for option, value in (("target", target), ("weight", weight)):
            if value is not None:
                raise UserError(f"{option} must not be set for {source}, only for a file; got {value!r}")
        return SOURCES[source]()
    return read_tables(_known_file(source), target, weight, mapped)


def _known_file(source: str) -> str:
    if not has_known_extension(source):
        raise UserError(
            f"data must be a known name ({', '.join(SOURCES)}) "
            f"or a file that ends in {', '.join(EXTENSIONS)}; got {source!r}{did_you_mean(source, SOURCES)}"
        )
    return source


def _part(table: Table) -> Part:
    assert table.y is not None, "a training table has targets"
    return Part(table.X, table.y, table.weight)


def _rows(part: Part, rows: Array, storage: Storage) -> Part:
    X = storage.array((len(rows), part.X.shape[1]), part.X.dtype)
    for some in row_chunks(X):
        X[some] = part.X[rows[some]]
    return Part(X, part.y[rows], None if part.weight is None else part.weight[rows])
