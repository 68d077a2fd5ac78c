"""Commands that people copy: names of files as a shell takes them."""

from __future__ import annotations

import itertools
import os
import shlex
from pathlib import Path


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
