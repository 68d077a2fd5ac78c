"""The run directory: who may write to it, and how files get into it whole or not at all.

config.toml         every option, complete; `pdadmm train --config` runs it again
history.jsonl       one JSON object an epoch, keys in `pdadmm.history.KEYS`
model.safetensors   the network and its preprocessing
summary.json        how the run ended, on what machine, in what time
plot.png            the run as curves, where matplotlib is installed
checkpoints/        what is needed to go on, see `pdadmm.checkpoint`
tensorboard/        the history as event files, see `pdadmm.events`
report.html         the run to look at, see `pdadmm.report`
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from pdadmm.errors import DamageError, StorageError, UserError
from pdadmm.history import Row

CONFIG_FILE = "config.toml"
HISTORY_FILE = "history.jsonl"
MODEL_FILE = "model.safetensors"
SUMMARY_FILE = "summary.json"
PLOT_FILE = "plot.png"
CHECKPOINTS = "checkpoints"
EVENTS = "tensorboard"
REPORT_FILE = "report.html"
LOCK_FILE = ".lock"
_LOCK_TRIES, _LOCK_SECONDS = 5, 0.1
_FILES = (CONFIG_FILE, HISTORY_FILE, MODEL_FILE, SUMMARY_FILE, PLOT_FILE)
_FOLDERS = (CHECKPOINTS, EVENTS)


@contextlib.contextmanager
def storing(path: Path) -> Iterator[None]:
    """Turn the disk's refusals into an error that names the file."""
    try:
        yield
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror or error}") from error


def write_whole(path: Path, *parts: bytes | memoryview) -> None:
    """Write to a temporary file beside `path`, then rename: a reader sees the old file or the new, never a part."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with storing(path):
            with temporary.open("wb") as file:
                file.writelines(parts)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def writing_whole(path: Path) -> Iterator[IO[str]]:
    """The same for a text that is written bit by bit; its directory is made, and goes again if nothing comes of it."""
    made = make_directory(path.parent)
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with storing(path), temporary.open("w", encoding="utf-8", newline="") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        with storing(path):
            temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        _remove_empty(made)
        raise


def check_regular(path: Path) -> None:
    """Refuse what is not a plain file: opening a pipe would wait forever."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        raise DamageError(f"{path} is missing") from None
    except OSError as error:
        raise DamageError(f"{path} cannot be read: {error.strerror}") from None
    if not stat.S_ISREG(mode):
        raise DamageError(f"{path} is not a plain file")


def make_directory(path: Path) -> list[Path]:
    """Make a directory that --out names; returns those that had to be made, the deepest first."""
    made: list[Path] = []
    if any("\ud800" <= letter <= "\udfff" for letter in str(path)):
        raise UserError(f"--out must be UTF-8, as other libraries need; got {str(path)!r}")
    try:
        if path.exists() and not path.is_dir():
            raise UserError(f"--out must name a directory; {path} is a file")
        made = [directory for directory in (path, *path.parents) if not directory.exists()]
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        _remove_empty(made)
        raise UserError(f"cannot make the directory {path} that --out names: {error.strerror}") from None
    return made


def _remove_empty(directories: list[Path]) -> None:
    for directory in directories:
        with contextlib.suppress(OSError):  # it is not empty, or never came to be
            directory.rmdir()


class RunDirectory:
    """A directory held by one run; use it as a context manager.

    `resume` takes a directory that holds a run, `overwrite` one that may.
    """

    def __init__(self, path: Path, overwrite: bool = False, resume: bool = False) -> None:
        self.path = path
        self._overwrite, self._resume = overwrite, resume
        self._lock: IO[str] | None = None
        self._created: list[Path] = []
        self._history_hash = hashlib.sha256()
        self._history_bytes = 0

    def __enter__(self) -> Self:
        if self._resume and not (self.path / CONFIG_FILE).is_file():
            raise UserError(f"{self.path} holds no run to resume: it has no {CONFIG_FILE}")
        self._created = make_directory(self.path)
        try:
            self._lock = self._locked()
        except OSError as error:
            _remove_empty(self._created)
            raise UserError(f"cannot use {self.path} as run directory: {error.strerror}") from None
        used = self._used()
        if used and not (self._overwrite or self._resume):
            self._release()
            raise UserError(
                f"the run directory {self.path} already holds a run ({used[0]}); choose another --out, or --overwrite, "
                f"or go on with it by --resume"
            )
        return self

    def _locked(self) -> IO[str]:
        path = self.path / LOCK_FILE
        for _ in range(_LOCK_TRIES):
            lock = path.open("w")
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # A run that just ended may have taken the file away between our opening and our locking it.
                if os.path.samestat(os.fstat(lock.fileno()), path.stat()):
                    return lock
            except OSError:
                pass
            lock.close()
            time.sleep(_LOCK_SECONDS)  # whoever looks whether the directory is in use holds it for a moment
        raise UserError(f"the run directory {self.path} is in use by another run")

    def _used(self) -> list[str]:
        return [name for name in (*_FILES, *_FOLDERS) if (self.path / name).exists()]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._release()

    def _release(self) -> None:
        assert self._lock is not None
        (self.path / LOCK_FILE).unlink(missing_ok=True)
        self._lock.close()
        _remove_empty(self._created)

    def begin(self, config: str) -> None:
        """Clear away the run before, which is kept until this one can no longer be refused, and write config.toml."""
        with storing(self.path):
            for name in self._used():
                if name in _FOLDERS:
                    shutil.rmtree(self.path / name)
                else:
                    (self.path / name).unlink()
            (self.path / REPORT_FILE).unlink(missing_ok=True)  # it shows the run before
        self.write_text(CONFIG_FILE, config)

    def go_on(self, config: str, history_bytes: int) -> None:
        """Take the run up again after so many bytes of its history; its results stay until there are new ones."""
        path = self.path / HISTORY_FILE
        self.write_text(CONFIG_FILE, config)
        with storing(path):
            if path.exists():
                os.truncate(path, history_bytes)
                self._history_hash = hashlib.sha256(path.read_bytes())
        self._history_bytes = history_bytes

    def write_text(self, name: str, text: str) -> None:
        """Put a text file into the directory, whole or not at all."""
        write_whole(self.path / name, text.encode())

    def append_row(self, row: Row) -> None:
        """Append one line to the history; a line that does not fit is taken back."""
        path, line = self.path / HISTORY_FILE, (json.dumps(row) + "\n").encode()
        try:
            with storing(path), path.open("ab") as file:
                file.write(line)
        except (StorageError, KeyboardInterrupt):
            if self._history_bytes:
                os.truncate(path, self._history_bytes)
            else:
                path.unlink(missing_ok=True)
            raise
        self._history_hash.update(line)
        self._history_bytes += len(line)

    def history_mark(self) -> tuple[int, str]:
        """Flush the history to the disk; its length and SHA-256 as they are now."""
        path = self.path / HISTORY_FILE
        with storing(path), path.open("rb") as file:
            os.fsync(file.fileno())
        return self._history_bytes, self._history_hash.hexdigest()

    def check_history(self, size: int, sha256: str) -> None:
        """Find out whether the history begins with what it was at a mark."""
        path = self.path / HISTORY_FILE
        check_regular(path)
        try:
            with path.open("rb") as file:
                found = file.read(min(size, path.stat().st_size))
        except OSError as error:
            raise DamageError(f"{path} cannot be read: {error.strerror}") from None
        if len(found) < size or hashlib.sha256(found).hexdigest() != sha256:
            raise DamageError(f"{path} does not begin with the {size} bytes it had then")


def is_in_use(path: Path) -> bool:
    """True while a run holds the directory."""
    try:
        with (path / LOCK_FILE).open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


def read_history(run: Path) -> list[Row]:
    """All rows of a run."""
    try:
        text = (run / HISTORY_FILE).read_text(encoding="utf-8")
        return [json.loads(line) for line in text.splitlines()]
    except (OSError, json.JSONDecodeError) as error:
        raise UserError(f"no readable {HISTORY_FILE} in {run}: {error}") from None
