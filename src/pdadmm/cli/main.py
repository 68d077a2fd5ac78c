"""Entry point: which command, and how it ends.

Exit codes: 0 done; 1 a defect of ours; 2 a mistake in what was given; 3 the numbers diverged; 4 the disk refused;
5 a process of the run was lost; 6 a file of a run or of the data cache is damaged; 7 the network failed; 130 stopped by
Ctrl-C, 143 by SIGTERM, after a whole iteration and with its model saved.
"""

from __future__ import annotations

import argparse
import os
import platform
import signal
import sys
from collections.abc import Sequence
from importlib import metadata
from typing import Any, NoReturn

import numpy as np
import torch

from pdadmm.cli import (
    completion,
    data,
    evaluate,
    export,
    inspect,
    plan,
    predict,
    report,
    reproduce,
    simulate,
    train,
)
from pdadmm.cli.options import what_became_of
from pdadmm.engine.launch import is_launched, is_worker, own_rank
from pdadmm.errors import LostWorkerError, PdadmmError, StorageError, UserError, did_you_mean
from pdadmm.shell import say
from pdadmm.version import __version__

LIBRARIES = ("scikit-learn", "scipy", "safetensors", "polars", "altair", "tensorboard", "onnx", "onnxruntime")
"""Those whose versions are told; the last four come with extras."""


class _Parser(argparse.ArgumentParser):
    """Mistakes in the flags end like all others: one line, without pages of usage before it."""

    def __init__(self, **options: Any) -> None:
        # A short form of a flag would change its meaning with the next flag that begins alike.
        super().__init__(**options, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}; see {self.prog} --help")

    def parse_known_args(self, args=None, namespace=None):  # type: ignore[no-untyped-def]
        """Refuse unknown flags here, in the parser of their command, which knows what may have been meant."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            if any(action.dest == "set" for action in self._actions) and (answer := what_became_of(unknown[0])):
                self.error(answer)
            flags = [flag for action in self._actions for flag in action.option_strings]
            meant = did_you_mean(unknown[0].partition("=")[0], flags)
            self.error(f"unrecognized arguments: {' '.join(unknown)}{meant}")
        return found, unknown

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        needed = {int: "a whole number", float: "a number"}.get(action.type)  # type: ignore[call-overload]
        try:
            return super()._get_value(action, arg_string)
        except argparse.ArgumentError:
            if needed is None:
                raise
            raise argparse.ArgumentError(action, f"must be {needed}; got {arg_string!r}") from None

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            meant = did_you_mean(str(value), map(str, action.choices or ()))
            raise argparse.ArgumentError(action, f"{error.message}{meant}") from None


def versions() -> str:
    """What matters when a result is compared or a problem reported; libraries are looked up, not loaded."""
    own = (
        f"pdadmm {__version__} (torch {torch.__version__}, numpy {np.__version__}, Python {platform.python_version()})"
    )
    return f"{own}\nwith {', '.join(f'{name} {_installed(name)}' for name in LIBRARIES)}"


def _installed(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"


class _Version(argparse.Action):
    """`--version`: looked up only when it is asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        print(versions())
        parser.exit()


def build_parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    parser = _Parser(
        prog="pdadmm", description="Train deep fully connected networks without backpropagation, layer by layer."
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="show versions of what matters, and exit")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for module in (train, inspect, evaluate, predict, export, report, plan, simulate, data, reproduce):
        module.add_parser(commands)
    completion.add_parser(commands, parser)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; a user's mistake is a line on standard error, never a traceback."""
    try:
        arguments = build_parser().parse_args(argv)
        arguments.argv = list(sys.argv[1:] if argv is None else argv)
        code: int = arguments.run(arguments)
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except PdadmmError as error:
        rank = own_rank()
        if isinstance(error, LostWorkerError) and is_launched():
            # What became of the run is the launcher's to say.
            say(f"pdadmm: rank {rank}: {error}", sys.stderr)
        elif not (rank and error.everywhere):
            _failed(f"rank {rank}: {error}" if rank else str(error), error.exit_code)
        if is_worker():
            # Connections to processes that are ending too cannot be taken down in order; trying would abort.
            os._exit(error.exit_code)
        return error.exit_code
    except KeyboardInterrupt as error:
        terminated = isinstance(error, train.Terminated)
        print(f"pdadmm: {'terminated' if terminated else 'interrupted'}", file=sys.stderr)
        return 128 + (signal.SIGTERM if terminated else signal.SIGINT)
    except BrokenPipeError:
        _discard_output()
        return 0
    except OSError as error:
        # Files have errors of their own, so this is most likely standard output.
        _discard_output()
        return _failed(f"cannot use {error.filename or 'the output'}: {error.strerror}", StorageError.exit_code)


def _failed(message: str, code: int) -> int:
    say(f"pdadmm: error: {' '.join(message.splitlines())}", sys.stderr)
    return code


def _discard_output() -> None:
    """Else Python would try once more, and complain, when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
