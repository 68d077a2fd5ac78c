"""The folder of a run's checkpoints on one file system: which are there, how one is added, which are taken away.

Only one process writes here besides the tensor files themselves: the first of those that share the file system.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from pdadmm.checkpoint.manifest import MANIFEST_FILE, Manifest, directory_name, epoch_of
from pdadmm.rundir import CHECKPOINTS, open_new, storing

KEPT = 2
LATEST = "latest"
_SAVING = ".saving-"
_DELETING = ".deleting-"
_ASIDE = ".aside"


@dataclass(frozen=True)
class Folder:
    """`checkpoints/` of a run directory."""

    run: Path

    @property
    def path(self) -> Path:
        """Where the checkpoints are."""
        return self.run / CHECKPOINTS

    def directory(self, epoch: int) -> Path:
        """The checkpoint of an epoch."""
        return self.path / directory_name(epoch)

    def saving(self, epoch: int) -> Path:
        """Where the checkpoint of an epoch is until it is complete."""
        return self.path / f"{_SAVING}{directory_name(epoch)}"

    def epochs(self) -> list[int]:
        """The epochs that have a directory, the newest first; whether they are whole is not looked at."""
        return sorted((epoch for epoch in map(epoch_of, _names(self.path)) if epoch is not None), reverse=True)

    def set_aside(self) -> list[str]:
        """Names of checkpoints that a resumed run could not use."""
        return sorted(name for name in _names(self.path) if name.endswith(_ASIDE))

    def complete(self, manifest: Manifest) -> None:
        """All files are there: add the manifest and give the checkpoint its name."""
        saving, final = self.saving(manifest.epoch), self.directory(manifest.epoch)
        with storing(final):
            with open_new(saving / MANIFEST_FILE) as file:
                file.write(manifest.to_bytes())
                file.flush()
                os.fsync(file.fileno())
            _sync(saving)
            saving.rename(final)
            _sync(self.path)
            self._point_to(final.name)

    def _point_to(self, name: str) -> None:
        """Move `latest`, for people; a resumed run looks for itself."""
        temporary = self.path / f".{LATEST}.tmp"
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(name)
        temporary.replace(self.path / LATEST)

    def prune(self) -> None:
        """Keep the newest ones; what was set aside goes once they are all newer."""
        kept = self.epochs()[:KEPT]
        for epoch in self.epochs()[KEPT:]:
            _delete(self.directory(epoch))
        if len(kept) == KEPT:
            for name in self.set_aside():
                if (epoch_of(name.removesuffix(_ASIDE)) or 0) < kept[-1]:
                    _delete(self.path / name)

    def drop(self, epoch: int) -> None:
        """Take away a checkpoint that did not become complete everywhere."""
        for path in (self.saving(epoch), self.directory(epoch)):
            shutil.rmtree(path, ignore_errors=True)
        with contextlib.suppress(OSError):  # it holds others, as a rule
            self.path.rmdir()

    def clear_unfinished(self) -> None:
        """Take away what a run that died left half written or half deleted."""
        for name in _names(self.path):
            if name.startswith((_SAVING, _DELETING)):
                shutil.rmtree(self.path / name, ignore_errors=True)

    def put_aside_after(self, epoch: int) -> list[str]:
        """Rename the checkpoints after an epoch, which a run that goes on from there would write anew."""
        renamed = []
        for later in self.epochs():
            if later > epoch:
                source = self.directory(later)
                target = source.with_name(source.name + _ASIDE)
                with storing(target):
                    _remove(target)
                    source.rename(target)
                renamed.append(target.name)
        if renamed:
            with storing(self.path):
                (self.path / LATEST).unlink(missing_ok=True)
                if epoch:
                    self._point_to(directory_name(epoch))
        return renamed


def _names(path: Path) -> list[str]:
    return sorted(entry.name for entry in path.iterdir()) if path.is_dir() else []


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _delete(directory: Path) -> None:
    """Under another name first: a run that dies meanwhile leaves nothing that looks damaged."""
    doomed = directory.with_name(_DELETING + directory.name)
    with contextlib.suppress(OSError):
        directory.rename(doomed)
        shutil.rmtree(doomed)


def _sync(directory: Path) -> None:
    """Flush a directory's entries to the disk."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
