"""`pdadmm predict`: labels, values or probabilities for samples without targets, of files of any size.

Samples are read, predicted and written a block at a time, so memory does not grow with the file; JSON is written at
the end. With `--out` the file appears whole or not at all; of CSV on standard output what was predicted before a bad
row is there already. Names of
classes that a spreadsheet would run as a formula have a quotation mark before them in CSV, unless `--raw` is given.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import itertools
import json
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

from pdadmm.cli.options import add_output_flags
from pdadmm.cli.progress import print_notes
from pdadmm.data import Stream, stream_samples
from pdadmm.model import Model, load_model
from pdadmm.rundir import writing_whole
from pdadmm.shell import printable, say

PREDICTIONS_FILE = "predictions.csv"

# A full-width sign is a sign to a spreadsheet, too.
_FORMULA = tuple("=+-@\t\r\n＝＋－＠")
_NUMBER = re.compile(r"[+-](\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)

Block = tuple[list[Any], list[list[float]]]
"""Predictions, and probabilities where they are asked for."""


def add_parser(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser("predict", help="predictions of a trained model")
    parser.add_argument("model", type=Path, metavar="RUN", help="a run directory or a model.safetensors")
    parser.add_argument(
        "--data", required=True, metavar="DATA", help=".npz (X, else X_test), .csv, .parquet, or a name (its test part)"
    )
    parser.add_argument("--target", metavar="COLUMN", help="a column to leave out, such as the target's")
    parser.add_argument("--proba", "--probabilities", action="store_true", help="a probability for each class as well")
    parser.add_argument(
        "--raw", action="store_true", help="CSV: names of classes as they are, also those that a spreadsheet would run"
    )
    add_output_flags(parser, f"directory for {PREDICTIONS_FILE} (default: standard output)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Write one line a sample."""
    model = load_model(arguments.model)
    if arguments.proba:
        model.check_classifies()
    samples = stream_samples(arguments.data, model.preprocessor.feature_names, target=arguments.target)
    print_notes(samples.notes)
    blocks: Iterator[Block] = _predicted(model, samples, arguments.proba)
    # What is wrong with the first samples is found before anything is written.
    blocks = itertools.chain([next(blocks, ([], []))], blocks)
    path = None
    if arguments.out is not None:
        path = arguments.out / PREDICTIONS_FILE
        path = path.with_suffix(".json") if arguments.json else path
    with contextlib.nullcontext(sys.stdout) if path is None else writing_whole(path) as file:
        if arguments.json:
            count = _write_json(file, blocks, arguments.proba)
        else:
            header, names = _header(model, arguments.proba), {} if arguments.raw else _harmless(model)
            count = _write_csv(file, header, blocks, arguments.proba, names)
    if path is not None:
        result = {"file": str(path), "predictions": count}
        say(json.dumps(result) if arguments.json else f"{path}: {count} predictions")
    return 0


class _Visible:
    """A terminal that is told of control characters without obeying them."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def write(self, line: str) -> int:
        return self._file.write(printable(line.removesuffix("\n")) + "\n")


def _predicted(model: Model, samples: Stream, proba: bool) -> Iterator[Block]:
    start = 0
    for X in samples.blocks:
        z = model.outputs(X, lambda row, start=start: samples.row_name(start + row))  # type: ignore[misc]
        yield model.predictions(z).tolist(), model.probabilities(z).tolist() if proba else []
        start += len(X)


def _header(model: Model, proba: bool) -> list[str]:
    preprocessor = model.preprocessor
    columns = 1 if not preprocessor.regression or preprocessor.target_is_1d else preprocessor.num_outputs
    names = ["prediction"] if columns == 1 else [f"prediction_{i}" for i in range(columns)]
    if proba:
        assert preprocessor.classes is not None
        names += [f"probability_{label}" for label in preprocessor.classes]
    return names


def _harmless(model: Model) -> dict[str, str]:
    """What to write for the names of classes that a spreadsheet takes for a formula, as OWASP advises; numbers stay."""
    classes = model.preprocessor.classes
    names = [name for name in ([] if classes is None else classes.tolist()) if isinstance(name, str)]
    return {name: f"'{name}" for name in names if name.startswith(_FORMULA) and not _NUMBER.fullmatch(name)}


def _write_csv(file: IO[str], header: list[str], blocks: Iterator[Block], proba: bool, names: dict[str, str]) -> int:
    """A line a sample, with other names for some classes; returns how many."""
    target = _Visible(file) if file.isatty() else file
    # A text with a quotation mark before it is quoted as well, which needs all texts to be quoted.
    writer = csv.writer(target, quoting=csv.QUOTE_NONNUMERIC if names else csv.QUOTE_MINIMAL, lineterminator="\n")
    count = 0
    writer.writerow(header)
    for predictions, probabilities in blocks:
        lines = (line if isinstance(line, list) else [names.get(line, line)] for line in predictions)
        if proba:
            lines = ([*line, *row] for line, row in zip(lines, probabilities, strict=True))
        writer.writerows(lines)
        count += len(predictions)
    return count


def _write_json(file: IO[str], blocks: Iterable[Block], proba: bool) -> int:
    """One object, held whole until it is written; returns how many predictions it has."""
    found: dict[str, list[Any]] = {"predictions": [], **({"probabilities": []} if proba else {})}
    for block in blocks:
        for values, more in zip(found.values(), block, strict=False):
            values += more
    file.write(json.dumps(found) + "\n")
    return len(found["predictions"])
