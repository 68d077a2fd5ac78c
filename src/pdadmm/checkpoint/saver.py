"""Saves a run from time to time, beside the computation where memory allows.

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
import dataclasses
import errno
import json
import os
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from pdadmm.checkpoint.files import reads_back, write_tensors
from pdadmm.checkpoint.folder import Folder
from pdadmm.checkpoint.manifest import FileEntry, HistoryMark, Manifest
from pdadmm.engine.layers import ROW_VARIABLES
from pdadmm.engine.world import World
from pdadmm.errors import DamageError, StorageError
from pdadmm.machine import available_memory

_DISK_SPARE = 2**20  # bytes left for the history and the manifest
_SPARE = 0.5  # of the free memory is left alone when arrays are copied

Layer = dict[str, Tensor]


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
    """Writes the checkpoints of one process, in step with the others."""

    def __init__(
        self, world: World, folder: Folder, leads: bool, note: Callable[[str], None], may_copy: bool = True
    ) -> None:
        self._world, self._folder, self._leads, self._note = world, folder, leads, note
        self._may_copy = may_copy
        self._thread: threading.Thread | None = None
        self._manifest: Manifest | None = None
        self._entries: list[FileEntry] = []
        self._problem = ""
        self._is_final = False
        self._copies: dict[tuple[int, str], Tensor] = {}
        self.cost = Cost()

    @property
    def run(self) -> Path:
        """The run directory."""
        return self._folder.run

    @property
    def is_writing(self) -> bool:
        """True while this process's files are being written."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def is_open(self) -> bool:
        """True from `begin` to `complete`, on all processes alike."""
        return self._manifest is not None

    def begin(self, manifest: Manifest, layers: dict[int, Layer], rows: slice, wait: bool) -> None:
        """Start to save; `manifest` lacks only its files. With `wait`, or without room for a copy, write at once."""
        assert not self.is_open
        began = time.perf_counter()
        if not self.cost.saved + self.cost.failed:
            self._world.gather("")  # the first process may still be clearing the folder
        self._manifest, self._entries, self._problem, self._is_final = manifest, [], "", wait
        directory = self._folder.saving(manifest.epoch)
        if not wait and self._may_copy and (copied := self._copied(layers)) is not None:
            self._thread = threading.Thread(target=self._write, args=(directory, copied, rows), daemon=True)
            self._thread.start()
        else:
            self._write(directory, layers, rows)
        self._count_blocked(began)

    def _count_blocked(self, began: float) -> None:
        seconds = time.perf_counter() - began
        if self._is_final:
            self.cost.final_seconds += seconds
        else:
            self.cost.blocked_seconds += seconds

    def _copied(self, layers: dict[int, Layer]) -> dict[int, Layer] | None:
        """The arrays as they are now, if there is room for them; what else is saved does not change in place."""
        arrays = {
            (n, name): array for n, layer in layers.items() for name, array in layer.items() if name in ROW_VARIABLES
        }
        # The memory of one copy serves the next: copying into fresh memory takes ten times as long.
        fitting = {key: copy for key, copy in self._copies.items() if key in arrays and copy.shape == arrays[key].shape}
        new = {key: array for key, array in arrays.items() if key not in fitting}
        needed = sum(array.numel() * array.element_size() for array in new.values()) * self._world.local_processes
        free = available_memory()
        if free is not None and not has_room(needed, free):
            self._copies = {}
            return None
        self._copies = fitting | {key: torch.empty(array.shape, dtype=array.dtype) for key, array in new.items()}
        for key, copy in self._copies.items():
            copy.copy_(arrays[key])
        return {n: {**layer, **self._copies_of(n)} for n, layer in layers.items()}

    def _copies_of(self, number: int) -> Layer:
        return {name: copy for (layer, name), copy in self._copies.items() if layer == number}

    def _write(self, directory: Path, layers: dict[int, Layer], rows: slice) -> None:
        """Write this process's files; what goes wrong is told by `complete`."""
        began = time.perf_counter()
        try:
            for folder in (directory.parent, directory):  # the run directory itself is not made again, if it is gone
                folder.mkdir(exist_ok=True)
            self._check_room(directory, layers)
            for number, tensors in layers.items():
                name = FileEntry.file_name(number, self._world.shard)
                size, sha256 = write_tensors(directory / name, tensors)
                if not reads_back(directory / name, tensors):
                    raise DamageError(f"{directory / name} did not read back as it was written")
                entry = FileEntry(name, number, rows.start, rows.stop - rows.start, size, sha256)
                self._entries.append(entry)
        except Exception as error:  # whatever it is, it must reach the other processes, and not only end a thread
            strerror = error.strerror if isinstance(error, OSError) else None
            self._problem = strerror or str(error) or type(error).__name__
            for number in layers:  # the history needs the room
                with contextlib.suppress(OSError):
                    (directory / FileEntry.file_name(number, self._world.shard)).unlink(missing_ok=True)
        finally:
            self.cost.writing_seconds += time.perf_counter() - began

    def _check_room(self, directory: Path, layers: dict[int, Layer]) -> None:
        """Refuse before the disk does: filling it to the last byte would leave none for the history."""
        size = sum(tensor.numel() * tensor.element_size() for layer in layers.values() for tensor in layer.values())
        if shutil.disk_usage(directory).free < size + _DISK_SPARE:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def complete(self) -> None:
        """With all others, once their files are written: make the checkpoint count."""
        assert self._manifest is not None
        began = time.perf_counter()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        manifest, self._manifest = self._manifest, None
        problem = self._complete(manifest)
        self._count_blocked(began)
        if problem:
            self.cost.failed += 1
            self._note(f"the checkpoint of epoch {manifest.epoch} could not be written: {problem}; the run goes on")
            return
        self.cost.saved += 1
        self.cost.last_epoch = manifest.epoch

    def _complete(self, manifest: Manifest) -> str:
        """What went wrong anywhere, or nothing."""
        mine = {
            "files": [dataclasses.asdict(entry) for entry in self._entries],
            "problem": self._problem,
            "history": dataclasses.asdict(manifest.history),
        }
        everyone = [json.loads(text) for text in self._world.gather(json.dumps(mine))]
        problem = next((part["problem"] for part in everyone if part["problem"]), "")
        if self._leads and not problem:
            files = [FileEntry(**entry) for part in everyone for entry in part["files"]]
            files = self._on_this_disk(manifest.epoch, files)
            history = HistoryMark(**everyone[0]["history"])  # the first process has the history
            try:
                self._folder.complete(dataclasses.replace(manifest, files=files, history=history))
            except StorageError as error:
                problem = str(error)
        self.cost.bytes = sum(entry.bytes for entry in self._entries)
        problem = next((text for text in self._world.gather(problem) if text), "")
        if self._leads:
            if problem:
                self._folder.drop(manifest.epoch)
            else:
                self._folder.prune()
        return problem

    def _on_this_disk(self, epoch: int, files: list[FileEntry]) -> list[FileEntry]:
        """The files that processes with this file system wrote; the others have a manifest of their own."""
        return sorted(
            (entry for entry in files if (self._folder.saving(epoch) / entry.name).exists()),
            key=lambda entry: (entry.layer, entry.first_row),
        )


def has_room(size: int, free: int) -> bool:
    """Whether arrays of this size are copied where so much memory is free."""
    return size <= free * _SPARE


def total_cost(world: World, cost: Cost) -> Cost:
    """The dearest process's times and the bytes of all, on every process."""
    mine = [cost.bytes, cost.blocked_seconds, cost.final_seconds, cost.writing_seconds]
    table = torch.zeros(world.num_stages, world.num_shards, len(mine), dtype=torch.float64)
    table[world.stage, world.shard] = torch.tensor(mine, dtype=torch.float64)
    values = world.sum_over_shards(world.sum_over_stages(table)).reshape(-1, len(mine))
    _, blocked, final, writing = values.max(0).values.tolist()
    return Cost(cost.saved, cost.failed, cost.last_epoch, int(values[:, 0].sum()), blocked, final, writing)
