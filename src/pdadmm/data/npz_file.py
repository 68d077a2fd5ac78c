"""Read numpy's .npz: either X and y, or X_train and y_train with X_test and y_test.

Weights are w, w_train and w_test. Arrays with more dimensions, such as images, are flattened to rows. Pickled
objects are refused, because loading them runs code from the file. What an array says of its size is compared with what
the file holds, and with memory, before any is taken.

np.savez stores arrays as they are, at some place in a zip archive, so they can be mapped into memory instead of read.
Compressed arrays (np.savez_compressed), texts and arrays in Fortran's order are read.
"""

from __future__ import annotations

import math
import struct
import warnings
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from pdadmm.data.arrays import Array, as_float, generated_names, is_mapped, shorten
from pdadmm.data.dataset import Part
from pdadmm.data.tables import Stream, block_rows, check_memory, in_blocks, row_number
from pdadmm.errors import UserError

# RuntimeError and NotImplementedError: zip members that are encrypted or packed in an unknown way.
_BROKEN = (ValueError, EOFError, OSError, RuntimeError, NotImplementedError, zipfile.BadZipFile, zlib.error)
_LOCAL_HEADER = struct.Struct("<26xHH")  # of a zip's member; the lengths of its name and extra field come last
_END = b"PK\x05\x06"
_END_SIZE = 22  # of what ends a zip archive, before a comment
_PIECE = 2**20
_LARGEST_ITEM = 8  # longer floats are rounded to float64 when they are read
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def read_npz(path: Path, mapped: bool = False) -> tuple[Part, Part | None]:
    """The training part and, where the file has one, the test part; `mapped` leaves in the file what can stay there."""
    with _opened(path) as file:
        if not {"X_train", "y_train"} & file.members.keys():
            return _part(file, "", mapped), None
        train = _part(file, "_train", mapped)
        return train, _part(file, "_test", mapped) if {"X_test", "y_test"} & file.members.keys() else None


def stream_npz(path: Path) -> Stream:
    """X, or else X_test, without targets, block by block; compressed or not.

    Read as a whole are only arrays in Fortran's order, and what is no array of numbers, for the checks to name.
    """
    with _opened(path) as file:
        header = file.header("X_test" if "X" not in file.members and "X_test" in file.members else "X")
        if not header.is_plain or len(header.shape) < 2 or not header.size:
            X = _flat(file.read(header))
            width = X.shape[1] if X.ndim == 2 else 0
            return Stream(in_blocks([X] if len(X) else [], block_rows(width)), generated_names(width), row_number)
    width = math.prod(header.shape[1:])

    def blocks() -> Iterator[Array]:
        rows = block_rows(width)
        with _opened(path) as file, file.content(header) as content:
            for start in range(0, header.shape[0], rows):
                count = min(rows, header.shape[0] - start) * width
                block = np.frombuffer(content.read(count * header.dtype.itemsize), header.dtype, count)
                yield as_float(block.reshape(-1, width))
            content.read(1)  # the library compares the check sum at the end

    return Stream(blocks(), generated_names(width), row_number)


@dataclass(frozen=True)
class _ArrayHeader:
    """What an array of the archive says of itself."""

    key: str
    info: zipfile.ZipInfo
    start: int
    """Bytes of the member before its numbers."""
    shape: tuple[int, ...]
    in_fortran_order: bool
    dtype: np.dtype[Any]

    @property
    def size(self) -> int:
        """Bytes of its numbers."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def is_plain(self) -> bool:
        """Whether its rows are in the file as they would be in memory."""
        return self.dtype.kind in "biuf" and self.dtype.itemsize <= _LARGEST_ITEM and not self.in_fortran_order


@contextmanager
def _opened(path: Path) -> Iterator[_Archive]:
    with _naming(path), zipfile.ZipFile(path) as archive:
        yield _Archive(path, archive)


@contextmanager
def _naming(path: Path, key: str = "") -> Iterator[None]:
    try:
        yield
    except UserError:
        raise
    except _BROKEN as error:
        reason = f"{key} cannot be read: {error}" if key else error
        if "not a zip file" in str(error):
            reason = "it is not a zip archive, or is cut short"
        raise UserError(f"{path} is not a .npz file: {reason}") from None


class _Archive:
    """The arrays of a .npz, none of which is read before it is asked for."""

    def __init__(self, path: Path, archive: zipfile.ZipFile) -> None:
        self._path, self._archive = path, archive
        self.members: dict[str, zipfile.ZipInfo] = {}
        for info in archive.infolist():
            key = info.filename.removesuffix(".npy")
            if key in self.members:
                raise self._broken(f"it has {key!r} twice")
            self.members[key] = info
        with path.open("rb") as file:
            file.seek(-(_END_SIZE + len(archive.comment)), 2)
            if file.read(len(_END)) != _END:
                raise self._broken("there is something after its end")

    def header(self, key: str) -> _ArrayHeader:
        """What an array says of itself, once it agrees with the size that it has in the archive."""
        if key not in self.members:
            raise UserError(
                f"{self._path} must have X and y, or X_train, y_train, X_test and y_test; "
                f"it lacks {key!r}, keys: {shorten(sorted(self.members)) or 'none'}"
            )
        info = self.members[key]
        with _naming(self._path, key), self._archive.open(info) as member:
            try:
                with warnings.catch_warnings(action="ignore"):  # of headers that Python 2 wrote
                    shape, in_fortran_order, dtype = _HEADERS[np.lib.format.read_magic(member)](member)
            except (zipfile.BadZipFile, zlib.error):
                raise
            except Exception:  # numpy's parser meets damage in any of a dozen ways
                raise self._broken(f"{key} is not an array, or its header is malformed") from None
            header = _ArrayHeader(key, info, member.tell(), shape, in_fortran_order, dtype)
        if dtype.hasobject:
            raise UserError(
                f"{self._path}: {key} must be an array of numbers or texts; got Python objects "
                f"(save {key}.astype(str) or {key}.astype(float))"
            )
        held = info.file_size - header.start
        if header.size != held or any(length < 0 for length in shape):
            raise self._broken(f"{key} says that it has shape {shape}, {header.size} bytes, but {held} are there")
        return header

    def read(self, header: _ArrayHeader) -> Array:
        """The array, in memory."""
        check_memory(header.size, f"{self._path}: {header.key}")
        with (
            _naming(self._path, header.key),
            self._archive.open(header.info) as member,
            warnings.catch_warnings(action="ignore"),
        ):
            array: Array = np.lib.format.read_array(member, allow_pickle=False)
            member.read(1)  # the library compares the check sum at the end
        if header.dtype.kind == "U" and array.size:
            codes = np.atleast_1d(array).view(header.dtype.str.replace("U", "u4")[:3])
            if codes.max() > 0x10FFFF or ((codes >= 0xD800) & (codes <= 0xDFFF)).any():
                raise self._broken(f"{header.key} holds texts that are not Unicode")
        return array

    def mapped(self, header: _ArrayHeader) -> Array:
        """The array, left in the file where that can be done."""
        info = header.info
        if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1 or not header.is_plain or not header.size:
            return self.read(header)
        with self.content(header) as content:
            while content.read(_PIECE):  # the library compares the check sum at the end
                pass
        with self._path.open("rb") as file:
            # The content begins after the member's own header, whose name and extra field have any length.
            file.seek(info.header_offset)
            start = info.header_offset + _LOCAL_HEADER.size + sum(_LOCAL_HEADER.unpack(file.read(_LOCAL_HEADER.size)))
        return np.memmap(self._path, header.dtype, "r", start + header.start, header.shape)

    @contextmanager
    def content(self, header: _ArrayHeader) -> Iterator[IO[bytes]]:
        """The numbers of an array."""
        with _naming(self._path, header.key), self._archive.open(header.info) as member:
            member.read(header.start)
            yield member

    def _broken(self, reason: str) -> UserError:
        return UserError(f"{self._path} is not a .npz file: {reason}")


def _part(file: _Archive, suffix: str, mapped: bool) -> Part:
    """Headers are compared with the archive for all arrays before one is read."""
    keys = ["X" + suffix, "y" + suffix, *(["w" + suffix] if "w" + suffix in file.members else [])]
    headers = [file.header(key) for key in keys]
    X, *others = [file.mapped(header) if mapped else file.read(header) for header in headers]
    return Part(_flat(X if is_mapped(X) else as_float(X)), *others)


def _flat(X: Array) -> Array:
    """Images and the like as rows; the checks name what has fewer dimensions."""
    return X.reshape(len(X), math.prod(X.shape[1:])) if X.ndim > 2 else X
