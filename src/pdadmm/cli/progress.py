"""What a person sees while a run goes on: a bar on a terminal, lines elsewhere, nothing with --quiet."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterable
from typing import Any

from pdadmm.history import Row
from pdadmm.machine import format_bytes

LINE_SECONDS = 2.0  # at most one line in this time, where there is no terminal


class Progress:
    """Shows rows on standard error."""

    def __init__(self, epochs: int, quiet: bool) -> None:
        self._epochs = epochs
        self._quiet = quiet or sys.stderr is None  # closed by the shell
        self._began = time.monotonic()
        self._last_line = 0.0
        self._first = 0
        self._seen: Row = {}
        self._bar: Any = None
        if not self._quiet and sys.stderr.isatty():
            from tqdm import tqdm

            self._bar = tqdm(total=epochs, unit="epoch", dynamic_ncols=True, file=sys.stderr)

    def resume(self, epoch: int, history_bytes: int) -> list[Row]:
        """The run goes on after an epoch; the rows before it are not shown again."""
        self._first = epoch
        if self._bar is not None:
            self._bar.update(epoch)
            self._bar.initial = epoch
        self.note(f"going on after epoch {epoch}")
        return []

    def row(self, row: Row) -> None:
        """Show a new row; scores that it does not have are those of the last one that did."""
        if self._quiet:
            return
        self._seen |= row
        if self._bar is not None:
            self._bar.set_postfix_str(self._text(), refresh=False)
            self._bar.update()
            return
        now = time.monotonic()
        done, left = row["epoch"] - self._first, self._epochs - row["epoch"]
        if row["epoch"] in (1, self._epochs) or now - self._last_line >= LINE_SECONDS:
            self._last_line = now
            seconds = (now - self._began) / done * left
            _print(f"epoch {row['epoch']}/{self._epochs}  {self._text()}  {seconds:.0f} s left")

    def note(self, text: str) -> None:
        """A line that stays."""
        if self._quiet:
            return
        if self._bar is not None:
            self._bar.write(f"note: {text}", file=sys.stderr)
        else:
            _print(f"note: {text}")

    def warn(self, text: str) -> None:
        """A line that is shown with --quiet too."""
        if self._quiet and sys.stderr is not None:
            _print(f"warning: {text}")
        else:
            self.note(text)

    def close(self) -> None:
        """Leave the terminal clean."""
        if self._bar is not None:
            self._bar.close()

    def _text(self) -> str:
        row = self._seen
        names = [name for name in ("test_accuracy", "train_accuracy", "test_r2", "train_r2") if name in row]
        parts = [f"{name.replace('_accuracy', '').replace('_', ' ')} {row[name]:.4f}" for name in names]
        parts.append(f"objective {row['objective']:.4g}")
        parts += [f"residual {row['residual']:.3g}"] if "residual" in row else []
        parts.append(f"layers {row['layers']}")
        return "  ".join(parts)


class FetchProgress:
    """Shows the files that come, on standard error."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet or sys.stderr is None
        self._name = ""
        self._bar: Any = None

    def show(self, name: str, done: int, size: int) -> None:
        """So many bytes of a file are here."""
        if self._quiet:
            return
        if sys.stderr.isatty():
            if name != self._name:
                self._begin_bar(name, size)
            self._bar.update(done - self._bar.n)
        elif name != self._name:
            _print(f"fetching {name} ({format_bytes(size)})")
        self._name = name

    def _begin_bar(self, name: str, size: int) -> None:
        from tqdm import tqdm

        self.close()
        self._bar = tqdm(total=size, unit="B", unit_scale=True, desc=name, dynamic_ncols=True, file=sys.stderr)

    def note(self, text: str) -> None:
        """A line that stays."""
        if self._bar is not None:
            self._bar.write(f"note: {text}", file=sys.stderr)
        elif not self._quiet:
            _print(f"note: {text}")

    def close(self) -> None:
        """Leave the terminal clean."""
        if self._bar is not None:
            self._bar.close()


def print_notes(notes: Iterable[str]) -> None:
    """For commands without progress."""
    for note in notes:
        if sys.stderr is not None:
            _print(f"note: {note}")


def _print(line: str) -> None:
    with contextlib.suppress(OSError):  # nobody reads on, which must not end the run
        print(line, file=sys.stderr, flush=True)
