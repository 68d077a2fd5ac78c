"""Read a file of samples, whatever its format; the extension says which.

A file that cannot be read, or is not what its name says, is a user's mistake with the file's name in it.
"""

from __future__ import annotations

import stat
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from pdadmm.data.arrays import as_float, is_mapped
from pdadmm.data.csv_file import read_csv, stream_csv
from pdadmm.data.npz_file import read_npz, stream_npz
from pdadmm.data.parquet_file import read_parquet, stream_parquet
from pdadmm.data.tables import Stream, Table, feature_columns, training_columns
from pdadmm.errors import UserError

EXTENSIONS = (".npz", ".csv", ".parquet")


def read_tables(
    path: str | Path, target: str | None = None, weight: str | None = None, mapped: bool = False
) -> tuple[Table, Table | None]:
    """The samples of a file with their targets: the training part and, if a .npz has one, the test part.

    With `mapped`, arrays that a .npz stores uncompressed stay in the file, in the type they have there.
    """
    path = _checked_path(path)
    if path.suffix.lower() == ".npz":
        for option, value in (("target", target), ("weight", weight)):
            if value is not None:
                raise UserError(
                    f"{option} must not be set for a .npz file, whose arrays have fixed names; got {value!r}"
                )
        train, test = read_npz(path, mapped)
        return _floating(train), None if test is None else _floating(test)
    read = read_csv if path.suffix.lower() == ".csv" else read_parquet
    return _floating(read(path, partial(training_columns, target=target, weight=weight))), None


def stream_features(path: str | Path, features: Sequence[str] | int, target: str | None = None) -> Stream:
    """The samples of a file for prediction, a block at a time; columns are found at once.

    `features` are the names of the model's features, or just their number. Columns with names are found by
    name. Else they are taken in order, without the target column where the file has that too.
    """
    path = _checked_path(path)
    if path.suffix.lower() != ".npz":
        stream = stream_csv if path.suffix.lower() == ".csv" else stream_parquet
        return stream(path, partial(feature_columns, features=features, target=target))
    found = stream_npz(path)
    wanted = features if isinstance(features, int) else len(features)
    if len(found.feature_names) not in (0, wanted):
        raise UserError(f"{path} must have the {wanted} features of the model; got {len(found.feature_names)}")
    return found


def has_known_extension(path: str | Path) -> bool:
    """Whether the name ends like a file we can read."""
    return Path(path).suffix.lower() in EXTENSIONS


def _checked_path(path: str | Path) -> Path:
    path = Path(path)
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


def _floating(table: Table) -> Table:
    return table if is_mapped(table.X) else replace(table, X=as_float(table.X))
