"""Where arrays with a row for each sample live: in memory, or in files that are mapped into memory.

A mapped file is read and written like memory, but the system may take its pages back whenever memory is short. The
files have no names: they are gone with the process, however it ends. Their blocks are taken from the disk when they are
made, so a disk that fills up later cannot hurt them.
"""

from __future__ import annotations

import math
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pdadmm.config import Config
from pdadmm.errors import StorageError, UserError
from pdadmm.machine import format_bytes

DISK_SPARE = 64 * 2**20  # bytes of the disk that are left for other things


class Storage:
    """Makes arrays: in memory, or on a device of torch."""

    is_disk: ClassVar[bool] = False

    def empty(self, *shape: int, dtype: torch.dtype, device: torch.device | None = None) -> Tensor:
        """A tensor of this shape whose content is arbitrary."""
        return torch.empty(*shape, dtype=dtype, device=device)

    def array(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        """The same as an array of numpy, of any type."""
        return np.empty(shape, dtype)

    def check_room(self, size: int, what: str) -> None:
        """Refuse what cannot fit, where that can be told beforehand; the plan of a run is checked against memory."""


@dataclass(frozen=True)
class Disk(Storage):
    """Arrays in nameless files of a directory, or of the nearest one above it that exists."""

    is_disk: ClassVar[bool] = True

    directory: Path

    def empty(self, *shape: int, dtype: torch.dtype, device: torch.device | None = None) -> Tensor:
        """A file of its own, mapped from its first page on."""
        size = math.prod(shape)
        if not size:
            return torch.empty(*shape, dtype=dtype)
        with self._file(size * dtype.itemsize) as file:
            # torch maps the file and closes its own handle; Python's mmap would keep one open for each of many arrays.
            return torch.from_file(f"/dev/fd/{file.fileno()}", shared=True, size=size, dtype=dtype).view(*shape)

    def array(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        """A file of its own."""
        with self._file(math.prod(shape) * dtype.itemsize) as file:
            return np.memmap(file, dtype, "r+", 0, shape)

    def check_room(self, size: int, what: str) -> None:
        """Refuse what the disk has no room for."""
        if size > self.free():
            free = shutil.disk_usage(self._existing()).free
            raise UserError(
                f"storage disk needs {format_bytes(size)} for {what} and keeps {format_bytes(DISK_SPARE)} unused, "
                f"but only {format_bytes(free)} are free in {self.directory}; free some, or name another place by "
                f"--set storage_dir=DIR"
            )

    def free(self) -> int:
        """Bytes that arrays may take."""
        return max(0, shutil.disk_usage(self._existing()).free - DISK_SPARE)

    def _existing(self) -> Path:
        return next(path for path in (self.directory, *self.directory.absolute().parents) if path.is_dir())

    @contextmanager
    def _file(self, size: int) -> Iterator[IO[bytes]]:
        """Nameless, with all its blocks: a mapping without them would end the process once the disk is full."""
        try:
            with tempfile.TemporaryFile(dir=self._existing()) as file:
                if hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(file.fileno(), 0, size)
                else:
                    file.truncate(size)
                yield file
        except OSError as error:
            what = f"cannot put an array of {format_bytes(size)} on the disk in {self.directory}"
            raise StorageError(f"{what}: {error.strerror or error}") from None


def storage_of(config: Config, run: Path | None = None) -> Storage:
    """What the configuration asks for; files are in the directory it names, else in that of the run, else temporary."""
    if config.storage == "memory":
        return Storage()
    if torch.device(config.device).type != "cpu":
        raise UserError(f"storage disk needs device cpu, into whose memory files are mapped; got {config.device}")
    if config.storage_dir is None:
        return Disk(run or Path(tempfile.gettempdir()))
    directory = Path(config.storage_dir)
    if not directory.is_dir() or not os.access(directory, os.W_OK | os.X_OK):
        raise UserError(f"storage_dir must be a directory that can be written to; got {config.storage_dir!r}")
    return Disk(directory)
