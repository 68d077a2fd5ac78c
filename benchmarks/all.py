"""All questions, one after the other, and their answers in one table.

Each benchmark runs as a process of its own and prints what it always prints, which goes to stderr; the rows here are
taken from the last Markdown table of it. `--full` adds those that take long.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.common import Row, machine, table

ROOT = Path(__file__).resolve().parent.parent
COLUMNS = {"question": "", "case": "", "figure": "", "goal": ""}


@dataclass(frozen=True)
class Question:
    """A benchmark, and which columns of its table hold the case, the figure and the goal.

    Columns are named by how their headings begin. A goal may stand in a column, or be the same for all rows.
    """

    folder: str
    asks: str
    case: tuple[str, ...]
    figure: str
    goal: str = "goal"
    options: tuple[str, ...] = ()
    full: tuple[str, ...] | None = None  # options of the long form, where there is one
    long: bool = False

    def command(self, full: bool) -> list[str]:
        options = self.full if full and self.full is not None else self.options
        return [sys.executable, "-m", f"benchmarks.{self.folder}.main", *options]


QUESTIONS = (
    Question("roofline", "share of the roofline", ("size", "solver"), "share, median", full=("--full",)),
    Question("adam", "epoch, to Adam's", ("size", "method"), "to Adam"),
    Question("authors", "the authors' way, to it", ("size", "method"), "authors' way to it"),
    Question("scaling", "cost per unit", ("solver", "doubled"), "cost per unit"),
    Question("profile", "share of an exact epoch", ("phase", "what"), "share"),
    Question("profile", "share of a linearized epoch", ("phase", "what"), "share", options=("--solver", "linearized")),
    Question("memory", "peak, to the plan", ("solver", "workers", "storage"), "measured / plan", goal="0.9 to 1.1"),
    Question("speedup", "gain of two processes", ("ratio",), "measured"),
    Question(
        "messages", "epoch, to exact messages", ("hidden", "link, Mbit/s", "messages"), "to exact", goal="", long=True
    ),
    Question("digits", "train/test accuracy, epoch 100", ("method",), "100", goal="", full=("--seeds", "3")),
    Question("simulator", "simulated epoch, to measured", ("hidden", "workers"), "ratio", goal="0.9 to 1.1", long=True),
    Question("large", "peak of memory, SVHN's shape, 19 x 2400", ("storage",), "peak", long=True),
    Question("checkpoint", "time, to none saved", ("checkpoints",), "to none", goal="", long=True),
)


def tables(text: str) -> Iterator[list[list[str]]]:
    """The cells of every Markdown table, the headings first."""
    found: list[list[str]] = []
    for line in (*text.splitlines(), ""):
        if line.startswith("|"):
            found.append([cell.strip() for cell in line.strip("|").split("|")])
        elif found:
            yield [row for row in found if not set("".join(row)) <= {"-", ":"}]
            found = []


def answers(question: Question, text: str) -> list[Row]:
    """The rows of one benchmark's last table; a column that is not there leaves its place empty."""
    found = list(tables(text))
    if not found:
        return [{"question": question.asks, "figure": "no table"}]
    headings, *rows = found[-1]

    def cell(row: list[str], begins: str) -> str | None:
        return next((value for name, value in zip(headings, row, strict=False) if name.startswith(begins)), None)

    return [
        {
            "question": question.asks,
            "case": ", ".join(value for name in question.case if (value := cell(row, name))),
            "figure": cell(row, question.figure),
            "goal": (cell(row, question.goal) if question.goal == "goal" else question.goal) or None,
        }
        for row in rows
        if cell(row, question.figure) != ""
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="those that take long as well")
    parser.add_argument("--only", action="append", help="this folder alone; repeatable")
    given = parser.parse_args()
    rows: list[Row] = []
    failed = []
    for question in QUESTIONS:
        if (question.long and not given.full) or (given.only and question.folder not in given.only):
            continue
        command, began = question.command(given.full), time.monotonic()
        print(f"--- {' '.join(command[1:])}", file=sys.stderr, flush=True)
        found = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=4 * 3600, check=False)
        print(f"{found.stdout}\n({time.monotonic() - began:.0f} s)\n", file=sys.stderr, flush=True)
        if found.returncode != 0:
            failed.append(question.folder)
        rows += answers(question, found.stdout)
    print(f"{machine()}\n\n{table(COLUMNS, rows)}")
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
