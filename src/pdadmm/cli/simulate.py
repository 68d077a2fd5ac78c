"""`pdadmm simulate`: what workers and links that one does not have would give; `--calibrate` measures those one has."""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import platform
import sys
import time
from pathlib import Path
from typing import Any

import torch

from pdadmm.calibration import (
    Calibration,
    default_path,
    load_calibration,
    measure_link,
    measure_slowdown,
    measure_speed,
    save_calibration,
)
from pdadmm.cli.options import add_config_flags, add_output_flags, config_from
from pdadmm.cli.plan import shape_of_data
from pdadmm.config import SOLVERS, Config
from pdadmm.engine.launch import Launch, die_with_launcher, is_worker, launch
from pdadmm.engine.timeline import Link
from pdadmm.engine.typical import TYPICAL
from pdadmm.errors import UserError
from pdadmm.machine import format_bytes, keep_freed_memory
from pdadmm.math.tiles import Tiling
from pdadmm.notation import format_hidden
from pdadmm.plan import Shape
from pdadmm.rundir import make_directory, write_whole
from pdadmm.simulate import (
    NOT_MODELLED,
    TYPICAL_LINK,
    Machine,
    Simulation,
    better_placement,
    free_bandwidth,
    simulate,
)
from pdadmm.sweep import SWEEPS, WORTH, recommended, sweep_row
from pdadmm.units import format_bandwidth, format_seconds, parse_bandwidth, parse_seconds

_MNIST = {"samples": 55_000, "features": 196, "classes": 10}
_CALIBRATIONS = ("all", "machine", "link")
_TIMEOUT = 900.0  # seconds that one side may measure while the other waits


def add_parser(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser("simulate", help="an epoch on workers and links one does not have: speedup and why")
    shape = parser.add_argument_group("shape (default: that of MNIST; --data takes a data set's own)")
    shape.add_argument("--samples", type=int, metavar="N", help="training samples (default: 55000)")
    shape.add_argument("--features", type=int, metavar="N", help="features (default: 196)")
    shape.add_argument("--classes", type=int, metavar="N", help="classes, or targets of a regression (default: 10)")
    cluster = parser.add_argument_group("cluster")
    cluster.add_argument("--bandwidth", metavar="RATE", help="of each worker's link (default: 10Gbit)")
    cluster.add_argument("--latency", metavar="TIME", help="of a message (default: 50us)")
    cluster.add_argument("--measured-link", action="store_true", help="take the link of the calibration")
    cluster.add_argument("--gflops", type=float, metavar="VALUE", help="speed of a worker in products")
    cluster.add_argument("--per-host", type=int, default=1, metavar="N", help="workers on one machine (default: 1)")
    cluster.add_argument("--sweep", choices=("workers", "shards"), help="the same for many numbers of them")
    calibration = parser.add_argument_group("calibration")
    calibration.add_argument(
        "--calibrate",
        nargs="?",
        const="all",
        choices=_CALIBRATIONS,
        help="measure this machine, a link between two processes (under torchrun, of two hosts), or both; with "
        "--solver only that solver",
    )
    calibration.add_argument(
        "--calibration", type=Path, metavar="FILE", help="where it is kept (default: in the cache)"
    )
    add_output_flags(parser, "directory for simulation.json and the figures")
    add_config_flags(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Measure, or simulate and print."""
    if arguments.calibrate is not None:
        return _calibrate(arguments)
    config = config_from(arguments).resolved()
    if not (hasattr(arguments, "hidden") or arguments.config or arguments.preset):
        raise UserError("--hidden is missing: the network to simulate, such as 19x2400")
    shape = _shape(arguments, config)
    machine, link = _machine(arguments), _link(arguments)
    found = simulate(config, shape, machine, link)
    swept = [] if arguments.sweep is None else SWEEPS[arguments.sweep](config, shape, machine, link)
    free = free_bandwidth(found) if config.workers * config.shards > 1 else None
    mapping = _mapping(found, free, swept)
    if arguments.out is not None:
        _write(arguments.out, found, swept, mapping)
    if arguments.json:
        print(json.dumps(mapping))
    else:
        _print(found, free, mapping)
        if swept:
            _print_sweep(swept)
        print("not modelled: " + "; ".join(NOT_MODELLED))
    return 0


def _shape(arguments: argparse.Namespace, config: Config) -> Shape:
    """By hand, of the data set that is named, or MNIST's."""
    given = {name: getattr(arguments, name) for name in _MNIST}
    for name, value in given.items():
        if value is not None and value < 1:
            raise UserError(f"--{name} must be at least 1; got {value}")
    if hasattr(arguments, "data"):
        shape = dataclasses.replace(shape_of_data(config)[0], tests=0)
        named = {"samples": shape.samples, "features": shape.features, "classes": shape.outputs}
    else:
        named = _MNIST
    sizes = {name: named[name] if value is None else value for name, value in given.items()}
    return Shape(sizes["samples"], 0, sizes["features"], sizes["classes"])


def _calibration(arguments: argparse.Namespace) -> Calibration | None:
    """The one that is named, or the one in the cache, if there is one."""
    if arguments.calibration is not None:
        return load_calibration(arguments.calibration)
    return load_calibration(default_path()) if default_path().exists() else None


def _machine(arguments: argparse.Namespace) -> Machine:
    if arguments.per_host < 1:
        raise UserError(f"--per-host must be at least 1; got {arguments.per_host}")
    if arguments.gflops is not None and not (arguments.gflops > 0 and math.isfinite(arguments.gflops)):
        raise UserError(f"--gflops must be positive; got {arguments.gflops}")
    found = _calibration(arguments)
    speed, source = (TYPICAL, "a typical core") if found is None else (found.speed, f"measured {found.made}")
    if arguments.gflops is not None:
        speed, source = speed.scaled(arguments.gflops), f"{source}, scaled to --gflops"
    slowdown = found.slowdown if found is not None and arguments.per_host > 1 else 1.0
    return Machine(speed, slowdown, source)


def _link(arguments: argparse.Namespace) -> Link:
    found = _calibration(arguments)
    if arguments.measured_link:
        if found is None:
            raise UserError("--measured-link needs a calibration; measure one by --calibrate")
        for name in ("bandwidth", "latency"):
            if getattr(arguments, name) is not None:
                raise UserError(f"--{name} does not go with --measured-link")
        return found.link
    link, gflops = (TYPICAL_LINK, TYPICAL.gflops) if found is None else (found.link, found.speed.gflops)
    return dataclasses.replace(
        link if arguments.gflops is None else link.with_workers(arguments.gflops / gflops),
        bytes_per_second=parse_bandwidth(arguments.bandwidth or "10Gbit", "--bandwidth"),
        latency=parse_seconds(arguments.latency or "50us", "--latency"),
    )


# --- printing


def _notes(found: Simulation) -> list[str]:
    """What is odd about the plan."""
    config, shape, notes = found.config, found.shape, []
    if not Tiling(shape.samples, 1, 0, config.shards, max(config.hidden)).keeps_bits:
        notes.append(
            f"with {config.shards} shards the engine's sums are ordered otherwise: its result differs by rounding "
            f"from that of one process"
        )
    better = better_placement(found) if config.workers > 1 else None
    if better is not None:
        notes.append(
            f"with --set placement={better.config.placement} an epoch would take {better.epoch_seconds:.4g} s instead "
            f"of {found.epoch_seconds:.4g} s"
        )
    if config.grow != "off":
        notes.append("the whole network is simulated; epochs before it has grown are shorter")
    return notes


def _mapping(found: Simulation, free: float | None, swept: list[Simulation]) -> dict[str, Any]:
    shape = found.shape
    mapping = {
        **found.to_mapping(),
        "free_bandwidth": free,
        "hidden": format_hidden(found.config.hidden),
        "samples": shape.samples,
        "features": shape.features,
        "classes": shape.outputs,
        "solver": found.config.solver,
        "speed_source": found.machine.source,
        "notes": _notes(found),
        "not_modelled": list(NOT_MODELLED),
    }
    if swept:
        rows = [sweep_row(one, before) for before, one in zip([None, *swept], swept, strict=False)]
        mapping["sweep"] = rows
        mapping["recommended"] = recommended(swept)
    return mapping


def _print(found: Simulation, free: float | None, mapping: dict[str, Any]) -> None:
    shape, config, link = found.shape, found.config, found.link
    print(
        f"{shape.samples} samples of {shape.features} features, hidden {mapping['hidden']}, {shape.outputs} outputs, "
        f"{config.solver} solver"
    )
    print(
        f"{found.processes} workers of {found.machine.speed.gflops:.4g} Gflop/s ({found.machine.source}), links of "
        f"{format_bandwidth(link.bytes_per_second)} and {format_seconds(link.latency)}"
    )
    print(
        f"  speedup {found.speedup:.2f}, efficiency {found.efficiency:.1%}: {found.epoch_seconds:.4g} s an epoch, "
        f"{found.serial_seconds:.4g} s on one worker"
    )
    print(
        f"  layers of each worker {found.placement}; idle {found.idle_share:.1%}; sent "
        f"{format_bytes(found.bytes_sent)} an epoch"
    )
    kind, why = found.bottleneck()
    print(f"  bottleneck: {kind}: {why}")
    if free is not None:
        print(f"  more bandwidth than {format_bandwidth(free)} would gain less than 1 %")
    print("worker  layers       compute      wait       sent    memory   idle")
    for number, worker in enumerate(found.workers, start=1):
        layers = f"{worker.layers[0]}-{worker.layers[-1]}"
        print(
            f"{number:>6}  {layers:<8} {worker.busy_seconds:8.3g} s {worker.wait_seconds:7.3g} s "
            f"{format_bytes(worker.bytes_sent):>10} {format_bytes(worker.memory_bytes):>9}  {worker.idle_share:5.1%}"
        )
    for note in mapping["notes"]:
        print(f"note: {note}")


def _print_sweep(swept: list[Simulation]) -> None:
    print("workers  shards  speedup    gain  efficiency   s an epoch  bottleneck")
    for before, one in zip([None, *swept], swept, strict=False):
        row = sweep_row(one, before)
        print(
            f"{row['workers']:>7}  {row['shards']:>6}  {row['speedup']:7.2f}  {row['gain']:+6.2f}  "
            f"{row['efficiency']:>9.1%}  {row['epoch_seconds']:11.4g}  {row['bottleneck']}"
        )
    best = recommended(swept)
    print(
        f"worth it: {best['processes']} workers, the most with an efficiency of {WORTH:.0%} or more: speedup "
        f"{best['speedup']:.2f}; {best['why_no_more']}"
    )


def _write(out: Path, found: Simulation, swept: list[Simulation], mapping: dict[str, Any]) -> None:
    """The figures and what they show."""
    make_directory(out)
    write_whole(out / "simulation.json", json.dumps(mapping, indent=1).encode() + b"\n")
    try:
        from pdadmm.gantt import plot_speedup, plot_timeline
    except ImportError:
        print("pdadmm: no figures: matplotlib is not installed (the `plot` extra)", file=sys.stderr)
        return
    plot_timeline(found, out)
    config, shape = found.config, found.shape
    plot_speedup(swept or SWEEPS["workers"](config, shape, found.machine, found.link), out)


# --- measuring


def _calibrate(arguments: argparse.Namespace) -> int:
    """Two processes measure together; the first one speaks and writes."""
    config = config_from(arguments)
    path = arguments.calibration or default_path()
    before = load_calibration(path) if path.exists() and arguments.calibrate != "all" else None
    if not is_worker():
        return launch(Launch(arguments.argv, 2, config.threads, _TIMEOUT, 0, path.parent))
    from pdadmm.engine.comm import DistributedWorld

    die_with_launcher()
    keep_freed_memory()
    torch.set_num_threads(config.threads or torch.get_num_threads())
    world = DistributedWorld(2, 1, _TIMEOUT)
    found = before or Calibration(TYPICAL, Link(), made="a typical core")
    if arguments.calibrate != "link":
        speed = found.speed
        if world.stage == 0:
            solvers = (config.solver,) if hasattr(arguments, "solver") else SOLVERS
            speed = measure_speed(solvers, tell=lambda line: print(line, file=sys.stderr, flush=True))
        world.gather("")  # the other side waits here
        slowdown = measure_slowdown(world, None)
        made = f"{time.strftime('%Y-%m-%d')}, {platform.processor() or platform.machine()}, torch {torch.__version__}"
        found = dataclasses.replace(found, speed=speed, slowdown=slowdown, threads=torch.get_num_threads(), made=made)
    if arguments.calibrate != "machine":
        found = dataclasses.replace(found, link=measure_link(world))
    if world.stage == 0:
        save_calibration(path, found)
        _print_calibration(found, path, arguments.json)
    world.close()
    return 0


def _print_calibration(found: Calibration, path: Path, as_json: bool) -> None:
    link = found.link
    if as_json:
        shown = {"gflops": found.speed.gflops, "threads": found.threads, "slowdown": found.slowdown}
        print(json.dumps({**shown, "link": dataclasses.asdict(link), "calibration": str(path)}))
        return
    print(
        f"worker: {found.speed.gflops:.1f} Gflop/s with {found.threads} threads; {found.slowdown:.2f} times as long "
        f"beside another"
    )
    print(
        f"link: {format_bandwidth(link.bytes_per_second)}, {format_seconds(link.latency)}; processor time "
        f"{1e9 * link.send_cpu:.2f} and {1e9 * link.receive_cpu:.2f} ns a byte, "
        f"{format_seconds(link.send_overhead)} and {format_seconds(link.receive_overhead)} a chunk"
    )
    print(f"saved: {path}")
