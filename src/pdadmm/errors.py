"""What can go wrong, sorted by whose turn it is to act.

Each error knows the exit code the command line ends with, so that no other place needs a table of them.
"""

import difflib
import json
from collections.abc import Iterable


def did_you_mean(text: str, known: Iterable[str]) -> str:
    """A clause with the known name that is nearest to a mistyped one, or nothing."""
    near = difflib.get_close_matches(text, list(known), n=1)
    return f" (did you mean {near[0]}?)" if near else ""


class PdadmmError(Exception):
    """Base of every error this package raises on purpose."""

    exit_code = 1
    everywhere = False  # raised on all processes of a run alike, so that one may speak for all

    def to_json(self) -> str:
        """A line for another process."""
        return json.dumps([type(self).__name__, str(self)])

    @staticmethod
    def from_json(line: str) -> "PdadmmError":
        """The error that another process told of."""
        name, message = json.loads(line)
        error: PdadmmError = globals()[name](message)
        return error


class UserError(PdadmmError, ValueError):
    """A mistake in what the user gave us; the message names the option, the rule and the value."""

    exit_code = 2


class DivergenceError(PdadmmError):
    """The numbers went wrong (NaN or infinity); the message names layer, variable and epoch."""

    exit_code = 3
    everywhere = True


class StorageError(PdadmmError):
    """The disk refused to take or give a file."""

    exit_code = 4


class LostWorkerError(PdadmmError):
    """Another process of the run died, hung or could not be reached; the message says during what."""

    exit_code = 5


class DamageError(PdadmmError):
    """A file of a run or of the data cache is not what it was written as, and no other can take its place."""

    exit_code = 6


class NetworkError(PdadmmError):
    """A file could not be fetched: no server was reached, or none gave it; the message names them."""

    exit_code = 7


class PdadmmWarning(UserWarning):
    """Something the user should know that does not stop the run."""
