"""Read images and their labels as publishers give them: IDX (.gz), CIFAR's binary records, MATLAB's .mat.

Nothing is scaled or selected here. A file that is not what its format says raises DamageError with its name.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pdadmm.data.arrays import Array
from pdadmm.errors import DamageError
from pdadmm.rundir import reading

_UNSIGNED_BYTES = 8  # the type in the magic number of an IDX file


@dataclass(frozen=True, eq=False)
class Images:
    """What one file, or one pair of files, holds."""

    pixels: Array
    """(N, rows, columns) or (N, rows, columns, 3), uint8; perhaps mapped from the file."""
    labels: Array
    """(N, kinds) int64; most publishers give one kind of label."""


def read_idx(paths: Sequence[Path], shape: tuple[int, ...], classes: tuple[int, ...]) -> list[Images]:
    """A pair of files, images and labels, as MNIST has them."""
    images, labels = paths
    pixels, numbers = _idx(images, len(shape) + 1), _idx(labels, 1)
    if pixels.shape[1:] != shape:
        raise DamageError(f"{images} must have images of {_by(shape)}; got {_by(pixels.shape[1:])}")
    if len(pixels) != len(numbers):
        raise DamageError(
            f"{images} must have an image for each label of {labels}; got {len(pixels)} for {len(numbers)}"
        )
    return [_checked(images, labels, pixels, numbers.reshape(-1, 1), classes)]


def read_cifar(paths: Sequence[Path], shape: tuple[int, ...], classes: tuple[int, ...]) -> list[Images]:
    """Files of records: one byte for each kind of label, then a plane of pixels for each colour."""
    rows, columns, colours = shape
    kinds, record = len(classes), len(classes) + rows * columns * colours
    found = []
    for path in paths:
        with reading(path):
            size = path.stat().st_size
            if size == 0 or size % record:
                raise DamageError(f"{path} must have records of {record} bytes; its size is {size}")
            records = np.memmap(path, np.uint8, "r").reshape(-1, record)
        planes = records[:, kinds:].reshape(-1, colours, rows, columns)
        found.append(_checked(path, path, planes.transpose(0, 2, 3, 1), records[:, :kinds], classes))
    return found


def read_svhn(paths: Sequence[Path], shape: tuple[int, ...], classes: tuple[int, ...]) -> list[Images]:
    """MATLAB files with X (rows, columns, colours, N) and y (N, 1), where 10 stands for the digit 0."""
    from scipy.io import loadmat

    found = []
    for path in paths:
        with reading(path):
            path.open("rb").close()
            try:
                arrays = loadmat(path, variable_names=("X", "y"))
            except Exception as error:  # its parser meets damage in any of a dozen ways
                raise DamageError(f"{path} is not a MATLAB file of version 5: {error}") from None
        pixels, labels = (arrays.get(key) for key in ("X", "y"))
        if pixels is None or labels is None:
            raise DamageError(f"{path} must have X and y; it lacks {'X' if pixels is None else 'y'}")
        if pixels.ndim != 4 or pixels.shape[:3] != shape or pixels.dtype != np.uint8:
            raise DamageError(f"X of {path} must be {_by(shape)} by N bytes; got {_by(pixels.shape)} of {pixels.dtype}")
        if labels.shape != (pixels.shape[3], 1) or labels.dtype.kind not in "iu":
            wanted = f"{pixels.shape[3]} by 1 whole numbers"
            raise DamageError(f"y of {path} must be {wanted}; got {_by(labels.shape)} of {labels.dtype}")
        if labels.size and (labels.min() < 1 or labels.max() > classes[0]):
            raise DamageError(f"{path} must have labels from 1 to {classes[0]}; got {labels.min()} to {labels.max()}")
        found.append(_checked(path, path, pixels.transpose(3, 0, 1, 2), labels % classes[0], classes))
    return found


def _idx(path: Path, dimensions: int) -> Array:
    with reading(path):
        try:
            with gzip.open(path) as file:
                content = file.read()
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise DamageError(f"{path} is not a whole .gz file: {error}") from None
    magic = bytes((0, 0, _UNSIGNED_BYTES, dimensions))
    begin = 4 + 4 * dimensions
    if content[:4] != magic or len(content) < begin:
        raise DamageError(f"{path} must begin with {magic.hex()}, as IDX does; got {content[:4].hex() or 'nothing'}")
    shape = struct.unpack_from(f">{dimensions}I", content, 4)
    numbers = np.frombuffer(content, np.uint8, offset=begin)
    if numbers.size != np.prod(shape, dtype=object):
        raise DamageError(f"{path} must have {_by(shape)} bytes, as it says; got {numbers.size}")
    return numbers.reshape(shape)


def _checked(images: Path, labels: Path, pixels: Array, numbers: Array, classes: tuple[int, ...]) -> Images:
    """Found in good order, if every label is one of the publisher's."""
    if not len(pixels):
        raise DamageError(f"{images} must have at least one image; it has none")
    for kind, count in enumerate(classes):
        largest = int(numbers[:, kind].max())
        if largest >= count:
            raise DamageError(f"{labels} must have labels below {count}; got {largest}")
    return Images(pixels, numbers.astype(np.int64))


def _by(shape: Sequence[int]) -> str:
    return " by ".join(str(length) for length in shape)
