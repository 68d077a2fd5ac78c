"""From what the user calls the data (a name or a file) to a checked `Dataset`.

Where the data has no test part, one is held out; in classification each class gives its share. A file that cannot be
read, or is not what its name says, is a user's mistake with the file's name in it.
"""

from __future__ import annotations

import stat
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from pdadmm.data.arrays import Array, generated_names, row_chunks
from pdadmm.data.checks import check_dataset, check_part
from pdadmm.data.csv_file import CsvFile
from pdadmm.data.dataset import Dataset, Part
from pdadmm.data.named import load_named
from pdadmm.data.npz_file import read_npz, stream_npz
from pdadmm.data.parquet_file import ParquetFile
from pdadmm.data.published import VARIANTS
from pdadmm.data.split import split_rows
from pdadmm.data.tables import Header, Stream, block_rows, feature_columns, in_blocks, row_number, training_columns
from pdadmm.errors import UserError, did_you_mean
from pdadmm.storage import Storage

EXTENSIONS = (".npz", ".csv", ".parquet")
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
    data = read_data(source, target, weight, mapped=place.is_disk)
    if regression and source in SOURCES:
        data = replace(data, notes=(f"{source} has classes; the regression is on their numbers", *data.notes))
    if data.test is not None:
        return check_dataset(data, regression)
    whole = check_part(data.train, data.name, regression, data.feature_names, one_class_allowed, data.is_finite)
    data = replace(data, train=whole, checked_for=None if one_class_allowed else regression)
    if test_fraction == 0:
        return data
    place.check_room(whole.X.nbytes, "the training and the test part of the data")
    split = split_rows(len(whole.X), test_fraction, split_seed, None if regression else whole.y)
    train, test = (_rows(whole, rows, place) for rows in split)
    return replace(data, train=train, test=test)


def read_data(source: str, target: str | None = None, weight: str | None = None, mapped: bool = False) -> Dataset:
    """A named set, or a file's samples with their targets, whatever its format; nothing is checked or split yet.

    With `mapped`, arrays that a .npz stores uncompressed stay in the file, in the type they have there.
    """
    for option, value in (("target", target), ("weight", weight)):
        if value is not None and source in SOURCES:
            raise UserError(f"{option} must not be set for {source}, only for a file; got {value!r}")
        if value is not None and source.lower().endswith(".npz"):
            raise UserError(f"{option} must not be set for a .npz file, whose arrays have fixed names; got {value!r}")
    if source in SOURCES:
        return SOURCES[source]()
    path = _checked_file(source)
    if path.suffix.lower() == ".npz":
        train, test = read_npz(path, mapped)
        width = train.X.shape[1] if train.X.ndim == 2 else 0
        return Dataset(path.name, train, test, generated_names(width))
    file = _column_file(path)
    columns = training_columns(file.header, target, weight)
    is_finite = isinstance(file, CsvFile)  # it names the line of what is not
    return Dataset(path.name, file.part(columns), None, columns.feature_names, is_finite=is_finite)


def stream_samples(source: str, features: tuple[str, ...], target: str | None = None) -> Stream:
    """Samples to predict for, a block at a time: those of a file, or the test part of a named set, else all of it.

    `features` are the names of the model's. Columns with names are found by name, and at once; else they are taken in
    order, without the target column where the file has that too.
    """
    if source in SOURCES:
        data = SOURCES[source]()
        chosen = feature_columns(Header(Path(source), data.feature_names, len(data.feature_names)), features, None)
        X = (data.test or data.train).X
        if chosen.feature_names != data.feature_names:
            X = X[:, chosen.features]
        return Stream(in_blocks([X], block_rows(X.shape[1])), chosen.feature_names, row_number, data.notes)
    path = _checked_file(source)
    if path.suffix.lower() != ".npz":
        file = _column_file(path)
        return file.stream(feature_columns(file.header, features, target))
    found = stream_npz(path)
    if len(found.feature_names) not in (0, len(features)):
        raise UserError(f"{path} must have the {len(features)} features of the model; got {len(found.feature_names)}")
    return found


def _digits() -> Dataset:
    """1797 images of handwritten digits, 8 by 8, which scikit-learn brings along."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    return Dataset("digits", Part(digits.data, digits.target), None, tuple(digits.feature_names))


SOURCES: dict[str, Callable[[], Dataset]] = {
    "digits": _digits,
    **{name: partial(load_named, variant) for name, variant in VARIANTS.items()},
}
"""Data sets by name, and what reads them."""


def _checked_file(source: str) -> Path:
    path = Path(source)
    if path.suffix.lower() not in EXTENSIONS:
        raise UserError(
            f"data must be a known name ({', '.join(SOURCES)}) "
            f"or a file that ends in {', '.join(EXTENSIONS)}; got {source!r}{did_you_mean(source, SOURCES)}"
        )
    try:
        path = path.expanduser()
        mode = path.stat().st_mode
        if stat.S_ISREG(mode):
            path.open("rb").close()
    except OSError as error:
        raise UserError(f"cannot read the data file {str(path)!r}: {error.strerror}") from None
    except (RuntimeError, ValueError) as error:  # ~name of somebody unknown; a name with a null byte
        raise UserError(f"cannot read the data file {str(path)!r}: {error}") from None
    if not stat.S_ISREG(mode):
        kind = "a directory" if stat.S_ISDIR(mode) else "a pipe, a socket or a device"
        raise UserError(f"a data file must be a file on a disk; {str(path)!r} is {kind}")
    return path


def _column_file(path: Path) -> CsvFile | ParquetFile:
    return CsvFile(path) if path.suffix.lower() == ".csv" else ParquetFile(path)


def _rows(part: Part, rows: Array, storage: Storage) -> Part:
    X = storage.array((len(rows), part.X.shape[1]), part.X.dtype)
    for some in row_chunks(X):
        X[some] = part.X[rows[some]]
    return Part(X, part.y[rows], None if part.weight is None else part.weight[rows])
