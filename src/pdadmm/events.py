"""Event files for TensorBoard, with the series of the history (needs the `tensorboard` extra).

A number is a series by the name of its key; of a list each entry is one: `residuals/3` is that of the third boundary,
`workers/2/wait` that of the second process.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pdadmm.errors import UserError
from pdadmm.history import Row
from pdadmm.rundir import storing

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

SPENT = ("compute", "wait", "send")
"""What the numbers of a process are in the row's `workers`."""


def check_installed() -> None:
    """Refuse event files where they could not be written."""
    try:
        import torch.utils.tensorboard  # noqa: F401
    except ImportError:
        raise UserError(
            "tensorboard must be off where TensorBoard is not installed; got on (pip install 'pdadmm[tensorboard]')"
        ) from None


class EventWriter:
    """Writes rows as they come; each is on its way to the disk before the next is made.

    `before` are the rows of a run that is resumed. Where the folder has event files already, what they hold of later
    epochs is declared void; where it has none, the rows are written first.
    """

    def __init__(self, folder: Path, before: Sequence[Row] = ()) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._folder = folder
        has_files = any(folder.glob("events.out.tfevents.*"))
        with storing(folder):
            next_epoch = before[-1]["epoch"] + 1 if before and has_files else 1
            self._writer: SummaryWriter = SummaryWriter(str(folder), purge_step=next_epoch)
        for row in () if has_files else before:
            self.write(row)

    def write(self, row: Row) -> None:
        """Add a row's numbers."""
        with storing(self._folder):
            for tag, value in series(row):
                self._writer.add_scalar(tag, value, row["epoch"])
            self._writer.flush()

    def close(self) -> None:
        """Nothing more will come."""
        with storing(self._folder):
            self._writer.close()


def series(row: Row) -> Iterator[tuple[str, float]]:
    """The names and values of all numbers in a row, but for the epoch that they belong to."""
    for key, value in row.items():
        if key == "workers":
            for number, times in enumerate(value, start=1):
                yield from ((f"{key}/{number}/{name}", time) for name, time in zip(SPENT, times, strict=True))
        elif isinstance(value, list):
            yield from ((f"{key}/{number}", entry) for number, entry in enumerate(value, start=1))
        elif key != "epoch" and isinstance(value, int | float):
            yield key, float(value)
