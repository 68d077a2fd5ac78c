"""Which checkpoint a run goes on from: the newest one that every process can verify.

Each process looks only at the files with its own layers and rows, which may be others than it wrote: what is saved by
layer and shard can be read on any number of workers and shards. Files are verified before a single number is taken
from them; where one fails anywhere, all processes go back to the checkpoint before.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pdadmm.checkpoint.files import read_rows
from pdadmm.checkpoint.folder import Folder
from pdadmm.checkpoint.manifest import FileEntry, HistoryMark, Manifest, check_files, read_manifest
from pdadmm.engine.layers import ROW_VARIABLES, Shapes
from pdadmm.engine.placement import Placement
from pdadmm.engine.world import World
from pdadmm.errors import DamageError, UserError
from pdadmm.storage import Storage

_PIECE = 16 * 2**20  # bytes read at a time


@dataclass(frozen=True)
class SavedRun:
    """A verified checkpoint as this process needs it; also the engine's source of saved layers."""

    manifest: Manifest
    folder: Folder
    rows: slice
    device: torch.device

    def layer(self, layer: int, shapes: Shapes, storage: Storage) -> dict[str, Tensor]:
        """These variables of a layer, for this process's rows."""
        return {
            name: self._rows(layer, name, shape, storage) if name in ROW_VARIABLES else self._whole(layer, name, shape)
            for name, shape in shapes.items()
        }

    def extra(self, layer: int, name: str) -> Tensor | None:
        """Something saved with a layer, or None if it was not."""
        entries = _entries(self.manifest, layer, self.rows)
        parts = [self._part(entry, name, self._rows_of(entry) if name in ROW_VARIABLES else None) for entry in entries]
        found = [part for part in parts if part is not None]
        if len(found) < len(parts):
            return None
        return torch.cat(found) if name in ROW_VARIABLES else found[0]

    def _rows(self, layer: int, name: str, shape: tuple[int, ...], storage: Storage) -> Tensor:
        """An array of samples, read file by file and a few rows at a time."""
        out = storage.empty(*shape, dtype=self._dtype(name), device=self.device)
        step, filled = max(1, _PIECE // (shape[1] * out.element_size())), 0
        for entry in _entries(self.manifest, layer, self.rows):
            own = self._rows_of(entry)
            for start in range(own.start, own.stop, step):
                rows = slice(start, min(start + step, own.stop))
                count = rows.stop - rows.start
                out[filled : filled + count] = self._fitting(entry, layer, name, (count, *shape[1:]), rows)
                filled += count
        return out

    def _whole(self, layer: int, name: str, shape: tuple[int, ...]) -> Tensor:
        """Something that every file of the layer has alike, in memory of our own."""
        entry = _entries(self.manifest, layer, self.rows)[0]
        return self._fitting(entry, layer, name, shape, None).to(self.device, copy=True)

    def _fitting(self, entry: FileEntry, layer: int, name: str, shape: tuple[int, ...], rows: slice | None) -> Tensor:
        part = self._part(entry, name, rows)
        if part is None or part.shape != shape or part.dtype != self._dtype(name):
            found = "none" if part is None else f"{tuple(part.shape)}, {part.dtype}"
            needed = f"{shape}, {self._dtype(name)}"
            raise DamageError(f"{name} of layer {layer + 1} in {entry.name} is {found} instead of {needed}")
        return part

    def _dtype(self, name: str) -> torch.dtype:
        return torch.float64 if name == "gram_scale" else getattr(torch, self.manifest.config["dtype"])

    def _rows_of(self, entry: FileEntry) -> slice:
        """This process's rows, counted within a file."""
        first = max(self.rows.start, entry.first_row) - entry.first_row
        return slice(first, min(self.rows.stop, entry.first_row + entry.rows) - entry.first_row)

    def _part(self, entry: FileEntry, name: str, rows: slice | None) -> Tensor | None:
        """One file's tensor, or these rows of it."""
        return read_rows(self.folder.directory(self.manifest.epoch) / entry.name, name, rows)


@dataclass(frozen=True)
class Source:
    """Where a run may be resumed from.

    `check_history` raises `DamageError` if the history up to a mark is not there; only the first process has it. A
    checkpoint is used without its history only if none has one.
    """

    folder: Folder
    allow_changes: bool
    check_history: Callable[[HistoryMark], None] = lambda mark: None


def find_newest(
    world: World,
    source: Source,
    placement: Placement,
    rows: slice,
    device: torch.device,
    accept: Callable[[Manifest], None],
    note: Callable[[str], None],
) -> SavedRun | None:
    """The newest checkpoint that every process can verify, or None if none was ever completed.

    `accept` raises `UserError`, on all processes alike, if a checkpoint is of another run.
    """
    layers, folder = placement.stages[world.stage], source.folder
    readable, complaints = _readable(folder, layers, rows, accept)
    everyone = [json.loads(text) for text in world.gather(json.dumps([sorted(readable), complaints]))]
    complaints = sorted({(epoch, text) for _, found in everyone for epoch, text in found})
    common = set.intersection(*(set(epochs) for epochs, _ in everyone))
    without_history: int | None = None
    for epoch in sorted(common, reverse=True):
        problem = _verify(readable[epoch], source, layers, rows)
        problems = sorted({text for text in world.gather(problem) if text})
        if not problems:
            history = _check_history(readable[epoch], source)
            problems = sorted({text for text in world.gather(history) if text})
            if problems and without_history is None:
                without_history = epoch
        if not problems:
            _tell(complaints, epoch, note)
            return SavedRun(readable[epoch], folder, rows, device)
        complaints += [(epoch, text) for text in problems]
    if without_history is not None:
        _tell(complaints, without_history, note)
        return SavedRun(readable[without_history], folder, rows, device)
    if complaints:
        error = DamageError(f"no checkpoint of the run can be used: {'; '.join(text for _, text in complaints)}")
        error.everywhere = True
        raise error
    return None


def _tell(complaints: list[tuple[int, str]], epoch: int, note: Callable[[str], None]) -> None:
    """Say what was wrong on the way to the checkpoint of this epoch."""
    for damaged, text in complaints:
        back = f"; going back to the checkpoint of epoch {epoch}" if damaged > epoch else ""
        note(f"{text}{back}")


def _readable(
    folder: Folder, layers: Sequence[int], rows: slice, accept: Callable[[Manifest], None]
) -> tuple[dict[int, Manifest], list[tuple[int, str]]]:
    """The checkpoints whose manifest is right and whose files cover these layers and rows; and what is wrong."""
    readable: dict[int, Manifest] = {}
    complaints: list[tuple[int, str]] = []
    refused: list[tuple[int, UserError]] = []
    for epoch in folder.epochs():
        try:
            manifest = read_manifest(folder.directory(epoch))
            accept(manifest)
            for layer in _own(manifest, layers):
                _check_cover(manifest, folder, layer, rows)
            readable[epoch] = manifest
        except DamageError as error:
            complaints.append((epoch, str(error)))
        except UserError as error:
            refused.append((epoch, error))
    if refused and not readable:
        raise refused[0][1]
    # Older ones are from before a change that was allowed; a newer one does not belong here.
    for epoch, reason in refused:
        if epoch > min(readable):
            complaints.append((epoch, f"{folder.directory(epoch)} is of another run: {reason}"))
    return readable, complaints


def _verify(manifest: Manifest, source: Source, layers: Sequence[int], rows: slice) -> str:
    """What is wrong with the files that this process needs, or nothing."""
    needed = {entry for layer in _own(manifest, layers) for entry in _entries(manifest, layer, rows)}
    try:
        check_files(source.folder.directory(manifest.epoch), sorted(needed, key=lambda entry: entry.name))
    except DamageError as error:
        return str(error)
    return ""


def _check_history(manifest: Manifest, source: Source) -> str:
    """What is wrong with the history up to a checkpoint, or nothing."""
    try:
        source.check_history(manifest.history)
    except DamageError as error:
        return str(error)
    return ""


def _own(manifest: Manifest, layers: Sequence[int]) -> list[int]:
    """The layers among these that existed."""
    return [layer for layer in layers if layer in manifest.progress.layers]


def _check_cover(manifest: Manifest, folder: Folder, layer: int, rows: slice) -> None:
    reached = rows.start
    for entry in _entries(manifest, layer, rows):
        if entry.first_row > reached:
            break
        reached = entry.first_row + entry.rows
    if reached < rows.stop:
        raise DamageError(
            f"{folder.directory(manifest.epoch)} has no file with sample {reached + 1} of layer {layer + 1} "
            f"(do all hosts share the run directory?)"
        )


def _entries(manifest: Manifest, layer: int, rows: slice) -> list[FileEntry]:
    """The files of a layer with any of these rows, in order."""
    overlapping = (
        entry
        for entry in manifest.files
        if entry.layer == layer and entry.first_row < rows.stop and rows.start < entry.first_row + entry.rows
    )
    return sorted(overlapping, key=lambda entry: entry.first_row)
