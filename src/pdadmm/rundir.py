"""The run directory: who may write to it, and how files get into it whole or not at all.

config.toml         every option, complete; `pdadmm train --config` runs it again
history.jsonl       one JSON object an epoch, keys in `pdadmm.history.KEYS`
model.safetensors   the network and its preprocessing
summary.json        how the run ended, on what machine, in what time
plot.png            the run as curves, where the `report` extra is installed
checkpoints/        what is needed to go on, see `pdadmm.checkpoint`
tensorboard/        the history as event files, see `pdadmm.events`
report.html         the run to look at, see `pdadmm.report`
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import io
import json
import os
import re
import secrets
import shutil
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, BinaryIO, Self

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
_LONGEST_LINE = 2**24  # bytes of the history in one piece; a row has a few thousand
_NAMED = 3  # damaged lines of a history, before the rest is only counted
_FILES = (CONFIG_FILE, HISTORY_FILE, MODEL_FILE, SUMMARY_FILE, PLOT_FILE)
_FOLDERS = (CHECKPOINTS, EVENTS)
_TEMPORARY = re.compile(rf"\.({'|'.join(map(re.escape, (*_FILES, REPORT_FILE)))})(\.[0-9a-f]{{16}})?\.tmp")


@contextlib.contextmanager
def storing(path: Path) -> Iterator[None]:
    """Turn the disk's refusals into an error that names the file."""
    try:
        yield
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror or error}") from error


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """The same for a file that the disk does not give."""
    try:
        yield
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror or error}") from None


def write_whole(path: Path, *parts: bytes | memoryview) -> None:
    """Write to a temporary file beside `path`, then rename: a reader sees the old file or the new, never a part."""
    with _replacing(path) as file:
        file.writelines(parts)


@contextlib.contextmanager
def writing_whole(path: Path) -> Iterator[IO[str]]:
    """The same for a text that is written bit by bit; its directory is made, and goes again if nothing comes of it."""
    made = make_directory(path.parent)
    try:
        with _replacing(path) as file:
            text = io.TextIOWrapper(file, encoding="utf-8", newline="")
            yield text
            text.flush()
            text.detach()
    except BaseException:
        _remove_empty(made)
        raise


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[BinaryIO]:
    """A new file of a random name, which takes the place of `path` at the end. No link is followed."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        with storing(path):
            with open_new(temporary) as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def open_new(path: Path) -> BinaryIO:
    """Make a file and open it for writing; what is there already, a link too, is refused."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666), "wb")


def sweep(directory: Path) -> None:
    """Delete the temporary files that killed processes left; only who holds the directory may do that."""
    for path in directory.glob(".*.tmp"):
        if _TEMPORARY.fullmatch(path.name):
            path.unlink(missing_ok=True)


class NotPlainError(OSError):
    """A link, a pipe, a folder or a device stands where a plain file should be."""


def open_plain(path: Path, flags: int) -> int:
    """Open a plain file as it is; no link is followed, and no pipe waited for."""
    try:
        handle = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
            raise NotPlainError(error.errno, f"{path} is not a plain file") from None
        raise
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise NotPlainError(errno.EINVAL, f"{path} is not a plain file")
    return handle


@contextlib.contextmanager
def open_to_read(path: Path) -> Iterator[io.BufferedReader]:
    """Open a plain file to read it; whatever keeps it from being read is damage."""
    try:
        with os.fdopen(open_plain(path, os.O_RDONLY), "rb") as file:
            yield file
    except FileNotFoundError:
        raise DamageError(f"{path} is missing") from None
    except NotPlainError as error:
        raise DamageError(str(error.strerror)) from None
    except OSError as error:
        raise DamageError(f"{path} cannot be read: {error.strerror}") from None


def read_small(path: Path, largest: int) -> bytes:
    """The content of a plain file that has no reason to be larger than this."""
    with open_to_read(path) as file:
        if (size := os.fstat(file.fileno()).st_size) > largest:
            raise DamageError(f"{path} is too large, with {size} bytes")
        return file.read()


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file's content."""
    with path.open("rb", buffering=0) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


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

    `resume` takes a directory that holds a run, `overwrite` one that may. With `lock` the directory is held already, by
    the process that started this one, and has been found fit for use; `lock` is the file, open in both.
    """

    def __init__(self, path: Path, overwrite: bool = False, resume: bool = False, lock: int | None = None) -> None:
        self.path = path
        self._overwrite, self._resume = overwrite, resume
        self._inherited = lock
        self.lock = -1 if lock is None else lock
        """The open file by which the directory is held."""
        self._created: list[Path] = []
        self._history_hash = hashlib.sha256()
        self._history_bytes = 0

    def __enter__(self) -> Self:
        if self._inherited is not None:
            return self
        if self._resume and not (self.path / CONFIG_FILE).is_file():
            raise UserError(f"{self.path} holds no run to resume: it has no {CONFIG_FILE}")
        self._created = make_directory(self.path)
        try:
            self.lock = self._locked()
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

    def _locked(self) -> int:
        """Open the lock file, as it is, and lock it."""
        path = self.path / LOCK_FILE
        for _ in range(_LOCK_TRIES):
            try:
                lock = open_plain(path, os.O_RDWR | os.O_CREAT)
            except NotPlainError as error:
                raise UserError(f"cannot use {self.path} as run directory: {error.strerror}; take that away") from None
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # A run that just ended may have taken the file away between our opening and our locking it.
                if _is_file_at(lock, path):
                    return lock
            except OSError:
                pass
            os.close(lock)
            time.sleep(_LOCK_SECONDS)  # whoever looks whether the directory is in use holds it for a moment
        raise UserError(f"the run directory {self.path} is in use by another run")

    def _used(self) -> list[str]:
        return [name for name in (*_FILES, *_FOLDERS) if os.path.lexists(self.path / name)]

    def __exit__(self, *_: object) -> None:
        if self._inherited is None:
            self._release()

    def _release(self) -> None:
        if _is_file_at(self.lock, self.path / LOCK_FILE):  # else another's run may be there by now
            (self.path / LOCK_FILE).unlink(missing_ok=True)
            _remove_empty(self._created)
        os.close(self.lock)

    def check_held(self) -> None:
        """Find out whether the directory at the run's path is still the one that the run holds."""
        if not _is_file_at(self.lock, self.path / LOCK_FILE):
            raise StorageError(
                f"the run directory {self.path} was deleted, moved or replaced while the run was using it; if it was "
                f"moved, go on with pdadmm train --resume and its new place"
            )

    def begin(self, config: str) -> None:
        """Clear away the run before, which is kept until this one can no longer be refused, and write config.toml."""
        self.check_held()
        sweep(self.path)
        with storing(self.path):
            for name in self._used():
                if name in _FOLDERS and not (self.path / name).is_symlink():
                    shutil.rmtree(self.path / name)
                else:
                    (self.path / name).unlink()
            (self.path / REPORT_FILE).unlink(missing_ok=True)  # it shows the run before
        self.write_text(CONFIG_FILE, config)

    def go_on(self, config: str, history_bytes: int, rescued: list[Row] | None = None) -> None:
        """Take the run up again after so many bytes of its history; its results stay until there are new ones.

        A history that is damaged is set aside, and the rows `rescued` from it take its place.
        """
        path = self.path / HISTORY_FILE
        sweep(self.path)
        self.write_text(CONFIG_FILE, config)
        with storing(path):
            if rescued is not None:
                if os.path.lexists(path):
                    path.rename(path.with_name(f"{path.name}.aside-{secrets.token_hex(4)}"))
                write_whole(path, "".join(json.dumps(row) + "\n" for row in rescued).encode())
                history_bytes = path.stat().st_size
            elif path.exists():
                os.truncate(path, history_bytes)
            if path.exists():
                self._history_hash = hashlib.sha256(path.read_bytes())
        self._history_bytes = history_bytes

    def write_text(self, name: str, text: str) -> None:
        """Put a text file into the directory, whole or not at all."""
        self.check_held()
        write_whole(self.path / name, text.encode())

    def append_row(self, row: Row) -> None:
        """Append one line to the history; a line that does not fit is taken back."""
        path, line = self.path / HISTORY_FILE, (json.dumps(row) + "\n").encode()
        self.check_held()
        try:
            with storing(path), os.fdopen(open_plain(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "ab") as file:
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
        with open_to_read(path) as file:
            found = file.read(min(size, os.fstat(file.fileno()).st_size))
        if len(found) < size or hashlib.sha256(found).hexdigest() != sha256:
            raise DamageError(f"{path} does not begin with the {size} bytes it had then")


def is_in_use(path: Path) -> bool:
    """True while a run holds the directory."""
    try:
        lock = open_plain(path / LOCK_FILE, os.O_RDONLY)
    except (FileNotFoundError, NotPlainError):
        return False
    except OSError:
        return True
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(lock)
    return False


def _is_file_at(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), path.lstat())
    except OSError:
        return False


def read_history(run: Path, problems: list[str] | None = None) -> list[Row]:
    """The rows of a run by rising epochs; a last line that is only half there is being written, and left out.

    Whatever else is no row is refused; where the caller has a list of `problems`, it is told there, and all other rows
    are read.
    """
    path, last = run / HISTORY_FILE, 0
    rows: dict[int, Row] = {}
    found: list[str] = []
    try:
        for number, line in enumerate(_lines(path), start=1):
            row = _parse_row(line)
            if isinstance(row, str):
                found.append(f"line {number} of {path} {row}")
                continue
            if row["epoch"] <= last:
                found.append(f"line {number} of {path} does not follow the line before")
            last = row["epoch"]
            rows.setdefault(last, row)
    except DamageError as error:
        found.append(str(error))
    if problems is None:
        if found:
            raise DamageError(found[0])
    else:
        problems += found[:_NAMED]
        if len(found) > _NAMED:
            problems.append(f"{len(found) - _NAMED} more lines of {path} cannot be used")
    return [rows[epoch] for epoch in sorted(rows)]


def _lines(path: Path) -> Iterator[bytes]:
    with open_to_read(path) as file:
        while (line := file.readline(_LONGEST_LINE)).endswith(b"\n") or len(line) == _LONGEST_LINE:
            yield line


def _parse_row(line: bytes) -> Row | str:
    """The row in a line of the history, or what is wrong with it."""
    try:
        row: Row = json.loads(line)
        numbers = all(type(row[key]) in (int, float) for key in ("seconds", "objective"))  # every row has them
        whole = type(row["epoch"]) is int and 0 < row["epoch"] < 2**53
        return row if numbers and whole else "is not the row of an epoch"
    except (ValueError, RecursionError):
        return "is not JSON"
    except (TypeError, LookupError):
        return "is not the row of an epoch"
