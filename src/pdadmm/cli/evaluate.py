"""`pdadmm evaluate`: how good a model is on data with known targets."""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path
from typing import Any

from pdadmm.cli.options import add_json_flag
from pdadmm.cli.progress import print_notes
from pdadmm.data import Dataset, load_data
from pdadmm.data.arrays import generated_names, shorten
from pdadmm.errors import UserError
from pdadmm.model import Model, load_model
from pdadmm.run import read_config
from pdadmm.rundir import CONFIG_FILE
from pdadmm.shell import say
from pdadmm.trainer import load_for


def add_parser(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser("evaluate", help="accuracy (or R²) of a trained model")
    parser.add_argument("model", type=Path, metavar="RUN", help="a run directory or a model.safetensors")
    parser.add_argument(
        "--data", metavar="DATA", help="data to evaluate on (default: the run's own train and test parts)"
    )
    parser.add_argument(
        "--target",
        metavar="COLUMN",
        help="target column of a .csv or .parquet file (default: the run's, else the last)",
    )
    add_json_flag(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print one score a part."""
    model = load_model(arguments.model)
    data = _data(arguments, model)
    print_notes(data.notes)
    whole = arguments.data is not None and data.test is None
    parts = {"data": data.train} if whole else {"train": data.train, "test": data.test}
    columns = _columns(data, model.preprocessor.feature_names)
    scores: dict[str, float] = {}
    samples: dict[str, int] = {}
    for name, part in parts.items():
        if part is not None:
            chosen = part if columns is None else dataclasses.replace(part, X=part.X[:, columns])
            scores |= {f"{name}_{metric}": value for metric, value in model.evaluate(chosen).items()}
            samples[f"{name}_samples"] = len(part.X)
    if arguments.json:
        print(json.dumps({"data": data.name, **scores, **samples}))
    else:
        for (name, value), count in zip(scores.items(), samples.values(), strict=True):
            say(f"{name} {value:.4f}  ({count} samples of {data.name})")
    return 0


def _data(arguments: argparse.Namespace, model: Model) -> Dataset:
    """The named data whole, or the run's own data split as the run split it; the target is the run's either way."""
    config = read_config(arguments.model) if (arguments.model / CONFIG_FILE).is_file() else None
    target = arguments.target or (config.target if config else None)
    if arguments.data is not None:
        # Nothing is held out: all samples are evaluated.
        return load_data(
            arguments.data,
            target=target if Path(arguments.data).suffix.lower() in (".csv", ".parquet") else arguments.target,
            test_fraction=0.0,
            regression=model.preprocessor.regression,
            one_class_allowed=True,
        )
    if config is None:
        raise UserError(f"--data is needed, because {arguments.model} has no {CONFIG_FILE} that names it")
    return load_for(dataclasses.replace(config, target=target))


def _columns(data: Dataset, wanted: tuple[str, ...]) -> list[int] | None:
    """Where the model's features are in the data: by name as in `predict`, or None for the order they are in."""
    place = {name: column for column, name in enumerate(data.feature_names)}
    missing = [name for name in wanted if name not in place]
    if not missing:
        return [place[name] for name in wanted]
    if generated_names(len(wanted)) == wanted or generated_names(len(place)) == data.feature_names:
        return None
    raise UserError(
        f"{data.name} must have the {len(wanted)} features of the model; it lacks {shorten(missing)} "
        f"(is --target right?)"
    )
