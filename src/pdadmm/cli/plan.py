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
    seconds = plan_seconds(config, shape)  # first, for the matrix library takes its buffers then, which are counted
    plan = plan_memory(config, shape, data)
    if storage.is_disk and data is not None and data.test is None and shape.tests:  # the two parts will be copies
        parts = data.train.X.nbytes * config.shards * min(2, config.workers)
        plan = dataclasses.replace(plan, disk=plan.disk + parts)
    free = available_memory()
    if arguments.json:
        sizes = {"samples": shape.samples, "test_samples": shape.tests}
        sizes |= {"features": shape.features, "outputs": shape.outputs}
        found = {"memory": plan.to_mapping(), "available": free, "placement": str(placement)}
        print(json.dumps({**sizes, **found, "worker_memory": plan.workers, "epoch_seconds": seconds}))
    else:
        print(describe(config, shape))
        for name, size in [*plan.to_mapping().items(), ("available", free)]:
            if size or name not in ("disk", "available"):
                print(f"  {name:<12} {format_bytes(size or 0):>10}")
        if config.workers > 1:
            each = ", ".join(map(format_bytes, plan.workers))
            print(f"layers of each worker {placement}; memory of each, beside its program: {each}")
    check_room(config, plan, storage)
    if not arguments.json:
        print(f"it fits; an epoch takes about {seconds:.3g} s here, by its operations")
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
    """That of the data which a configuration names; it is read, and no test part is held out."""
    data = load_for(dataclasses.replace(config, test_fraction=0.0))
    print_notes(data.notes)
    samples, tests = len(data.train.X), len(data.test.X) if data.test else 0
    if data.test is None:
        tests = math.ceil(config.test_fraction * samples)
        samples -= tests
    outputs = Preprocessor.fit(data.train, "none", is_regression(config)).num_outputs
    return Shape(samples, tests, data.train.X.shape[1], outputs), data
