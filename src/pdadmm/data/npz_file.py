"""Read numpy's .npz: either X and y, or X_train and y_train with X_test and y_test.

Weights are w, w_train and w_test. Arrays with more dimensions, such as images, are flattened to rows. Pickled
objects are refused, because loading them runs code from the file.

np.savez stores arrays as they are, at some place in a zip archive, so they can be mapped into memory instead of read.
Compressed arrays (np.savez_compressed), texts and arrays in Fortran's order are read.
"""

from __future__ import annotations

import math
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from pdadmm.data.arrays import Array, as_float, generated_names, shorten
from pdadmm.data.tables import Stream, Table, block_rows, in_blocks, row_number
from pdadmm.errors import UserError

# RuntimeError and NotImplementedError: zip members that are encrypted or packed in an unknown way.
_BROKEN = (ValueError, EOFError, OSError, RuntimeError, NotImplementedError, zipfile.BadZipFile, zlib.error)
_LOCAL_HEADER = struct.Struct("<26xHH")  # of a zip's member; the lengths of its name and extra field come last
_ENCRYPTED = 1
_PIECE = 2**20
_LARGEST_ITEM = 8  # longer floats are rounded to float64 when they are read


def read_npz(path: Path, mapped: bool = False) -> tuple[Table, Table | None]:
    """The training part and, where the file has one, the test part; `mapped` leaves in the file what can stay there."""
    with _opened(path, mapped) as file:
        if "X_train" not in file and "y_train" not in file:
            return _part(path, file, ""), None
        train = _part(path, file, "_train")
        has_test = "X_test" in file or "y_test" in file
        return train, _part(path, file, "_test") if has_test else None


def stream_npz(path: Path) -> Stream:
    """X, or else X_test, without targets, block by block; compressed or not.

    Read as a whole are only arrays in Fortran's order, and what is no array of numbers, for the checks to name.
    """
    with _opened(path, mapped=False) as file:
        key = "X_test" if "X" not in file and "X_test" in file else "X"
        found = _streamed(path, file, key)
        if found is None:
            X = _flat(_array(path, file, key))
            rows = block_rows(X.shape[1]) if X.ndim == 2 else max(1, len(X))
            return Stream(in_blocks([X] if len(X) else [], rows), _names(X), row_number)
    shape, dtype = found
    width = math.prod(shape[1:])
    return Stream(_blocks(path, key, shape[0], width, dtype), generated_names(width), row_number)


def _streamed(path: Path, file: Mapping[str, object], key: str) -> tuple[tuple[int, ...], np.dtype[Any]] | None:
    """Shape and type of an array that can be read a few rows at a time."""
    if key not in file:
        return None
    with _broken_is_named(path, key), zipfile.ZipFile(path) as archive, _member(archive, key) as member:
        header = _header(member)
    if header is None:
        return None
    shape, fortran_order, dtype = header
    can_stream = _is_plain(dtype) and not fortran_order and len(shape) > 1 and math.prod(shape) > 0
    return (shape, dtype) if can_stream else None


def _blocks(path: Path, key: str, count: int, width: int, dtype: np.dtype[Any]) -> Iterator[Array]:
    rows = block_rows(width)
    with _broken_is_named(path, key), zipfile.ZipFile(path) as archive, _member(archive, key) as member:
        _header(member)
        for start in range(0, count, rows):
            some = min(rows, count - start)
            content = member.read(some * width * dtype.itemsize)
            yield as_float(np.frombuffer(content, dtype).reshape(some, width))
        member.read(1)  # the library compares the check sum at the end


def _member(archive: zipfile.ZipFile, key: str) -> IO[bytes]:
    return archive.open(key if key in archive.namelist() else f"{key}.npy")


@contextmanager
def _broken_is_named(path: Path, key: str) -> Iterator[None]:
    try:
        yield
    except UserError:
        raise
    except _BROKEN as error:
        raise UserError(f"{path} is not a .npz file: {key} cannot be read: {error}") from None


def _header(member: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]] | None:
    """Shape, whether in Fortran's order, and type; None of what is no array, or a newer kind of one."""
    try:
        version = np.lib.format.read_magic(member)
    except ValueError:
        return None
    return np.lib.format.read_array_header_1_0(member) if version == (1, 0) else None


def _is_plain(dtype: np.dtype[Any]) -> bool:
    return dtype.kind in "biuf" and dtype.itemsize <= _LARGEST_ITEM


@contextmanager
def _opened(path: Path, mapped: bool) -> Iterator[Mapping[str, object]]:
    # np.load would take a text for a pickle and a .npy for an array, with messages that name neither.
    if not zipfile.is_zipfile(path):
        raise UserError(f"{path} is not a .npz file: it is not a zip archive, or is cut short")
    try:
        file = np.load(path, allow_pickle=False)
    except _BROKEN as error:
        raise UserError(f"{path} is not a .npz file: {error}") from None
    with file:
        yield _Mapped(path, file) if mapped else file


class _Mapped(Mapping[str, object]):
    """The arrays of a .npz, each mapped where that can be done."""

    def __init__(self, path: Path, file: np.lib.npyio.NpzFile) -> None:
        self._path, self._file = path, file

    def __iter__(self) -> Iterator[str]:
        return iter(self._file)

    def __len__(self) -> int:
        return len(self._file)

    def __contains__(self, key: object) -> bool:
        return key in self._file

    def __getitem__(self, key: str) -> object:
        array = self._map(key)
        return self._file[key] if array is None else array

    def _map(self, key: str) -> Array | None:
        archive = self._file.zip
        assert archive is not None
        info = archive.getinfo(key if key in archive.namelist() else f"{key}.npy")
        if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & _ENCRYPTED:
            return None
        with archive.open(info) as member:
            header = _header(member)
            if header is None:
                return None
            shape, fortran_order, dtype = header
            start = member.tell()
            size = math.prod(shape) * dtype.itemsize
            can_stay = _is_plain(dtype) and not fortran_order and size > 0
            if not can_stay or info.file_size != start + size:
                return None
            while member.read(_PIECE):  # the library compares the check sum at the end
                pass
        return np.memmap(self._path, dtype, "r", self._offset(info) + start, shape)

    def _offset(self, info: zipfile.ZipInfo) -> int:
        """Where a member's content begins: after its own header, whose name and extra field have any length."""
        with self._path.open("rb") as file:
            file.seek(info.header_offset)
            header = file.read(_LOCAL_HEADER.size)
        name, extra = _LOCAL_HEADER.unpack(header)
        return int(info.header_offset + _LOCAL_HEADER.size + name + extra)


def _part(path: Path, file: Mapping[str, object], suffix: str) -> Table:
    X = _flat(_array(path, file, "X" + suffix))
    y = _array(path, file, "y" + suffix)
    weight = _array(path, file, "w" + suffix) if "w" + suffix in file else None
    return Table(X, y, weight, _names(X))


def _array(path: Path, file: Mapping[str, object], key: str) -> Array:
    if key not in file:
        raise UserError(
            f"{path} must have X and y, or X_train, y_train, X_test and y_test; "
            f"it lacks {key!r}, keys: {shorten(sorted(file)) or 'none'}"
        )
    try:
        array = file[key]
    except _BROKEN as error:
        if "allow_pickle" in str(error):
            raise UserError(
                f"{path}: {key} must be an array of numbers or texts; got Python objects "
                f"(save {key}.astype(str) or {key}.astype(float))"
            ) from None
        raise UserError(f"{path} is not a .npz file: {key} cannot be read: {error}") from None
    if not isinstance(array, np.ndarray):
        raise UserError(f"{path} is not a .npz file: {key} is not an array")
    return array


def _flat(X: Array) -> Array:
    """Images and the like as rows; the checks name what has fewer dimensions."""
    return X.reshape(len(X), math.prod(X.shape[1:])) if X.ndim > 2 else X


def _names(X: Array) -> tuple[str, ...]:
    return generated_names(X.shape[1] if X.ndim == 2 else 0)
