"""The run directory: who may write to it, and how files get into it whole or not at all.

config.toml         every option, complete; `pdadmm train --config` runs it again
history.jsonl       one JSON object an epoch, keys in `pdadmm.history.KEYS`
model.safetensors   the network and its preprocessing
summary.json        how the run ended, on what machine, in what time
plot.png            the run as curves, where matplotlib is installed
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from pdadmm.errors import StorageError, UserError
from pdadmm.history import Row

CONFIG_FILE = "config.toml"
HISTORY_FILE = "history.jsonl"
MODEL_FILE = "model.safetensors"
SUMMARY_FILE = "summary.json"
PLOT_FILE = "plot.png"
_LOCK_FILE = ".lock"
_FILES = (CONFIG_FILE, HISTORY_FILE, MODEL_FILE, SUMMARY_FILE, PLOT_FILE)


@contextlib.contextmanager
def storing(path: Path) -> Iterator[None]:
    """Turn the disk's refusals into an error that names the file."""
    try:
        yield
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror or error}") from error


def write_whole(path: Path, content: bytes) -> None:
    """Write to a temporary file beside `path`, then rename: a reader sees the old file or the new, never a part."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with storing(path):
            with temporary.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


class RunDirectory:
    """A directory held by one run; use it as a context manager."""

    def __init__(self, path: Path, overwrite: bool = False) -> None:
        self.path = path
        self._overwrite = overwrite
        self._lock: IO[str] | None = None
        self._created = False

    def __enter__(self) -> Self:
        if self.path.exists() and not self.path.is_dir():
            raise UserError(f"--out must name a directory; {self.path} is a file")
        try:
            self._created = not self.path.exists()
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = (self.path / _LOCK_FILE).open("w")
        except OSError as error:
            raise UserError(f"cannot use {self.path} as run directory: {error.strerror}") from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock.close()
            raise UserError(f"the run directory {self.path} is in use by another run") from None
        used = [name for name in _FILES if (self.path / name).exists()]
        if used and not self._overwrite:
            self._release()
            raise UserError(
                f"the run directory {self.path} already holds a run ({used[0]}); choose another --out, or --overwrite"
            )
        for name in used:
            (self.path / name).unlink()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._release()

    def _release(self) -> None:
        assert self._lock is not None
        (self.path / _LOCK_FILE).unlink(missing_ok=True)
        self._lock.close()
        if self._created and not any(self.path.iterdir()):
            self.path.rmdir()

    def write_text(self, name: str, text: str) -> None:
        """Put a text file into the directory, whole or not at all."""
        write_whole(self.path / name, text.encode())

    def append_row(self, row: Row) -> None:
        """Append one line to the history; a line that does not fit is taken back."""
        path = self.path / HISTORY_FILE
        size = path.stat().st_size if path.exists() else 0
        try:
            with storing(path), path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
        except StorageError:
            if path.exists():
                os.truncate(path, size)
            raise


def read_history(run: Path) -> list[Row]:
    """All rows of a run."""
    try:
        text = (run / HISTORY_FILE).read_text(encoding="utf-8")
        return [json.loads(line) for line in text.splitlines()]
    except (OSError, json.JSONDecodeError) as error:
        raise UserError(f"no readable {HISTORY_FILE} in {run}: {error}") from None
