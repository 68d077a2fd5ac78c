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
from pdadmm.engine.world import World
from pdadmm.errors import DamageError, PdadmmError, UserError
from pdadmm.history import Row
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
        parts = [
            self._read(entry, name, rows if name in ROW_VARIABLES else None)
            for entry, rows in _parts(self.manifest, layer, self.rows)
        ]
        found = [part for part in parts if part is not None]
        if len(found) < len(parts):
            return None
        return torch.cat(found) if name in ROW_VARIABLES else found[0]

    def _rows(self, layer: int, name: str, shape: tuple[int, ...], storage: Storage) -> Tensor:
        """An array of samples, read file by file and a few rows at a time."""
        out = storage.empty(*shape, dtype=self._dtype(name), device=self.device)
        step, filled = max(1, _PIECE // (shape[1] * out.element_size())), 0
        for entry, own in _parts(self.manifest, layer, self.rows):
            for start in range(own.start, own.stop, step):
                rows = slice(start, min(start + step, own.stop))
                count = rows.stop - rows.start
                out[filled : filled + count] = self._fitting(entry, name, (count, *shape[1:]), rows)
                filled += count
        return out

    def _whole(self, layer: int, name: str, shape: tuple[int, ...]) -> Tensor:
        """Something that every file of the layer has alike, in memory of our own."""
        entry, _ = _parts(self.manifest, layer, self.rows)[0]
        return self._fitting(entry, name, shape, None).to(self.device, copy=True)

    def _fitting(self, entry: FileEntry, name: str, shape: tuple[int, ...], rows: slice | None) -> Tensor:
        part, dtype = self._read(entry, name, rows), self._dtype(name)
        if part is None or part.shape != shape or part.dtype != dtype:
            found = "none" if part is None else f"{tuple(part.shape)}, {part.dtype}"
            layer = entry.layer + 1
            raise DamageError(f"{name} of layer {layer} in {entry.name} is {found} instead of {shape}, {dtype}")
        return part

    def _dtype(self, name: str) -> torch.dtype:
        return torch.float64 if name == "gram_scale" else getattr(torch, self.manifest.config["dtype"])

    def _read(self, entry: FileEntry, name: str, rows: slice | None) -> Tensor | None:
        return read_rows(self.folder.directory(self.manifest.epoch) / entry.name, name, rows)


@dataclass(frozen=True)
class Source:
    """Where a run may be resumed from.

    `check_history` raises `DamageError` if the history up to a mark is not there; only the first process has it. A
    checkpoint is used without its history only if none has one.
    """

    folder: Folder
    allow_changes: bool
    check_history: Callable[[HistoryMark], None]
    go_on: Callable[[Manifest], list[Row]]
    """Told which checkpoint it is; gives the rows until then."""


def find_newest(
    world: World,
    source: Source,
    layers: Sequence[int],
    rows: slice,
    device: torch.device,
    accept: Callable[[Manifest], object],
    note: Callable[[str], None],
) -> SavedRun | None:
    """The newest checkpoint of whose `layers` and `rows` every process can verify its own, or None if there is none.

    `accept` raises `UserError` if a checkpoint is of another run. One from before a change that was allowed is older
    than those that are accepted; a newer one does not belong there.
    """
    folder, complaints = source.folder, list[tuple[int, str]]()
    refusal, without_history, usable = "", None, None
    for epoch in sorted(set().union(*map(json.loads, world.gather(json.dumps(folder.epochs())))), reverse=True):
        kind, reason, manifest = "", "", None
        try:
            manifest = read_manifest(folder.directory(epoch))
            accept(manifest)
            _verify(manifest, folder, layers, rows)
            kind = "history"
            source.check_history(manifest.history)
            kind = ""
        except DamageError as error:
            kind, reason = kind or "damaged", str(error)
        except UserError as error:
            kind, reason = "refused", str(error)
        told = [json.loads(text) for text in world.gather(json.dumps([kind, reason]))]
        if not any(kind for kind, _ in told):
            usable = manifest
            break
        refusal = refusal or next((reason for kind, reason in told if kind == "refused"), "")
        another = f"{folder.directory(epoch)} is of another run: "
        reasons = {another + reason if kind == "refused" else reason for kind, reason in told if reason}
        complaints += [(epoch, reason) for reason in sorted(reasons)]
        if all(kind in ("", "history") for kind, _ in told):
            without_history = without_history or manifest
    usable = usable or without_history
    if usable is None and not complaints:
        return None
    if usable is None:
        problem = f"no checkpoint of the run can be used: {'; '.join(text for _, text in complaints)}"
        raised: PdadmmError = UserError(refusal) if refusal else DamageError(problem)
        raised.everywhere = True
        raise raised
    for epoch, text in complaints:
        note(f"{text}; going back to the checkpoint of epoch {usable.epoch}" if epoch > usable.epoch else text)
    return SavedRun(usable, folder, rows, device)


def _verify(manifest: Manifest, folder: Folder, layers: Sequence[int], rows: slice) -> None:
    """Compare the files with these rows of these layers, of those that existed, and find out whether they have all."""
    directory, needed = folder.directory(manifest.epoch), dict[str, FileEntry]()
    for layer in layers:
        if layer not in manifest.progress.layers:
            continue
        reached = rows.start
        for entry, _ in _parts(manifest, layer, rows):
            if entry.first_row > reached:
                break
            reached = entry.first_row + entry.rows
            needed[entry.name] = entry
        if reached < rows.stop:
            raise DamageError(
                f"{directory} has no file with sample {reached + 1} of layer {layer + 1} "
                f"(do all hosts share the run directory?)"
            )
    check_files(directory, list(needed.values()))


def _parts(manifest: Manifest, layer: int, rows: slice) -> list[tuple[FileEntry, slice]]:
    """The files of a layer with any of these rows, in order, and where they are within each."""
    found = []
    for entry in sorted(manifest.files, key=lambda entry: entry.first_row):
        first, stop = max(rows.start, entry.first_row), min(rows.stop, entry.first_row + entry.rows)
        if entry.layer == layer and first < stop:
            found.append((entry, slice(first - entry.first_row, stop - entry.first_row)))
    return found
