"""`pdadmm plan`: what a run would take, before any work."""

from __future__ import annotations

import argparse
import json
from typing import Any

from pdadmm.cli.options import add_config_flags, add_json_flag, config_from
from pdadmm.config import Config, format_hidden
from pdadmm.data import Preprocessor
from pdadmm.engine.estimate import ITERATIONS
from pdadmm.errors import UserError
from pdadmm.growth import parse_schedule
from pdadmm.machine import available_memory
from pdadmm.math.losses import is_regression
from pdadmm.plan import Shape, check_memory, format_bytes, place, plan_memory, plan_time
from pdadmm.trainer import load_for

_SHAPE = ("samples", "features", "classes")


def add_parser(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser("plan", help="the memory a run will take, and whether it fits")
    shape = parser.add_argument_group("shape, where there is no data yet")
    shape.add_argument("--samples", type=int, metavar="N", help="training samples")
    shape.add_argument("--features", type=int, metavar="N", help="features")
    shape.add_argument("--classes", type=int, metavar="N", help="classes, or targets of a regression")
    shape.add_argument("--test-samples", type=int, default=0, metavar="N", help="test samples (default: 0)")
    add_json_flag(parser)
    add_config_flags(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the memory term by term; refuse, with the numbers, what cannot fit."""
    config = config_from(arguments).resolved()
    assert config.grow is not None
    parse_schedule(config.grow, len(config.hidden), config.epochs)
    shape = _shape(arguments, config)
    placement, plan = place(config, shape), plan_memory(config, shape)
    free, fits = available_memory(), True
    try:
        check_memory(plan)
    except UserError:
        fits = False
    timeline = plan_time(config, shape) if fits else None
    seconds = timeline.seconds / ITERATIONS if timeline else None
    if arguments.json:
        sizes = {"samples": shape.samples, "test_samples": shape.tests}
        sizes |= {"features": shape.features, "outputs": shape.outputs}
        found = {"memory": plan.to_mapping(), "available": free, "placement": str(placement), "epoch_seconds": seconds}
        print(json.dumps({**sizes, **found}))
    else:
        widths = format_hidden(config.hidden)
        print(f"{shape.samples} samples of {shape.features} features, hidden {widths}, {shape.outputs} outputs")
        for name, size in plan.to_mapping().items():
            print(f"  {name:<12} {format_bytes(size):>10}")
        if free is not None:
            print(f"  {'available':<12} {format_bytes(free):>10}")
        if timeline is not None:
            print(f"it fits; an epoch takes about {seconds:.3g} s here, by the cost model")
        if timeline is not None and config.workers > 1:
            shares = ", ".join(f"{timeline.idle_share(stage):.0%}" for stage in range(config.workers))
            print(f"layers of each worker {placement}; idle {shares}")
    check_memory(plan)
    return 0


def _shape(arguments: argparse.Namespace, config: Config) -> Shape:
    """Given by hand, or that of the data."""
    given = {name: getattr(arguments, name) for name in _SHAPE}
    if all(value is None for value in given.values()):
        data = load_for(config)
        outputs = Preprocessor.fit(data.train, "none", is_regression(config)).num_outputs
        return Shape(len(data.train.X), len(data.test.X) if data.test else 0, data.train.X.shape[1], outputs)
    for name, value in given.items():
        if value is None:
            raise UserError(f"--{name} is missing; give all of --samples, --features and --classes, or none of them")
        if value < 1:
            raise UserError(f"--{name} must be at least 1; got {value}")
    if arguments.test_samples < 0:
        raise UserError(f"--test-samples must not be negative; got {arguments.test_samples}")
    return Shape(arguments.samples, arguments.test_samples, arguments.features, arguments.classes)
