"""Entry point: which command, and how it ends.

Exit codes: 0 done; 1 a defect of ours; 2 a mistake in what was given; 3 the numbers diverged; 4 the disk refused;
130 interrupted, with the work so far saved.
"""

from __future__ import annotations

import argparse
import platform
import sys
from collections.abc import Sequence

import numpy as np
import torch

from pdadmm.cli import evaluate, plan, predict, train
from pdadmm.errors import PdadmmError
from pdadmm.version import __version__

INTERRUPTED = 130


def versions() -> str:
    """What matters when a result is compared or a problem reported."""
    return (
        f"pdadmm {__version__} (torch {torch.__version__}, numpy {np.__version__}, Python {platform.python_version()})"
    )


def build_parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    parser = argparse.ArgumentParser(
        prog="pdadmm", description="Train deep fully connected networks without backpropagation, layer by layer."
    )
    parser.add_argument("--version", action="version", version=versions())
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for module in (train, evaluate, predict, plan):
        module.add_parser(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; a user's mistake is a line on standard error, never a traceback."""
    arguments = build_parser().parse_args(argv)
    try:
        code: int = arguments.run(arguments)
        return code
    except PdadmmError as error:
        print(f"pdadmm: error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("pdadmm: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()
        return 0
