"""`pdadmm reproduce`: the paper's experiments, each regenerated and put beside the published values."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pdadmm.cli.options import add_output_flags
from pdadmm.config import MOST_THREADS
from pdadmm.errors import UserError
from pdadmm.shell import say

_NAMES = ("speedup-layers", "speedup-neurons", "convergence", "accuracy")
_SCALES = ("tiny", "small", "paper")
_OUT = Path("runs/reproduce")


def add_parser(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser("reproduce", help="the paper's experiments, beside the published values")
    parser.add_argument(
        "experiment", choices=(*_NAMES, "all"), metavar="EXPERIMENT", help=f"{', '.join(_NAMES)}, or all"
    )
    parser.add_argument(
        "--scale",
        choices=_SCALES,
        default="small",
        help="small takes minutes on two cores, paper is full size, tiny shows that all works (default: small)",
    )
    parser.add_argument("--data", nargs="+", metavar="NAME", help="some of the paper's data sets (default: all)")
    parser.add_argument(
        "--methods",
        nargs="+",
        metavar="NAME",
        help="accuracy: pdadmm, authors, gd, adadelta, adagrad, adam, dladmm, adam-128; convergence: paper, theory; "
        "speedups: exact, linearized (default: all but adam-128)",
    )
    parser.add_argument("--seeds", nargs="+", type=int, default=[0], metavar="N", help="of accuracy (default: 0)")
    parser.add_argument(
        "--threads",
        type=int,
        default=1,
        metavar="N",
        help="of a run; runs go side by side on the other cores (default: 1)",
    )
    parser.add_argument(
        "--curves", type=Path, metavar="DIR", help="accuracy: curves kept before, instead of their runs"
    )
    parser.add_argument("--table-only", action="store_true", help="run nothing; tables of finished runs")
    parser.add_argument("--quiet", action="store_true", help="show no progress")
    add_output_flags(parser, f"where runs and results go (default: {_OUT})")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Carry out one experiment or all; a run that failed is named, and its code is ours."""
    names = _names(arguments)
    # Only now: other commands need none of it.
    from pdadmm.experiments.experiment import SCALES, Settings
    from pdadmm.experiments.reproduce import reproduce
    from pdadmm.experiments.result import markdown

    settings = Settings(
        out=arguments.out or _OUT,
        scale=SCALES[arguments.scale],
        command=shlex.join(["pdadmm", *(part for part in arguments.argv if part != "--table-only")]),
        data=None if arguments.data is None else tuple(arguments.data),
        methods=None if arguments.methods is None else tuple(arguments.methods),
        seeds=tuple(dict.fromkeys(arguments.seeds)),
        curves=arguments.curves,
    )
    results, failures = reproduce(names, settings, arguments.threads, arguments.table_only, arguments.quiet)
    if arguments.json:
        found = {"out": str(settings.out), "experiments": [asdict(result) for result in results]}
        print(json.dumps({**found, "failed": [asdict(failure) for failure in failures]}))
    else:
        for result in results:
            for line in f"{markdown(result)}\nwritten to {settings.out / result.experiment}\n".split("\n"):
                say(line)
    for failure in failures:
        say(f"pdadmm: error: {failure}", sys.stderr)
    return failures[0].code if failures else 0


def _names(arguments: argparse.Namespace) -> tuple[str, ...]:
    """What was asked for, checked."""
    if not 1 <= arguments.threads <= MOST_THREADS:
        raise UserError(f"--threads must be from 1 to {MOST_THREADS}; got {arguments.threads}")
    if arguments.experiment == "all" and arguments.methods is not None:
        raise UserError("--methods is for one experiment, as they have different ones; got it with all")
    if arguments.curves is not None and not arguments.curves.is_dir():
        raise UserError(f"--curves must name a folder; got {arguments.curves}")
    if arguments.curves is not None and arguments.scale != "paper":
        raise UserError(f"--curves are of full size and go with --scale paper; got --scale {arguments.scale}")
    return _NAMES if arguments.experiment == "all" else (arguments.experiment,)
