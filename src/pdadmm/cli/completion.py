"""`pdadmm completion`: a script by which a shell completes commands, options and their values.

shtab makes it from the parser, so it knows what the program knows; and it is static, because starting Python and torch
at every press of Tab would take seconds.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import shtab

from pdadmm.cli.options import listed
from pdadmm.config import Config
from pdadmm.data.published import VARIANTS

SHELLS = ("bash", "zsh", "fish")
_PATHS = ("DIR", "FILE", "RUN", "MODEL", "INIT_FROM")
_NAMES = " ".join(("digits", *VARIANTS))
# Data is a named set or a file: a function of ours in each shell.
_PREAMBLE: Any = {  # by shell, which shtab takes though its types say otherwise
    "bash": f'_pdadmm_data() {{ compgen -W "{_NAMES}" -- "$1"; {shtab.FILE["bash"]} "$1"; }}',
    "zsh": f"_pdadmm_data() {{ compadd -- {_NAMES}; _files }}",
    "fish": f"function _pdadmm_data; printf '%s\\n' {_NAMES}; __fish_complete_path (commandline -ct); end",
}
_DATA = {"bash": "_pdadmm_data", "zsh": "_pdadmm_data", "fish": "(_pdadmm_data)"}


def add_parser(commands: Any, root: argparse.ArgumentParser) -> None:
    """Declare the command; `root` is the parser that it describes."""
    parser = commands.add_parser("completion", help="a script that completes this program's commands in a shell")
    parser.add_argument("shell", choices=SHELLS, help="the shell to print it for")
    parser.set_defaults(run=partial(run, root))


def run(root: argparse.ArgumentParser, arguments: argparse.Namespace) -> int:
    """Print the script."""
    print(script(root, arguments.shell))
    return 0


def script(root: argparse.ArgumentParser, shell: str) -> str:
    """The script for one of `SHELLS`; the parser is no longer fit for parsing afterwards."""
    for action in _actions(root):
        _say_what_may_follow(action)
    return shtab.complete(root, shell, preamble=_PREAMBLE)


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for child in action.choices.values():
                yield from _actions(child)


def _say_what_may_follow(action: argparse.Action) -> None:
    """Names as the action's choices, or its `complete` for files: what shtab reads."""
    field = Config.__dataclass_fields__.get(action.dest)
    if hasattr(action, "hidden_help"):
        action.help = action.hidden_help  # a flag that only --help-all shows is completed all the same
    if action.choices is None and action.option_strings and field is not None:
        action.choices = listed(field) or None
    if action.metavar == "NAME":
        action.choices = tuple(VARIANTS)
    elif action.metavar == "DATA":
        action.complete = _DATA  # type: ignore[attr-defined]
    elif action.type is Path or str(action.metavar).split("_OR_")[0] in _PATHS:
        action.complete = shtab.FILE  # type: ignore[attr-defined]
