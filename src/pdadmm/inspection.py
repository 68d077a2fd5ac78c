"""What a run directory holds, whether it is valid, and how far the run came.

Everything is looked at as a resumed run would, and nothing is trusted: a damaged directory is what this is for. What is
wrong is collected, so that one look tells all of it. Nothing is written, and the data is not loaded.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pdadmm.checkpoint.folder import LATEST, Folder
from pdadmm.checkpoint.manifest import MANIFEST_FILE, Manifest, check_files, directory_name, read_manifest
from pdadmm.config import OPTIONS_OF, RETIRED, Config, read_toml
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
    PLOT_FILE,
    SUMMARY_FILE,
    RunDirectory,
    is_in_use,
    read_history,
)
from pdadmm.trainer import STATUS

_LARGEST = 2**24  # bytes of a configuration, a summary or one row; real ones have a few thousand
_LOOKS = 3  # a run that goes on replaces files under our eyes: what seems wrong is looked at again


@dataclass(frozen=True)
class Checkpoint:
    """One checkpoint that has the name of an epoch."""

    epoch: int
    bytes: int
    saved: float | None
    """When it was completed, in seconds since 1970."""
    problem: str
    manifest: Manifest | None
    is_whole: bool
    """Whether all of its own files are right; what is wrong may be the history that belongs to it."""

    @property
    def valid(self) -> bool:
        """Whether a run can go on from it, with all rows of its history."""
        return not self.problem

    @property
    def is_part(self) -> bool:
        """Whether other hosts hold layers or samples of it."""
        manifest = self.manifest
        return manifest is not None and any(not _covers(manifest, layer) for layer in manifest.progress.layers)


@dataclass
class Inspection:
    """All that was found."""

    path: Path
    running: bool = False
    stale_lock: bool = False
    config: Config | None = None
    options: set[str] = field(default_factory=set)
    """Those that config.toml sets."""
    epoch: int = 0
    """The last row of the history; where there is none, the newest checkpoint."""
    last: Row = field(default_factory=dict)
    """The last row, with the scores of the last one that had some."""
    seconds: float = 0.0
    history_is_whole: bool = False
    summary: dict[str, Any] | None = None
    model: str = ""
    """The model in a few words, if there is one that loads."""
    checkpoints: list[Checkpoint] = field(default_factory=list)
    set_aside: list[str] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)
    present: set[str] = field(default_factory=set)
    """Files of a run that are there, whole or not."""
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def valid(self) -> bool:
        """Whether everything that was found is as it was written."""
        return not self.problems

    @property
    def newest(self) -> Checkpoint | None:
        """What a resumed run goes on from."""
        valid = [found for found in self.checkpoints if found.valid]
        return next(iter(valid or [found for found in self.checkpoints if found.is_whole]), None)

    @property
    def is_part(self) -> bool:
        """Whether the history and results are on another host."""
        return HISTORY_FILE not in self.present and any(found.is_part for found in self.checkpoints)

    @property
    def has_results(self) -> bool:
        """Whether model and summary are those of the last epoch."""
        return bool(self.model) and self.summary is not None and self.summary["epochs"] == self.epoch

    @property
    def status(self) -> str:
        """`running`, how the run ended by its own words, `killed`, `stopped` by an error, or `part` of a run."""
        if self.running:
            return "running"
        if self.is_part:
            return "part"
        # Results stay until a resumed run has new ones, so they may be older than the history.
        if self.summary is not None and self.summary["epochs"] == self.epoch:
            status: str = self.summary["status"]
            if status != "completed" or self.config is None or self.epoch >= self.config.epochs:
                return status
        return "killed" if self.stale_lock else "stopped"


def inspect_run(path: Path) -> Inspection:
    """Look at everything in a run directory; `UserError` if it is none."""
    for _ in range(_LOOKS):
        found = _look(path)
        if not (found.running and found.problems):
            break
        time.sleep(0.2)
    return found


def _look(path: Path) -> Inspection:
    try:
        names = set(os.listdir(path))  # noqa: PTH208 - Path.iterdir reads nothing until it is used
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UserError(f"{path} is not a run directory: {reason}") from None
    files = (CONFIG_FILE, HISTORY_FILE, MODEL_FILE, SUMMARY_FILE, PLOT_FILE, CHECKPOINTS)
    found = Inspection(path, present=names & set(files))
    _look_at_lock(found, names)
    if not found.present and not found.running:
        raise UserError(f"{path} is not a run directory: it has none of {', '.join(files)}")
    if found.present == {MODEL_FILE} and not found.running:
        raise UserError(f"{path} is not a run directory: it has a {MODEL_FILE} and nothing of the run that made it")
    for look in (_look_at_config, _look_at_history, _look_at_checkpoints, _compare_options, _look_at_results):
        if problem := _wrong(path, functools.partial(look, found)):
            found.problems.append(problem)
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


def _check_plain(path: Path, largest: int | None = None) -> None:
    """Refuse what is not a file, which might be waited for without end, or what is too large to be read."""
    try:
        found = path.stat()
    except FileNotFoundError:
        raise DamageError(f"{path} is missing") from None
    if not stat.S_ISREG(found.st_mode):
        raise DamageError(f"{path} is not a plain file")
    if largest is not None and found.st_size > largest:
        raise DamageError(f"{path} is too large, with {found.st_size} bytes")
    path.open("rb").close()  # libraries that read files have their own ideas of why they cannot


def _look_at_lock(found: Inspection, names: set[str]) -> None:
    if LOCK_FILE not in names:
        return
    path = found.path / LOCK_FILE
    if os.path.lexists(path) and not os.path.isfile(path):  # noqa: PTH113 - Path.is_file may raise
        found.problems.append(f"{path} is not a plain file, so no run can hold the directory")
        return
    found.running = is_in_use(found.path)
    found.stale_lock = not found.running and os.path.lexists(
        path
    )  # a run that ends, however it ends, takes its file away


def _look_at_config(found: Inspection) -> None:
    path = found.path / CONFIG_FILE
    if not found.present:
        return  # a run that has not finished its first epoch

    def look() -> None:
        _check_plain(path, _LARGEST)
        found.config, found.options = read_config(found.path).resolved(), set(read_toml(path))
        _look_for_sources(found, found.config)

    if CONFIG_FILE not in found.present:
        found.problems.append(f"{path} is missing")
    elif problem := _wrong(path, look):
        found.problems.append(problem)


def _compare_options(found: Inspection) -> None:
    """A file that lost its end still is TOML, but the run it describes is another one."""
    if found.config is None or found.newest is None or found.newest.manifest is None:
        return
    before = found.newest.manifest.config
    handed_over = before.get("method", "pdadmm") != found.config.method
    lost = sorted(set(before) - set(RETIRED) - found.options - (set(OPTIONS_OF) if handed_over else set()))
    if lost:
        found.problems.append(f"{found.path / CONFIG_FILE} has lost the option {lost[0]}")
        found.config = None


def _look_for_sources(found: Inspection, config: Config) -> None:
    """What a resumed run reads besides its directory, by names that may be relative to another place."""
    is_file = Path(config.data).suffix != ""
    sources = {"--data": config.data if is_file else None, "--allow-changes --init-from": config.init_from}
    for flag, source in sources.items():
        if source is not None and not os.path.exists(source):  # noqa: PTH110 - Path.exists may raise
            found.notes.append(f"there is no {source} as seen from here; {flag} says where it is now")


def _look_at_history(found: Inspection) -> None:
    if HISTORY_FILE not in found.present:
        if found.present & {MODEL_FILE, SUMMARY_FILE}:
            found.problems.append(f"{found.path / HISTORY_FILE} is missing")
        return
    problems: list[str] = []
    for row in read_history(found.path, problems):
        scores = {name: value for name, value in found.last.items() if name.endswith(("_accuracy", "_r2"))}
        if row["epoch"] != found.epoch + 1:
            problems.append(f"{found.path / HISTORY_FILE} lacks the row of epoch {found.epoch + 1}")
            break
        found.epoch, found.last = row["epoch"], scores | row
        found.seconds += number_in(row, "seconds") or 0.0
    found.history_is_whole = not problems
    found.problems += problems


def number_in(values: dict[str, Any], name: str) -> float | None:
    """A value, if it is a finite number."""
    value: Any = values.get(name)
    return float(value) if type(value) in (int, float) and abs(value) < 1e300 else None


def _look_at_checkpoints(found: Inspection) -> None:
    folder = Folder(found.path)
    names: list[str] = []

    def look() -> None:
        names.extend(sorted(os.listdir(folder.path)))  # noqa: PTH208 - as above

    if CHECKPOINTS not in found.present:
        return
    if problem := _wrong(folder.path, look):
        found.problems.append(problem)
        return
    found.set_aside = folder.set_aside()
    found.unfinished = folder.unfinished()
    for epoch in sorted(set(folder.epochs()), reverse=True):
        checkpoint = _checkpoint(found, folder, epoch)
        if checkpoint.valid or epoch in folder.epochs():  # a run that goes on deletes old ones
            found.checkpoints.append(checkpoint)
    found.problems += [checkpoint.problem for checkpoint in found.checkpoints if checkpoint.problem]
    if not found.epoch and found.newest:
        found.epoch = found.newest.epoch
    if not found.running:
        _look_at_latest(found, folder)


def _checkpoint(found: Inspection, folder: Folder, epoch: int) -> Checkpoint:
    directory = folder.directory(epoch)
    manifests: list[Manifest] = []

    def look() -> None:
        manifests.append(read_manifest(directory))
        check_files(directory, manifests[0].files)

    size, saved = 0, None
    problem = _wrong(directory, look)
    is_whole = not problem
    if is_whole:
        problem = _wrong(directory, lambda: _check_fits_history(found.path, manifests[0]))
    try:
        size = sum(entry.lstat().st_size for entry in directory.iterdir())
        saved = (directory / MANIFEST_FILE).lstat().st_mtime
    except OSError:
        pass  # it is missing, which has been found above
    return Checkpoint(epoch, size, saved, problem, manifests[0] if manifests else None, is_whole)


def _check_fits_history(run: Path, manifest: Manifest) -> None:
    """The history is where the first samples of the first layer are: with the first process."""
    if not any(entry.layer == min(manifest.progress.layers) and entry.first_row == 0 for entry in manifest.files):
        return
    path, mark = run / HISTORY_FILE, manifest.history
    _check_plain(path)
    if path.stat().st_size < mark.bytes:
        raise DamageError(f"{path} is shorter than the {mark.bytes} bytes it had then")
    RunDirectory(run).check_history(mark.bytes, mark.sha256)


def _covers(manifest: Manifest, layer: int) -> bool:
    """Whether all samples of a layer are in the files here."""
    reached = 0
    for entry in sorted(manifest.files, key=lambda entry: entry.first_row):
        if entry.layer == layer and entry.first_row <= reached:
            reached = max(reached, entry.first_row + entry.rows)
    return reached >= manifest.num_samples


def _look_at_latest(found: Inspection, folder: Folder) -> None:
    """For people only, and a run may die just before it moves the link: so another target is no damage."""
    path, epochs = folder.path / LATEST, folder.epochs()
    if path.is_symlink():
        target = os.readlink(path)  # noqa: PTH115 - a Path would change what is shown
        if not epochs or target != directory_name(epochs[0]):
            newest = directory_name(epochs[0]) if epochs else "nothing"
            found.notes.append(f"{path} points to {target}; the newest is {newest}")
    elif path.exists():
        found.problems.append(f"{path} is not a link, so no checkpoint can be completed")
    elif epochs:
        found.notes.append(f"{path} is missing; a resumed run does not need it")


def _look_at_results(found: Inspection) -> None:
    """Model, summary and plot, which a run writes in this order."""
    model, summary, plot = (found.path / name for name in (MODEL_FILE, SUMMARY_FILE, PLOT_FILE))

    def look_at_model() -> None:
        _check_plain(model)
        found.model = repr(load_model(model))

    def look_at_summary() -> None:
        _check_plain(summary, _LARGEST)
        values = json.loads(summary.read_bytes())
        if values["status"] not in STATUS or type(values["epochs"]) is not int:
            raise DamageError(f"{summary} does not say how the run ended")
        found.summary = values

    def compare_them() -> None:
        # A run that died between the two has a model that is newer than the summary.
        if found.model and found.summary and model.stat().st_mtime <= summary.stat().st_mtime:
            known = found.summary.get("model_sha256")
            if known is not None and known != hashlib.sha256(model.read_bytes()).hexdigest():
                raise DamageError(f"{model} has been changed: its SHA-256 is not that in {SUMMARY_FILE}")

    looks = [(model, look_at_model), (summary, look_at_summary), (model, compare_them)]
    for path, look in [*looks, (plot, lambda: _check_plain(plot))]:
        if path.name in found.present and (problem := _wrong(path, look)):
            found.problems.append(problem)
    if SUMMARY_FILE in found.present and MODEL_FILE not in found.present:
        found.problems.append(f"{model} is missing")
    _compare_results(found)


def _compare_results(found: Inspection) -> None:
    """With the history, or, where that cannot be believed, in place of it."""
    if found.summary is None or found.summary["epochs"] == found.epoch:
        return
    if found.history_is_whole and found.summary["epochs"] < found.epoch:
        found.notes.append(f"model and summary are of epoch {found.summary['epochs']}, before the run was resumed")
        return
    if found.history_is_whole:
        found.problems.append(f"{found.path / HISTORY_FILE} lacks the row of epoch {found.epoch + 1}")
    found.epoch, scores = found.summary["epochs"], found.summary.get("scores")
    found.last = {"objective": found.summary.get("objective"), **(scores if isinstance(scores, dict) else {})}
    found.seconds = number_in(found.summary, "seconds") or 0.0
