"""`pdadmm plan`: what a run would take, before any work."""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
from typing import Any

from pdadmm.cli.options import add_config_flags, add_json_flag, config_from
from pdadmm.cli.progress import print_notes
from pdadmm.config import Config
from pdadmm.data import Dataset, Preprocessor
from pdadmm.errors import UserError
from pdadmm.growth import parse_schedule
from pdadmm.machine import available_memory, format_bytes
from pdadmm.math.losses import is_regression
from pdadmm.notation import format_hidden
from pdadmm.plan import Shape, check_room, place, plan_memory, plan_seconds
from pdadmm.storage import storage_of
from pdadmm.trainer import load_for

_SHAPE = ("samples", "features", "classes")


def add_parser(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser("plan", help="the memory a run will take, and whether it fits")
    add_shape_flags(parser)
    add_json_flag(parser)
    add_config_flags(parser)
    parser.set_defaults(run=run)


def add_shape_flags(parser: argparse.ArgumentParser) -> None:
    """The shape of a problem by hand."""
    shape = parser.add_argument_group("shape, where there is no data yet")
    shape.add_argument("--samples", type=int, metavar="N", help="training samples")
    shape.add_argument("--features", type=int, metavar="N", help="features")
    shape.add_argument("--classes", type=int, metavar="N", help="classes, or targets of a regression")
    shape.add_argument("--test-samples", type=int, default=0, metavar="N", help="test samples (default: 0)")


def run(arguments: argparse.Namespace) -> int:
    """Print the memory term by term; refuse, with the numbers, what cannot fit."""
    config = config_from(arguments).resolved()
    assert config.grow is not None
    parse_schedule(config.grow, len(config.hidden), config.epochs)
    shape, data = shape_of(arguments, config)
    placement, storage = place(config, shape), storage_of(config)
    seconds: float | None = plan_seconds(
        config, shape
    )  # whose trial has the matrix library take its buffers, which are counted then
    plan = plan_memory(config, shape, data)
    if storage.is_disk and data is not None:
        plan = dataclasses.replace(plan, disk=plan.disk + _bytes_split(config, data))
    free, fits = available_memory(), True
    try:
        check_room(config, plan, storage, shape)
    except UserError:
        fits = False
    seconds = seconds if fits else None
    if arguments.json:
        sizes = {"samples": shape.samples, "test_samples": shape.tests}
        sizes |= {"features": shape.features, "outputs": shape.outputs}
        found = {"memory": plan.to_mapping(), "available": free, "placement": str(placement), "epoch_seconds": seconds}
        print(json.dumps({**sizes, **found}))
    else:
        print(describe(config, shape))
        for name, size in plan.to_mapping().items():
            if size or name != "disk":
                print(f"  {name:<12} {format_bytes(size):>10}")
        if free is not None:
            print(f"  {'available':<12} {format_bytes(free):>10}")
        if fits:
            print(f"it fits; an epoch takes about {seconds:.3g} s here, by its operations")
        if config.workers > 1:
            print(f"layers of each worker {placement}")
    check_room(config, plan, storage, shape)
    return 0


def describe(config: Config, shape: Shape) -> str:
    """The network and its data in a line."""
    widths = format_hidden(config.hidden)
    return f"{shape.samples} samples of {shape.features} features, hidden {widths}, {shape.outputs} outputs"


def shape_of(arguments: argparse.Namespace, config: Config) -> tuple[Shape, Dataset | None]:
    """Given by hand, or that of the data."""
    given = {name: getattr(arguments, name) for name in _SHAPE}
    if all(value is None for value in given.values()):
        return _shape_of_data(config)
    for name, value in given.items():
        if value is None:
            raise UserError(f"--{name} is missing; give all of --samples, --features and --classes, or none of them")
        if value < 1:
            raise UserError(f"--{name} must be at least 1; got {value}")
    if arguments.test_samples < 0:
        raise UserError(f"--test-samples must not be negative; got {arguments.test_samples}")
    return Shape(arguments.samples, arguments.test_samples, arguments.features, arguments.classes), None


def _shape_of_data(config: Config) -> tuple[Shape, Dataset]:
    """That of the data which a configuration names."""
    # Held out, the test part of data that stays in a file would be written to the disk.
    data = load_for(dataclasses.replace(config, test_fraction=0.0) if config.storage == "disk" else config)
    print_notes(data.notes)
    samples, tests = len(data.train.X), len(data.test.X) if data.test else 0
    if config.storage == "disk" and data.test is None:
        tests = math.ceil(config.test_fraction * samples)
        samples -= tests
    outputs = Preprocessor.fit(data.train, "none", is_regression(config)).num_outputs
    return Shape(samples, tests, data.train.X.shape[1], outputs), data


def _bytes_split(config: Config, data: Dataset) -> int:
    """What a training and a test part take that are made of one, on every process with the data."""
    is_split = data.test is None and config.test_fraction > 0
    return data.train.X.nbytes * config.shards * min(2, config.workers) if is_split else 0
