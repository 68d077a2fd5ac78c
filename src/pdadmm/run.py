"""A run in a directory: begin it, resume it, record it, save it, store what it came to.

Every process of a run comes through here. The first one writes the history and the results; on each file system that
the processes use, the first process there holds the directory and completes the checkpoints.
"""

from __future__ import annotations

import dataclasses
import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pdadmm.checkpoint.folder import Folder
from pdadmm.checkpoint.manifest import HistoryMark, Manifest
from pdadmm.checkpoint.restore import Source
from pdadmm.checkpoint.saver import Saver
from pdadmm.config import Config, read_toml, to_toml
from pdadmm.data import Dataset
from pdadmm.engine.launch import inherited_lock, restarts
from pdadmm.engine.world import World
from pdadmm.errors import DamageError, PdadmmError, UserError
from pdadmm.events import EventWriter
from pdadmm.history import Row
from pdadmm.machine import return_freed_memory
from pdadmm.observer import Observer
from pdadmm.rundir import (
    CONFIG_FILE,
    EVENTS,
    HISTORY_FILE,
    MODEL_FILE,
    PLOT_FILE,
    SUMMARY_FILE,
    RunDirectory,
    make_directory,
    read_history,
    sha256_of,
    storing,
)
from pdadmm.storage import storage_of
from pdadmm.summary import summarise
from pdadmm.trainer import Result, train_in


@dataclass(frozen=True)
class Place:
    """Where a run lives, and what may already be there."""

    path: Path
    overwrite: bool = False
    resume: bool = False
    allow_changes: bool = False


def read_config(run: Path, resumes: bool = False) -> Config:
    """The configuration of a run; one that is to go on must have no retired options."""
    path = run / CONFIG_FILE
    if not run.is_dir():
        raise UserError(f"{run} is not a directory, so it holds no run")
    if not path.is_file():
        raise UserError(f"{run} holds no run: it has no {CONFIG_FILE}")
    read = Config.from_mapping if resumes else Config.from_stored
    return read(read_toml(path), str(path))


def carry_out(
    world: World, config: Config, load: Callable[[], Dataset | None], place: Place, observer: Observer
) -> dict[str, Any] | None:
    """Run to the end as one process; the summary is on the first one only.

    The directory is held before anything else happens, such as `load`ing the data, until all is written.
    """
    with ExitStack() as stack:
        leads = _leads(world, place.path)
        place = _settled(world, place, config)
        directory = RunDirectory(place.path, place.overwrite, place.resume, inherited_lock())
        with _together(world):
            if leads:
                stack.enter_context(directory)
            _check_can_go_on(place)
        with _together(world):
            data = load()
        is_first = world.stage == world.shard == 0
        record = _Record(directory if leads else None, Folder(place.path), config.resolved(), is_first, observer)
        stack.callback(record.close)
        saver = Saver(world, record.config, record.folder, leads, record.history_mark, observer.on_warning)
        source = None
        if place.resume:
            source = Source(record.folder, place.allow_changes, record.check_history, record.go_on)
        told = dataclasses.replace(observer, on_row=record.add)
        result = train_in(world, config, data, told, storage_of(config, place.path), saver, source)
        return_freed_memory()  # the plot's library needs some
        if result is None:
            return None
        assert data is not None
        if (finished := _finished(directory, result)) is not None:
            observer.on_note(f"the run already has all its {finished['epochs']} epochs; --epochs extends it")
            return finished
        summary = summarise(result, data)
        _store(directory, result, summary, observer)
        return summary


def _settled(world: World, place: Place, config: Config) -> Place:
    """A run that starts again resumes its directory if the run there is its own, and else begins as it was told to.

    A run of the same configuration counts as its own: it has the same trajectory.
    """
    if place.resume:
        return place
    # Under torchrun each host counts its own restarts, so one process may know of them and another not.
    own = _is_own(place.path, config)
    everyone = [json.loads(text) for text in world.gather(json.dumps([restarts() > 0, own]))]
    if not any(again for again, _ in everyone):
        return place
    if all(owned for _, owned in everyone):
        return dataclasses.replace(place, resume=True)
    return dataclasses.replace(place, overwrite=place.overwrite or own)


def _is_own(path: Path, config: Config) -> bool:
    try:
        config.resolved().check_resumes(read_config(path, resumes=True), allow_changes=False)
    except (UserError, OSError):
        return False
    return True


def _check_can_go_on(place: Place) -> None:
    """A run that ended without any checkpoint would begin anew, at the cost of its results."""
    if place.resume and not Folder(place.path).epochs() and (place.path / MODEL_FILE).exists():
        raise UserError(f"{place.path} holds a run that has ended but no checkpoint to go on from")


def _leads(world: World, path: Path) -> bool:
    """Whether this process is the first of those that see the same directory at `path`."""
    processes = world.num_stages * world.num_shards
    rank = world.stage * world.num_shards + world.shard
    if world.local_processes == processes:
        return rank == 0
    token = world.gather(uuid.uuid4().hex)[0]
    probes = [path / f".probe-{token}-{number}" for number in range(processes)]
    with _together(world):
        make_directory(path)
        with storing(probes[rank]):
            probes[rank].touch()
    world.gather("")
    leader = next(number for number, probe in enumerate(probes) if probe.exists())
    world.gather("")
    probes[rank].unlink()
    return leader == rank


@contextmanager
def _together(world: World) -> Iterator[None]:
    """If one process fails here, all do, with the same error."""
    mine = ""
    try:
        yield
    except PdadmmError as error:
        mine = error.to_json()
    if first := next(filter(None, world.gather(mine)), ""):
        shared = PdadmmError.from_json(first)
        shared.everywhere = True
        raise shared


class _Record:
    """What one process writes down of a run: the rows on the first one, and the state of a directory that it holds."""

    def __init__(
        self, directory: RunDirectory | None, folder: Folder, config: Config, is_first: bool, observer: Observer
    ) -> None:
        self._directory, self.folder, self.config, self._observer = directory, folder, config, observer
        self._history = directory if is_first else None
        self._events: EventWriter | None = None
        self._resumed: Manifest | None = None
        self._before: list[Row] = []
        self._is_damaged = self._has_begun = False

    def check_history(self, mark: HistoryMark) -> None:
        """On the first process, find out whether the history is there up to a mark."""
        if self._history is not None:
            self._history.check_history(mark.bytes, mark.sha256)

    def history_mark(self) -> HistoryMark:
        """How far the history has come, on the first process."""
        return HistoryMark(*self._history.history_mark()) if self._history else HistoryMark(0, "")

    def go_on(self, saved: Manifest) -> list[Row]:
        """From a checkpoint: the rows until then, on the first process."""
        self._resumed = saved
        self._observer.on_note(f"going on after epoch {saved.epoch}")
        if self._history is None:
            return []
        self._before = [row for row in read_history(self.folder.run, []) if row["epoch"] <= saved.epoch]
        try:
            self.check_history(saved.history)
        except DamageError:
            self._is_damaged = True
            self._observer.on_warning(
                f"{HISTORY_FILE} is damaged: the rows of {len(self._before)} of its {saved.epoch} epochs can be read "
                f"and are kept; the file is set aside"
            )
        return list(self._before)

    def add(self, row: Row) -> None:
        """Write a row down, and pass it on."""
        if self._directory is not None and not self._has_begun:
            self._begin(self._directory)
        if self._history is not None:
            self._history.append_row(row)
        if self._events is not None:
            self._events.write(row)
        self._observer.on_row(row)

    def _begin(self, directory: RunDirectory) -> None:
        """The run can no longer be refused: now the directory becomes its own."""
        self._has_begun, saved = True, self._resumed
        self.folder.clear_unfinished()
        if saved is None:
            directory.begin(to_toml(self.config))
        else:
            directory.go_on(to_toml(self.config), saved.history.bytes, self._before if self._is_damaged else None)
            for name in self.folder.put_aside_after(saved.epoch):
                self._observer.on_note(f"checkpoints/{name} is not used and will be deleted when two are newer")
        if self._history is not None and self.config.tensorboard == "on":
            self._events = EventWriter(self.folder.run / EVENTS, self._before)

    def close(self) -> None:
        """The run is over, however it ended."""
        if self._events is not None:
            self._events.close()


def _finished(directory: RunDirectory, result: Result) -> dict[str, Any] | None:
    """The summary of a run that had ended, and that there was nothing left to do for."""
    epoch = result.history[-1]["epoch"]
    if result.resumed_from != epoch:
        return None
    try:
        summary: dict[str, Any] = json.loads((directory.path / SUMMARY_FILE).read_bytes())
        is_same = (summary["epochs"], summary["status"]) == (epoch, result.status)
        is_same = is_same and summary["model_sha256"] == sha256_of(directory.path / MODEL_FILE)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return summary if is_same else None


def _store(directory: RunDirectory, result: Result, summary: dict[str, Any], observer: Observer) -> None:
    directory.check_held()
    result.model.save(directory.path / MODEL_FILE)
    summary["model_sha256"] = sha256_of(directory.path / MODEL_FILE)
    directory.write_text(SUMMARY_FILE, json.dumps(summary, indent=2) + "\n")
    try:
        from pdadmm.charts import plot_run

        plot_run(result.history, directory.path / PLOT_FILE)
    except ImportError:
        observer.on_note(f"no {PLOT_FILE}: it needs pip install 'pdadmm[report]'")
    except PdadmmError:
        raise
    except Exception as error:  # whatever a library cannot draw, the run is done
        observer.on_note(f"no {PLOT_FILE}: it could not be drawn: {error}")
