"""Text for people: commands that they copy, and lines that hold names of files, columns or classes."""

from __future__ import annotations

import itertools
import os
import shlex
import sys
from pathlib import Path
from typing import IO


def printable(text: str) -> str:
    """Text whose control characters and marks of direction are spelled out, as \\x1b: a terminal would obey them."""
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


def say(line: str, file: IO[str] | None = None) -> None:
    """Print a line for people, on standard output unless another file is given; names in it are spelled out."""
    print(printable(line), file=file, flush=file is sys.stderr)


def beside(run: Path) -> Path:
    """A directory that is not there yet, for a run that takes the place of this one."""
    named = run if run.name not in ("", "..") else run.resolve()
    paths = (named.parent / f"{named.name or 'run'}-{number}" for number in itertools.count(2))
    return next(path for path in paths if not os.path.lexists(path))


def as_argument(path: Path) -> str:
    """As an argument that is not taken for a flag."""
    return f"./{path}" if str(path).startswith("-") else str(path)


def quoted(text: str) -> str:
    """For a shell; what cannot be printed is spelled out, as bash and zsh read it."""
    if text.isprintable():
        return shlex.quote(text)
    letters = (chr(byte) if 32 <= byte < 127 and byte not in b"\\'" else f"\\x{byte:02x}" for byte in os.fsencode(text))
    return f"$'{''.join(letters)}'"
