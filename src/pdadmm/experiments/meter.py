"""How far the work of some experiments is, and how long the rest will take: a line on standard error."""

from __future__ import annotations

import contextlib
import shutil
import sys
import time
from collections.abc import Mapping

LINE_SECONDS = 30.0  # between two lines, where there is no terminal and nothing else to say


class Meter:
    """Counts work that is done; the rate of this session's gives the time left."""

    def __init__(self, work: Mapping[str, float], quiet: bool) -> None:
        self._work = dict(work)
        self._share: dict[str, float] = {}
        self._before = 0.0
        self._quiet = quiet or sys.stderr is None  # closed by the shell
        self._began = self._last_line = time.monotonic()
        self._width = 0

    def skip(self, name: str, share: float = 1.0) -> None:
        """So much of a task was done by an earlier session, and says nothing of the rate."""
        self._share[name] = share
        self._before += share * self._work[name]

    def advance(self, name: str, share: float) -> None:
        """So much of a task is done by now."""
        self._share[name] = max(share, self._share.get(name, 0.0))

    def seconds_left(self) -> float | None:
        """None before there is anything to judge by."""
        done = sum(share * self._work[name] for name, share in self._share.items())
        left, fresh = sum(self._work.values()) - done, done - self._before
        elapsed = time.monotonic() - self._began
        return left * elapsed / fresh if fresh > 0 else None

    def show(self, doing: str, now: bool = False) -> None:
        """What is going on; on a terminal in one line that changes, elsewhere `now` or after a while."""
        if self._quiet:
            return
        done = sum(share >= 1 for share in self._share.values())
        line = f"{done} of {len(self._work)} done; {doing}{self._left()}"
        if sys.stderr.isatty():
            line = line[: shutil.get_terminal_size().columns - 1]
            self._write(f"\r{line.ljust(self._width)}")
            self._width = len(line)
        elif now or time.monotonic() - self._last_line >= LINE_SECONDS:
            self._last_line = time.monotonic()
            self._write(f"{line}\n")

    def say(self, text: str) -> None:
        """A line that stays."""
        if not self._quiet:
            ending = "\r" + " " * self._width + "\r" if self._width else ""
            self._write(f"{ending}{text}\n")

    def close(self) -> None:
        """Leave the terminal clean."""
        if self._width:
            self._write("\r" + " " * self._width + "\r")
        self._width = 0

    def _left(self) -> str:
        seconds = self.seconds_left()
        if seconds is None:
            return ""
        return f"; about {seconds / 60:.0f} min left" if seconds >= 90 else f"; about {seconds:.0f} s left"

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError):  # nobody reads on, which must not end the work
            sys.stderr.write(text)
            sys.stderr.flush()
