"""When a run is saved, and what is written down of it besides its layers.

The run asks once an epoch. All processes decide alike: the first one's clock counts, and a thread that has not finished
anywhere holds up everywhere.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from pdadmm.checkpoint.manifest import HistoryMark, Manifest, Progress
from pdadmm.checkpoint.restore import Source
from pdadmm.checkpoint.saver import Layer, Saver
from pdadmm.config import Config
from pdadmm.version import __version__


@dataclass(frozen=True)
class Snapshot:
    """A run at the end of an epoch, as one process sees it; nothing in it is copied."""

    epoch: int
    progress: Progress
    layers: dict[int, Layer]
    rows: slice
    data: str
    num_samples: int


class Keeper:
    """Saves a run by epochs or minutes, and at its end."""

    def __init__(
        self, config: Config, saver: Saver, source: Source | None, history_mark: Callable[[], HistoryMark]
    ) -> None:
        self._config, self._saver, self._history_mark = config, saver, history_mark
        self.source = source
        self._asked_epoch = 0
        self._asked_time = time.monotonic()

    @property
    def saver(self) -> Saver:
        """What writes."""
        return self._saver

    def resumed(self, epoch: int) -> None:
        """The run goes on from a checkpoint."""
        self._asked_epoch = epoch
        self._saver.cost.last_epoch = epoch or None

    def is_due(self, epoch: int) -> bool:
        """Whether this process, the first one, finds that it is time."""
        every, minutes = self._config.checkpoint_every, self._config.checkpoint_minutes
        by_epochs = bool(every) and epoch - self._asked_epoch >= every
        return by_epochs or (bool(minutes) and time.monotonic() - self._asked_time >= 60 * minutes)

    def after_epoch(self, snapshot: Callable[[], Snapshot], due: bool, is_writing: bool, last: bool) -> None:
        """Complete what is written everywhere; save if it is due. At the last epoch, be done with it."""
        if self._saver.is_open and (due or last or not is_writing):
            self._saver.complete()
        if self._config.saves and (due or last):
            self._save(snapshot(), wait=last)
        if last:
            self.finish()

    def finish(self) -> None:
        """Complete what is under way, with all others."""
        if self._saver.is_open:
            self._saver.complete()

    def _save(self, now: Snapshot, wait: bool) -> None:
        self._asked_epoch, self._asked_time = now.epoch, time.monotonic()
        manifest = Manifest(
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
        self._saver.begin(manifest, now.layers, now.rows, wait)
