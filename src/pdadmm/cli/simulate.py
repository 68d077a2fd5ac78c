"""`pdadmm simulate`: an epoch on workers and links that one does not have."""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import sys
from pathlib import Path
from typing import Any

from pdadmm.cli.options import add_config_flags, add_output_flags, config_from
from pdadmm.cli.plan import add_shape_flags, shape_of
from pdadmm.config import Config
from pdadmm.errors import UserError
from pdadmm.machine import format_bytes, keep_freed_memory
from pdadmm.math.tiles import Tiling
from pdadmm.notation import format_hidden
from pdadmm.plan import Shape
from pdadmm.rundir import make_directory, write_whole
from pdadmm.simulate.blocks import measure_layers
from pdadmm.simulate.simulation import CLUSTER, NOT_MODELLED, Simulation, Speed, better_placement, simulate, sweep
from pdadmm.units import parse_bandwidth, parse_seconds

_MOST_PER_HOST = 64
_ROW = ("workers", "shards", "processes", "speedup", "efficiency", "epoch_seconds", "placement")


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
    bandwidth = parse_bandwidth(arguments.bandwidth, "--bandwidth")
    link = dataclasses.replace(
        CLUSTER, bytes_per_second=bandwidth, latency=parse_seconds(arguments.latency, "--latency")
    )
    simulate(config, shape, 1.0, link)  # what cannot be simulated is refused before anything is measured
    found = simulate(config, shape, _speed(arguments, config, shape), link)
    swept = [] if arguments.sweep is None else sweep(arguments.sweep, found)
    mapping = found.to_mapping() | {
        "hidden": format_hidden(config.hidden),
        "samples": shape.samples,
        "features": shape.features,
        "classes": shape.outputs,
        "solver": config.solver,
        "gflops": arguments.gflops,
        "notes": _notes(found),
        "not_modelled": list(NOT_MODELLED),
        "sweep": [_row(one) for one in swept],
    }
    if arguments.trace is not None:
        write_whole(arguments.trace, json.dumps(found.timeline.trace()).encode() + b"\n")
    if arguments.out is not None:
        make_directory(arguments.out)
        write_whole(arguments.out / "simulation.json", json.dumps(mapping, indent=1).encode() + b"\n")
    if arguments.json:
        print(json.dumps(mapping))
    else:
        _print(arguments, found, mapping)
    return 0


def _speed(arguments: argparse.Namespace, config: Config, shape: Shape) -> Speed:
    """As it is stated, or as the layers take it here."""
    if not 1 <= arguments.per_host <= _MOST_PER_HOST:
        raise UserError(f"--per-host must be from 1 to {_MOST_PER_HOST}; got {arguments.per_host}")
    if arguments.gflops is not None:
        if not (arguments.gflops > 0 and math.isfinite(arguments.gflops)):
            raise UserError(f"--gflops must be positive; got {arguments.gflops}")
        return float(arguments.gflops)
    keep_freed_memory()
    return measure_layers(config, shape, arguments.per_host, lambda line: print(f"pdadmm: {line}", file=sys.stderr))


def _notes(found: Simulation) -> list[str]:
    """What is odd about the plan."""
    config, notes = found.config, []
    if not Tiling(found.shape.samples, 1, 0, config.shards, max(config.hidden)).keeps_bits:
        notes.append(
            f"with {config.shards} shards the engine's sums are ordered otherwise: its result differs by rounding "
            f"from that of one process"
        )
    if better := better_placement(found):
        seconds = f"{better.epoch_seconds:.4g} s instead of {found.epoch_seconds:.4g} s"
        notes.append(f"with --set placement={better.placement} an epoch would take {seconds}")
    if config.grow != "off":
        notes.append("the whole network is simulated; epochs before it has grown are shorter")
    return notes


def _row(one: Simulation) -> dict[str, Any]:
    """A line of a sweep."""
    mapping = {**one.to_mapping(), "workers": one.config.workers, "shards": one.config.shards}
    return {name: mapping[name] for name in _ROW} | {"bottleneck": one.bottleneck()[0]}


def _print(arguments: argparse.Namespace, found: Simulation, mapping: dict[str, Any]) -> None:
    stated = arguments.gflops
    speed = "as its layers were measured on this machine" if stated is None else f"of {stated:g} Gflop/s"
    print(
        f"{mapping['samples']} samples of {mapping['features']} features, hidden {mapping['hidden']}, "
        f"{mapping['classes']} outputs, {mapping['solver']} solver"
    )
    print(f"{found.processes} workers {speed}, links of {arguments.bandwidth} and {arguments.latency}")
    print(
        f"  speedup {found.speedup:.2f}, efficiency {found.efficiency:.1%}: {found.epoch_seconds:.4g} s an epoch, "
        f"{found.serial_seconds:.4g} s on one worker"
    )
    print(
        f"  layers of each worker {found.placement}; idle {mapping['idle_share']:.1%}; sent "
        f"{format_bytes(mapping['bytes_sent'])} an epoch"
    )
    print(f"  bottleneck: {mapping['bottleneck']['kind']}: {mapping['bottleneck']['why']}")
    print("worker  layers       compute      wait       sent    memory   idle")
    for number, worker in enumerate(mapping["workers"], start=1):
        layers = f"{worker['layers'][0]}-{worker['layers'][-1]}"
        print(
            f"{number:>6}  {layers:<8} {worker['busy_seconds']:8.3g} s {worker['wait_seconds']:7.3g} s "
            f"{format_bytes(worker['bytes_sent']):>10} {format_bytes(worker['memory_bytes']):>9}  "
            f"{worker['idle_share']:5.1%}"
        )
    for note in mapping["notes"]:
        print(f"note: {note}")
    for index, row in enumerate(mapping["sweep"]):
        if index == 0:
            print("workers  shards  speedup  efficiency   s an epoch  bottleneck")
        print(
            f"{row['workers']:>7}  {row['shards']:>6}  {row['speedup']:7.2f}  {row['efficiency']:>9.1%}  "
            f"{row['epoch_seconds']:11.4g}  {row['bottleneck']}"
        )
    print("not modelled: " + "; ".join(NOT_MODELLED))
