"""`pdadmm report`: runs as a page to look at."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from pdadmm.cli.options import add_output_flags
from pdadmm.cli.progress import print_notes
from pdadmm.shell import say


def add_parser(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser("report", help="runs as one HTML page to look at")
    parser.add_argument("path", type=Path, metavar="RUN_OR_FOLDER", help="a run directory, or a folder with some below")
    add_output_flags(parser, "directory for report.html (default: RUN_OR_FOLDER itself)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Write the page and say where it is."""
    from pdadmm.report import write_report  # it takes a while to load

    report = write_report(arguments.path, arguments.out)
    if arguments.json:
        found = {
            "report": str(report.path),
            "runs": [
                {"run": str(entry.path), "status": entry.status, "epochs": len(entry.rows)} for entry in report.runs
            ],
            "experiments": [entry.result.experiment for entry in report.experiments],
            "problems": report.problems,
        }
        print(json.dumps(found))
        return 0
    print_notes(report.problems)
    what = f"{len(report.runs)} run{'' if len(report.runs) == 1 else 's'}"
    what += f" and {len(report.experiments)} experiments" if report.experiments else ""
    say(f"{report.path}: {what}")
    return 0
