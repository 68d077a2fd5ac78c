"""What a run directory holds and whether it is whole. Nothing is written, and the data is not loaded.

A damaged directory is what this is for: nothing is trusted, and what is wrong is collected, so that one look tells all.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from pdadmm.checkpoint.folder import Folder
from pdadmm.checkpoint.manifest import Manifest, check_files, read_manifest
from pdadmm.config import Config
from pdadmm.errors import DamageError, PdadmmError, UserError
from pdadmm.history import Row
from pdadmm.model import load_model
from pdadmm.run import read_config
from pdadmm.rundir import (
    CHECKPOINTS,
    CONFIG_FILE,
    HISTORY_FILE,
    LOCK_FILE,
    MODEL_FILE,
    SUMMARY_FILE,
    RunDirectory,
    is_in_use,
    open_to_read,
    read_history,
    read_small,
    sha256_of,
)
from pdadmm.trainer import STATUS

_LARGEST = 2**24  # bytes of a configuration or a summary; real ones have a few thousand
_LOOKS = 3  # a run that goes on replaces files under our eyes: what seems wrong is looked at again


@dataclass(frozen=True)
class Checkpoint:
    """One checkpoint that has the name of an epoch."""

    epoch: int
    bytes: int
    manifest: Manifest | None
    problem: str
    is_whole: bool
    """Whether all of its own files are right; what is wrong may be the history that belongs to it."""


@dataclass
class Inspection:
    """All that was found."""

    path: Path
    running: bool = False
    killed: bool = False
    """Whether a run ended without letting go of the directory."""
    config: Config | None = None
    rows: list[Row] = field(default_factory=list)
    epoch: int = 0
    """The last row of the history; where that cannot be believed, what summary or newest checkpoint say."""
    summary: dict[str, Any] | None = None
    model: str = ""
    """The model in a few words, if there is one that loads."""
    checkpoints: list[Checkpoint] = field(default_factory=list)
    present: set[str] = field(default_factory=set)
    """What is there of a run's files, whole or not."""
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def newest(self) -> Checkpoint | None:
        """What a resumed run goes on from; one without its history only where none has it."""
        valid = [found for found in self.checkpoints if not found.problem]
        return next(iter(valid or [found for found in self.checkpoints if found.is_whole]), None)

    @property
    def is_part(self) -> bool:
        """Whether another host holds layers or samples of the newest checkpoint."""
        return self.newest is not None and self.newest.manifest is not None and self.newest.manifest.is_part

    @property
    def status(self) -> str:
        """As `run_status` has it, or `part` in the directory of a host that has neither history nor results."""
        if HISTORY_FILE not in self.present and self.is_part and not self.running:
            return "part"
        return run_status(self.running, self.killed, self.config, self.epoch, self.summary)


def run_status(running: bool, killed: bool, config: Config | None, epoch: int, summary: dict[str, Any] | None) -> str:
    """`running`, how the run ended by its own words, `killed`, or `stopped` by an error."""
    if running:
        return "running"
    # Results stay until a resumed run has new ones, so they may be older than the history.
    if summary is not None and summary["epochs"] == epoch:
        status: str = summary["status"]
        if status != "completed" or config is None or epoch >= config.epochs:
            return status
    return "killed" if killed else "stopped"


def number_in(values: dict[str, Any], name: str) -> float | None:
    """A value, if it is a finite number."""
    value: Any = values.get(name)
    return float(value) if type(value) in (int, float) and abs(value) < 1e300 else None


def inspect_run(path: Path) -> Inspection:
    """Look at everything in a run directory; `UserError` if it is none."""
    for _ in range(_LOOKS):
        found = _look(path)
        if not (found.running and found.problems):
            break
        time.sleep(0.2)
    return found


def _look(path: Path) -> Inspection:
    looks = {
        CONFIG_FILE: _look_at_config,
        HISTORY_FILE: _look_at_history,
        CHECKPOINTS: _look_at_checkpoints,
        SUMMARY_FILE: _look_at_summary,
        MODEL_FILE: _look_at_model,
        LOCK_FILE: _look_at_lock,
    }
    try:
        present = looks.keys() & os.listdir(path)  # noqa: PTH208 - Path.iterdir reads nothing until it is used
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UserError(f"{path} is not a run directory: {reason}") from None
    found = Inspection(path, is_in_use(path), present=present - {LOCK_FILE})
    # A run that ends, however it ends, takes its file away.
    found.killed = not found.running and LOCK_FILE in present and os.path.lexists(path / LOCK_FILE)
    if not found.running and found.present <= {MODEL_FILE}:
        raise UserError(f"{path} is not a run directory: it has none of {', '.join(list(looks)[:4])}")
    needed = {CONFIG_FILE} if found.present else set()
    needed |= {HISTORY_FILE} if found.present & {MODEL_FILE, SUMMARY_FILE} else set()
    needed |= {MODEL_FILE} if SUMMARY_FILE in present else set()
    for name, look in looks.items():
        if name in present:
            found.problems += filter(None, [_wrong(path / name, partial(look, found))])
        elif name in needed:
            found.problems.append(f"{path / name} is missing")
    return found


def _wrong(path: Path, look: Callable[[], None]) -> str:
    """What goes wrong in a look at a file or directory, or nothing. No content may end the report."""
    try:
        look()
    except PdadmmError as error:
        return str(error) if str(path) in str(error) else f"{path}: {error}"
    except OSError as error:
        return f"{path} cannot be read: {error.strerror or error}"
    except Exception as error:
        return f"{path} makes no sense: {type(error).__name__}"
    return ""


def _look_at_lock(found: Inspection) -> None:
    with open_to_read(found.path / LOCK_FILE):
        pass


def _look_at_config(found: Inspection) -> None:
    read_small(found.path / CONFIG_FILE, _LARGEST)
    found.config = read_config(found.path).resolved()


def _look_at_history(found: Inspection) -> None:
    problems: list[str] = []
    found.rows = read_history(found.path, problems)
    gap = next((epoch for epoch, row in enumerate(found.rows, start=1) if row["epoch"] != epoch), None)
    if gap is not None and not problems:
        problems.append(f"{found.path / HISTORY_FILE} lacks the row of epoch {gap}")
    found.problems += problems
    found.epoch = found.rows[-1]["epoch"] if found.rows and not problems else 0


def _look_at_checkpoints(found: Inspection) -> None:
    folder = Folder(found.path)
    os.listdir(folder.path)  # noqa: PTH208 - raises what is wrong with it
    for epoch in folder.epochs():
        checkpoint = _checkpoint(found, folder.directory(epoch), epoch)
        if not checkpoint.problem or epoch in folder.epochs():  # a run that goes on deletes old ones
            found.checkpoints.append(checkpoint)
    found.problems += [checkpoint.problem for checkpoint in found.checkpoints if checkpoint.problem]
    if not found.epoch and found.newest:
        found.epoch = found.newest.epoch


def _checkpoint(found: Inspection, directory: Path, epoch: int) -> Checkpoint:
    manifest: Manifest | None = None

    def look() -> None:
        nonlocal manifest
        manifest = read_manifest(directory)
        check_files(directory, manifest.files)

    def look_at_history() -> None:
        # The history is where the first samples of the first layer are.
        if manifest is not None and manifest.has_first_rows:
            RunDirectory(found.path).check_history(manifest.history.bytes, manifest.history.sha256)

    problem = _wrong(directory, look)
    size = sum(entry.bytes for entry in manifest.files) if manifest else 0
    return Checkpoint(epoch, size, manifest, problem or _wrong(directory, look_at_history), is_whole=not problem)


def _look_at_summary(found: Inspection) -> None:
    path = found.path / SUMMARY_FILE
    summary = json.loads(read_small(path, _LARGEST))
    if summary["status"] not in STATUS or type(summary["epochs"]) is not int:
        raise DamageError(f"{path} does not say how the run ended")
    found.summary = summary
    if found.rows and summary["epochs"] < found.rows[-1]["epoch"]:
        found.notes.append(f"model and summary are of epoch {summary['epochs']}, before the run was resumed")
        return
    if not found.problems and summary["epochs"] > found.epoch:
        found.problems.append(f"{found.path / HISTORY_FILE} lacks the row of epoch {found.epoch + 1}")
    found.epoch = summary["epochs"]


def _look_at_model(found: Inspection) -> None:
    path = found.path / MODEL_FILE
    with open_to_read(path):  # a pipe would be waited for
        found.model = repr(load_model(path))
    known = None if found.summary is None else found.summary.get("model_sha256")
    # A run that died between the two has a model that is newer than the summary.
    is_newer = known is not None and path.stat().st_mtime > (found.path / SUMMARY_FILE).stat().st_mtime
    if known is not None and known != sha256_of(path) and not is_newer:
        raise DamageError(f"{path} has been changed: its SHA-256 is not that in {SUMMARY_FILE}")
