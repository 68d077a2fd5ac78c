"""`pdadmm simulate`: an epoch on workers and links that one does not have."""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pdadmm.cli.options import add_config_flags, add_output_flags, config_from
from pdadmm.cli.plan import add_shape_flags, describe, shape_of
from pdadmm.errors import UserError
from pdadmm.machine import format_bytes, keep_freed_memory
from pdadmm.rundir import make_directory, write_whole
from pdadmm.simulate.blocks import measure_layers, stated_layers
from pdadmm.simulate.simulation import CLUSTER, check_can_simulate, simulate, sweep

_MOST_PER_HOST = 64
_BITS = {"bit": 0.125, "kbit": 1.25e2, "Mbit": 1.25e5, "Gbit": 1.25e8, "Tbit": 1.25e11}
RATES = {**_BITS, "B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}
TIMES = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0}


def add_parser(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser("simulate", help="an epoch on workers and links one does not have: speedup and why")
    add_shape_flags(parser)
    cluster = parser.add_argument_group("cluster")
    cluster.add_argument(
        "--bandwidth", metavar="RATE", default="10Gbit", help="of each worker's link (default: 10Gbit)"
    )
    cluster.add_argument("--latency", metavar="TIME", default="50us", help="of a message (default: 50us)")
    cluster.add_argument(
        "--gflops",
        type=float,
        metavar="VALUE",
        help="speed of a worker, where the layers are not to be measured on this machine",
    )
    cluster.add_argument(
        "--per-host", type=int, default=1, metavar="N", help="measure so many workers side by side (default: 1)"
    )
    cluster.add_argument("--sweep", choices=("workers", "shards"), help="the same for many numbers of them")
    parser.add_argument("--trace", type=Path, metavar="FILE", help="the iteration in Chrome's trace format")
    add_output_flags(parser, "directory for simulation.json")
    add_config_flags(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Measure, simulate and print."""
    config = config_from(arguments).resolved()
    shape, _ = shape_of(arguments, config)
    rate = parse_quantity(arguments.bandwidth, "--bandwidth", RATES)
    link = dataclasses.replace(
        CLUSTER, bytes_per_second=rate, latency=parse_quantity(arguments.latency, "--latency", TIMES)
    )
    if rate == 0:
        raise UserError(f"--bandwidth must be positive; got {arguments.bandwidth}")
    if not 1 <= arguments.per_host <= _MOST_PER_HOST:
        raise UserError(f"--per-host must be from 1 to {_MOST_PER_HOST}; got {arguments.per_host}")
    if arguments.gflops is not None and not 0 < arguments.gflops < float("inf"):
        raise UserError(f"--gflops must be positive; got {arguments.gflops}")
    check_can_simulate(config, shape)
    if arguments.gflops is not None:
        layers = stated_layers(config, shape, arguments.gflops)
    else:
        keep_freed_memory()
        layers = measure_layers(
            config, shape, arguments.per_host, lambda line: print(f"pdadmm: {line}", file=sys.stderr)
        )
    found = simulate(config, shape, layers, link)
    swept = sweep(arguments.sweep, config, shape, layers, link) if arguments.sweep else []
    mapping = found.to_mapping() | {"each": found.each(), "sweep": [one.to_mapping() for one in swept]}
    if arguments.trace is not None:
        write_whole(arguments.trace, json.dumps(found.timeline.trace()).encode() + b"\n")
    if arguments.out is not None:
        make_directory(arguments.out)
        write_whole(arguments.out / "simulation.json", json.dumps(mapping, indent=1).encode() + b"\n")
    if arguments.json:
        print(json.dumps(mapping))
    else:
        print(describe(config, shape))
        _print(mapping)
    return 0


def parse_quantity(text: str, name: str, units: Mapping[str, float]) -> float:
    """A number and its unit, such as 10Gbit or 50us; strict, because a wrong unit is off by thousands."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([A-Za-zµ]+)", text)
    if found is None or found[2] not in units:
        raise UserError(f"{name} must be a number and its unit, one of {', '.join(units)}; got {text!r}")
    return float(found[1]) * units[found[2]]


def _print(found: dict[str, Any]) -> None:
    print(
        f"speedup {found['speedup']:.2f}, efficiency {found['efficiency']:.1%}: "
        f"{found['epoch_seconds']:.4g} s an epoch, {found['serial_seconds']:.4g} s on one worker"
    )
    print(f"bottleneck: {found['bottleneck']}: {found['why']}")
    print("worker  layers       compute   idle       sent")
    for number, worker in enumerate(found["each"], start=1):
        layers = f"{worker['layers'][0]}-{worker['layers'][-1]}"
        sent = format_bytes(worker["bytes_sent"])
        print(f"{number:>6}  {layers:<8} {worker['busy_seconds']:8.3g} s {worker['idle_share']:6.1%} {sent:>10}")
    if found["sweep"]:
        print("workers  shards  speedup  efficiency   s an epoch  bottleneck")
    for row in found["sweep"]:
        print(
            "{workers:>7}  {shards:>6}  {speedup:7.2f}  {efficiency:>9.1%}  {epoch_seconds:11.4g}  {bottleneck}".format(
                **row
            )
        )
