"""`pdadmm predict`: labels, values or probabilities for samples without targets, of files of any size.

Samples are read, predicted and written a block at a time, so memory does not grow with the file. With `--out` the
file appears whole or not at all; on standard output what was predicted before a bad row is there already.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from pdadmm.cli.options import add_output_flags
from pdadmm.cli.progress import print_notes
from pdadmm.data import Stream, stream_samples
from pdadmm.model import Model, load_model
from pdadmm.rundir import writing_whole

PREDICTIONS_FILE = "predictions.csv"

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
    add_output_flags(parser, f"directory for {PREDICTIONS_FILE} (default: standard output)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Write one line a sample."""
    model = load_model(arguments.model)
    if arguments.proba:
        model.check_classifies()
    samples = stream_samples(arguments.data, model.preprocessor.feature_names, target=arguments.target)
    print_notes(samples.notes)
    blocks = _predicted(model, samples, arguments.proba)
    first = next(blocks, ([], []))  # what is wrong with the first samples is found before anything is written
    path = None
    if arguments.out is not None:
        path = arguments.out / PREDICTIONS_FILE
        path = path.with_suffix(".json") if arguments.json else path
    with contextlib.nullcontext(sys.stdout) if path is None else writing_whole(path) as file:
        if arguments.json:
            count = _write_json(file, _with(first, blocks), arguments.proba)
        else:
            count = _write_csv(file, _header(model, arguments.proba), _with(first, blocks), arguments.proba)
    if path is not None:
        result = {"file": str(path), "predictions": count}
        print(json.dumps(result) if arguments.json else f"{path}: {count} predictions")
    return 0


def _predicted(model: Model, samples: Stream, proba: bool) -> Iterator[Block]:
    start = 0
    for X in samples.blocks:
        z = model.outputs(X, lambda row, start=start: samples.row_name(start + row))  # type: ignore[misc]
        yield model.predictions(z).tolist(), model.probabilities(z).tolist() if proba else []
        start += len(X)


def _with(first: Block, others: Iterator[Block]) -> Iterator[Block]:
    yield first
    yield from others


def _header(model: Model, proba: bool) -> list[str]:
    preprocessor = model.preprocessor
    columns = 1 if not preprocessor.regression or preprocessor.target_is_1d else preprocessor.num_outputs
    names = ["prediction"] if columns == 1 else [f"prediction_{i}" for i in range(columns)]
    if proba:
        assert preprocessor.classes is not None
        names += [f"probability_{label}" for label in preprocessor.classes]
    return names


def _write_csv(file: IO[str], header: list[str], blocks: Iterator[Block], proba: bool) -> int:
    """A line a sample; returns how many."""
    count, writer = 0, csv.writer(file, lineterminator="\n")
    writer.writerow(header)
    for predictions, probabilities in blocks:
        lines = (line if isinstance(line, list) else [line] for line in predictions)
        if proba:
            lines = ([*line, *row] for line, row in zip(lines, probabilities, strict=True))
        writer.writerows(lines)
        count += len(predictions)
    return count


def _write_json(file: IO[str], blocks: Iterator[Block], proba: bool) -> int:
    """One object; probabilities wait in a temporary file until all predictions are written. Returns how many."""
    with tempfile.TemporaryFile("w+", encoding="utf-8") as waiting:
        file.write('{"predictions": [')
        count = 0
        for predictions, probabilities in blocks:
            for target, values in ((file, predictions), (waiting, probabilities)):
                if values:
                    target.write(", " if count else "")
                    target.write(json.dumps(values)[1:-1])
            count += len(predictions)
        if proba:
            file.write('], "probabilities": [')
            waiting.seek(0)
            shutil.copyfileobj(waiting, file)
        file.write("]}\n")
    return count
