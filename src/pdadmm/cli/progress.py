"""What a person sees while a run goes on: a bar on a terminal, lines elsewhere, nothing with --quiet."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterable
from typing import Any

from pdadmm.history import Row
from pdadmm.machine import format_bytes
from pdadmm.shell import printable, say

LINE_SECONDS = 2.0  # at most one line in this time, where there is no terminal


class _Meter:
    """A bar, where standard error is a terminal, and notes beside it."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet or sys.stderr is None  # closed by the shell
        self._bar: Any = None

    def _begin_bar(self, **options: Any) -> None:
        if not self._quiet and sys.stderr.isatty():
            from tqdm import tqdm

            self._bar = tqdm(dynamic_ncols=True, file=sys.stderr, **options)

    def note(self, text: str) -> None:
        """A line that stays."""
        if self._bar is not None:
            self._bar.write(printable(f"note: {text}"), file=sys.stderr)
        elif not self._quiet:
            _print(f"note: {text}")

    def close(self) -> None:
        """Leave the terminal clean."""
        if self._bar is not None:
            self._bar.close()


class Progress(_Meter):
    """Shows the rows of a run."""

    def __init__(self, epochs: int, quiet: bool) -> None:
        super().__init__(quiet)
        self._epochs = epochs
        self._began = time.monotonic()
        self._last_line = 0.0
        self._first = 0
        self._seen: Row = {}
        self._begin_bar(total=epochs, unit="epoch")

    def row(self, row: Row) -> None:
        """Show a new row; scores that it does not have are those of the last one that did."""
        if self._quiet:
            return
        if not self._seen:  # a run that is resumed begins later
            self._first = row["epoch"] - 1
            if self._bar is not None:
                self._bar.update(self._first)
                self._bar.initial = self._first
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

    def warn(self, text: str) -> None:
        """A line that is shown with --quiet too."""
        if self._quiet:
            _print(f"warning: {text}")
        else:
            self.note(text)

    def _text(self) -> str:
        row = self._seen
        names = [name for name in ("test_accuracy", "train_accuracy", "test_r2", "train_r2") if name in row]
        parts = [f"{name.replace('_accuracy', '').replace('_', ' ')} {row[name]:.4f}" for name in names]
        parts.append(f"objective {row['objective']:.4g}")
        parts += [f"residual {row['residual']:.3g}"] if "residual" in row else []
        parts.append(f"layers {row['layers']}")
        return "  ".join(parts)


class FetchProgress(_Meter):
    """Shows the files that come."""

    _name = ""

    def show(self, name: str, done: int, size: int) -> None:
        """So many bytes of a file are here."""
        if name != self._name:
            self._name = name
            self.close()
            self._begin_bar(total=size, unit="B", unit_scale=True, desc=name)
            if self._bar is None and not self._quiet:
                _print(f"fetching {name} ({format_bytes(size)})")
        if self._bar is not None:
            self._bar.update(done - self._bar.n)


def print_notes(notes: Iterable[str]) -> None:
    """For commands without progress."""
    for note in notes:
        _print(f"note: {note}")


def _print(line: str) -> None:
    if sys.stderr is not None:
        with contextlib.suppress(OSError):  # nobody reads on, which must not end the run
            say(line, sys.stderr)
