"""Saves a run by epochs or minutes and at its end, beside the computation where memory allows.

    every process     copy the arrays  ->  a thread writes the files, flushes them, reads them back
                                           |  meanwhile the run goes on
    all together                           at the end of an iteration all threads have finished:
                                           tell each other the files, or what went wrong
    the first process on each file system  write the manifest, rename, then delete the third-newest

Until the rename the epoch does not count as saved. Where there is no room for a copy, or the arrays are on the disk,
the run waits for the writing instead. A checkpoint that cannot be written (a full disk) costs a note, not the run.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from pdadmm.checkpoint.files import reads_back, write_tensors
from pdadmm.checkpoint.folder import Folder
from pdadmm.checkpoint.manifest import FileEntry, HistoryMark, Manifest, Progress
from pdadmm.config import Config
from pdadmm.engine.layers import ROW_VARIABLES
from pdadmm.engine.world import World
from pdadmm.errors import DamageError, StorageError
from pdadmm.machine import available_memory
from pdadmm.version import __version__

_DISK_SPARE = 2**20  # bytes left for the history and the manifest
_SPARE = 0.5  # of the free memory is left alone when arrays are copied

Layer = dict[str, Tensor]


@dataclass(frozen=True)
class Snapshot:
    """A run at the end of an epoch, as one process sees it; nothing in it is copied."""

    epoch: int
    progress: Progress
    layers: dict[int, Layer]
    rows: slice
    data: str
    num_samples: int


@dataclass
class Cost:
    """What saving has cost this process."""

    saved: int = 0
    failed: int = 0
    last_epoch: int | None = None
    bytes: int = 0
    blocked_seconds: float = 0.0
    """How long the run waited, without the checkpoint at its end."""
    final_seconds: float = 0.0
    """How long it waited for that one."""
    writing_seconds: float = 0.0
    """How long files were being written and read back, mostly beside the computation."""


class Saver:
    """Writes the checkpoints of one process, in step with the others.

    The run asks once an epoch. All processes decide alike: the first one's clock counts, and a thread that has not
    finished anywhere holds up everywhere.
    """

    def __init__(
        self,
        world: World,
        config: Config,
        folder: Folder,
        leads: bool,
        history_mark: Callable[[], HistoryMark],
        warn: Callable[[str], None],
    ) -> None:
        self._world, self._config, self._leads = world, config, leads
        self._history_mark, self._warn = history_mark, warn
        self.folder = folder
        self.cost = Cost()
        self._asked_epoch, self._asked_time = 0, time.monotonic()
        self._open: Manifest | None = None
        """The checkpoint that is under way, on all processes alike; it lacks its files."""
        self._thread: threading.Thread | None = None
        self._entries: list[FileEntry] = []
        self._problem = ""
        self._copies: dict[tuple[int, str], Tensor] = {}

    @property
    def is_writing(self) -> bool:
        """True while this process's files are being written."""
        return self._thread is not None and self._thread.is_alive()

    def resumed(self, epoch: int) -> None:
        """The run goes on from a checkpoint."""
        self._asked_epoch = epoch
        self.cost.last_epoch = epoch or None

    def is_due(self, epoch: int) -> bool:
        """Whether this process, the first one, finds that it is time."""
        every, minutes = self._config.checkpoint_every, self._config.checkpoint_minutes
        by_epochs = bool(every) and epoch - self._asked_epoch >= every
        return by_epochs or (bool(minutes) and time.monotonic() - self._asked_time >= 60 * minutes)

    def after_epoch(self, snapshot: Callable[[], Snapshot], due: bool, is_writing: bool, last: bool) -> None:
        """Complete what is written everywhere; save if it is due. At the last epoch, be done with it."""
        began = time.perf_counter()
        if due or last or not is_writing:
            self.finish()
        if not (self._config.saves and (due or last)):
            self.cost.blocked_seconds += time.perf_counter() - began
            return
        self._begin(snapshot(), wait=last)
        if last:
            self.finish()
            self.cost.final_seconds += time.perf_counter() - began
        else:
            self.cost.blocked_seconds += time.perf_counter() - began

    def _begin(self, now: Snapshot, wait: bool) -> None:
        """Start to save; with `wait`, or without room for a copy, write at once."""
        self._asked_epoch, self._asked_time = now.epoch, time.monotonic()
        if not self.cost.saved + self.cost.failed:
            self._world.gather("")  # the first process may still be clearing the folder
        self._open = Manifest(
            epoch=now.epoch,
            pdadmm=__version__,
            torch=torch.__version__,
            config=self._config.to_mapping(),
            data=now.data,
            num_samples=now.num_samples,
            progress=now.progress,
            history=self._history_mark(),
            files=[],
        )
        self._entries, self._problem = [], ""
        directory, layers = self.folder.saving(now.epoch), now.layers
        copied = None if wait or self._config.storage == "disk" else self._copied(layers)
        if copied is None:
            self._write(directory, layers, now.rows)
        else:
            self._thread = threading.Thread(target=self._write, args=(directory, copied, now.rows), daemon=True)
            self._thread.start()

    def _copied(self, layers: dict[int, Layer]) -> dict[int, Layer] | None:
        """The arrays as they are now, if there is room for them; what else is saved does not change in place."""
        arrays = {(n, name): layer[name] for n, layer in layers.items() for name in layer if name in ROW_VARIABLES}
        # The memory of one copy serves the next: copying into fresh memory takes ten times as long.
        fitting = {key: copy for key, copy in self._copies.items() if key in arrays and copy.shape == arrays[key].shape}
        new = {key: array for key, array in arrays.items() if key not in fitting}
        needed, free = sum(array.nbytes for array in new.values()) * self._world.local_processes, available_memory()
        if free is not None and not has_room(needed, free):
            self._copies = {}
            return None
        self._copies = fitting | {key: torch.empty(array.shape, dtype=array.dtype) for key, array in new.items()}
        for key, copy in self._copies.items():
            copy.copy_(arrays[key])
        return {n: {name: self._copies.get((n, name), layer[name]) for name in layer} for n, layer in layers.items()}

    def _write(self, directory: Path, layers: dict[int, Layer], rows: slice) -> None:
        """Write this process's files; what goes wrong is told by `finish`."""
        began = time.perf_counter()
        names = {number: FileEntry.file_name(number, self._world.shard) for number in layers}
        try:
            for folder in (directory.parent, directory):  # the run directory itself is not made again, if it is gone
                folder.mkdir(exist_ok=True)
            # Refuse before the disk does: filling it to the last byte would leave none for the history.
            size = sum(tensor.nbytes for layer in layers.values() for tensor in layer.values())
            if shutil.disk_usage(directory).free < size + _DISK_SPARE:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            for number, tensors in layers.items():
                path = directory / names[number]
                size, sha256 = write_tensors(path, tensors)
                if not reads_back(path, tensors):
                    raise DamageError(f"{path} did not read back as it was written")
                self._entries.append(FileEntry(path.name, number, rows.start, rows.stop - rows.start, size, sha256))
        except Exception as error:  # whatever it is, it must reach the other processes, and not only end a thread
            strerror = error.strerror if isinstance(error, OSError) else None
            self._problem = strerror or str(error) or type(error).__name__
            for name in names.values():  # the history needs the room
                with contextlib.suppress(OSError):
                    (directory / name).unlink(missing_ok=True)
        finally:
            self.cost.writing_seconds += time.perf_counter() - began

    def finish(self) -> None:
        """With all others, once their files are written: make a checkpoint that is under way count."""
        if self._open is None:
            return
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        manifest, self._open = self._open, None
        problem = self._complete(manifest)
        self.cost.bytes = sum(entry.bytes for entry in self._entries)
        if problem:
            self.cost.failed += 1
            self._warn(f"the checkpoint of epoch {manifest.epoch} could not be written: {problem}; the run goes on")
        else:
            self.cost.saved += 1
            self.cost.last_epoch = manifest.epoch

    def _complete(self, manifest: Manifest) -> str:
        """What went wrong anywhere, or nothing."""
        mine = {"files": [asdict(entry) for entry in self._entries], "history": asdict(manifest.history)}
        told = self._world.gather(json.dumps({"problem": self._problem, **mine}))
        everyone = [json.loads(text) for text in told]
        problem = next((part["problem"] for part in everyone if part["problem"]), "")
        if self._leads and not problem:
            saving = self.folder.saving(manifest.epoch)
            files = [FileEntry(**entry) for part in everyone for entry in part["files"]]
            # Processes with another file system have a manifest of their own there.
            files = sorted((e for e in files if (saving / e.name).exists()), key=lambda e: (e.layer, e.first_row))
            history = HistoryMark(**everyone[0]["history"])  # the first process has the history
            try:
                self.folder.complete(replace(manifest, files=files, history=history))
            except StorageError as error:
                problem = str(error)
        problem = next((text for text in self._world.gather(problem) if text), "")
        if self._leads:
            if problem:
                self.folder.drop(manifest.epoch)
            else:
                self.folder.prune()
        return problem

    def total_cost(self) -> Cost:
        """The dearest process's times and the bytes of all, on every process."""
        cost, world = self.cost, self._world
        mine = [cost.bytes, cost.blocked_seconds, cost.final_seconds, cost.writing_seconds]
        everyone = [json.loads(text) for text in world.gather(json.dumps(mine))]
        sizes, blocked, final, writing = zip(*everyone, strict=True)
        return Cost(cost.saved, cost.failed, cost.last_epoch, sum(sizes), max(blocked), max(final), max(writing))


def has_room(size: int, free: int) -> bool:
    """Whether arrays of this size are copied where so much memory is free."""
    return size <= free * _SPARE
