"""`pdadmm predict`: labels, values or probabilities for samples without targets."""

from __future__ import annotations

import argparse
import csv
import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pdadmm.cli.options import add_output_flags
from pdadmm.cli.progress import print_notes
from pdadmm.data import load_features
from pdadmm.model import Model, load_model
from pdadmm.rundir import make_directory, write_whole

PREDICTIONS_FILE = "predictions.csv"


def add_parser(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser("predict", help="predictions of a trained model")
    parser.add_argument("model", type=Path, metavar="RUN", help="a run directory or a model.safetensors")
    parser.add_argument(
        "--data", required=True, metavar="DATA", help=".npz (X, else X_test), .csv, .parquet, or a name (its test part)"
    )
    parser.add_argument("--target", metavar="COLUMN", help="a column to leave out, such as the target's")
    parser.add_argument("--proba", action="store_true", help="a probability for each class as well")
    add_output_flags(parser, f"directory for {PREDICTIONS_FILE} (default: standard output)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Write one line a sample."""
    model = load_model(arguments.model)
    table = load_features(arguments.data, model.preprocessor.feature_names, target=arguments.target)
    print_notes(table.notes)
    predictions = model.predict(table.X)
    probabilities = model.predict_proba(table.X) if arguments.proba else None
    if arguments.json:
        result: dict[str, Any] = {"predictions": predictions.tolist()}
        if probabilities is not None:
            result["probabilities"] = probabilities.tolist()
        text = json.dumps(result) + "\n"
    else:
        text = _csv(_header(model, predictions.ndim, arguments.proba), _lines(predictions, probabilities))
    if arguments.out is None:
        sys.stdout.write(text)
        return 0
    path = arguments.out / PREDICTIONS_FILE
    make_directory(arguments.out)
    write_whole(path.with_suffix(".json") if arguments.json else path, text.encode())
    return 0


def _header(model: Model, dimensions: int, proba: bool) -> list[str]:
    columns = model.preprocessor.num_outputs if dimensions > 1 else 1
    names = ["prediction"] if columns == 1 else [f"prediction_{i}" for i in range(columns)]
    if proba:
        assert model.preprocessor.classes is not None
        names += [f"probability_{label}" for label in model.preprocessor.classes]
    return names


def _lines(predictions: Any, probabilities: Any) -> Iterator[list[Any]]:
    for index, prediction in enumerate(predictions.tolist()):
        line = prediction if isinstance(prediction, list) else [prediction]
        yield [*line, *(probabilities[index].tolist() if probabilities is not None else [])]


def _csv(header: list[str], lines: Iterator[list[Any]]) -> str:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(lines)
    return buffer.getvalue()
