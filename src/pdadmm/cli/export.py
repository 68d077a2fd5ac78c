"""`pdadmm export`: a trained model as a file for other programs, checked by running it."""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path
from typing import Any

from pdadmm.cli.options import add_output_flags
from pdadmm.data.arrays import Array
from pdadmm.errors import NetworkError, UserError
from pdadmm.export.check import FORMATS, check, random_features
from pdadmm.model import Model, load_model
from pdadmm.run import read_config
from pdadmm.rundir import CONFIG_FILE, make_directory, write_whole
from pdadmm.shell import say
from pdadmm.trainer import load_for


def add_parser(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser("export", help="a trained model as ONNX, or as torch.export's .pt2")
    parser.add_argument("model", type=Path, metavar="RUN", help="a run directory or a model.safetensors")
    parser.add_argument("--format", default="onnx", choices=tuple(FORMATS), help="default: onnx")
    add_output_flags(parser, "directory for the file (default: the run's)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Make the content of the file, run it, say how near it came, and write it."""
    model, kind = load_model(arguments.model), arguments.format
    content = FORMATS[kind][0](model)
    folder = arguments.out or (arguments.model if arguments.model.is_dir() else arguments.model.parent)
    path = folder / f"model.{kind}"
    X, source = _samples(arguments.model, model)
    found = check(model, kind, content, X)
    make_directory(folder)
    write_whole(path, content)
    if arguments.json:
        result = {"file": str(path), "format": kind, "bytes": len(content), "checked_on": source}
        print(json.dumps({**result, **dataclasses.asdict(found)}))
    else:
        ties = f" ({found.ties} between classes that tie)" if found.ties else ""
        say(f"{path}  {len(content)} bytes")
        say(
            f"run on {found.samples} samples ({source}): {found.equal} equal predictions{ties}, "
            f"largest difference of an output {found.largest_difference:.2g}"
        )
    return 0


def _samples(run: Path, model: Model) -> tuple[Array, str]:
    """The run's test part, else its training part, else random numbers; and how to call them."""
    random = f"random features, because {run} has no {CONFIG_FILE} that names its data"
    if (run / CONFIG_FILE).is_file():
        try:
            data = load_for(read_config(run))
            part, name = (data.train, "train") if data.test is None else (data.test, "test")
            if part.X.shape[1] == model.preprocessor.num_features:
                return part.X, f"{name} part of {data.name}"
            random = f"random features, because {data.name} has others now"
        except (UserError, NetworkError) as error:
            random = f"random features, because the run's data is not there: {error}"
    return random_features(model), random
