"""What the benchmarks share: problems of a given size, timing in turn, the machine in one line, tables.

Only ratios of runs that take turns in one process mean anything on a shared machine, so everything is timed by
`alternate`: one round calls each candidate once, and a ratio is the median over rounds of quotients within a round.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import platform
import resource
import statistics
import tempfile
import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from pdadmm.config import Config
from pdadmm.engine.core import Engine
from pdadmm.engine.problem import Problem
from pdadmm.machine import default_threads, usable_cores

_TELLING_FLAGS = ("avx2", "avx512f", "avx512_bf16", "amx_tile", "amx_bf16")


def folder_on_disk() -> tempfile.TemporaryDirectory[str]:
    """A folder for a while, on the disk of the working folder: the system's own may be in memory."""
    runs = Path("runs")  # which a project does not keep, should the benchmark be killed
    runs.mkdir(exist_ok=True)
    return tempfile.TemporaryDirectory(dir=runs)


@dataclass(frozen=True)
class Size:
    """N samples and a network of `depth` hidden layers of `width`."""

    samples: int
    depth: int
    width: int
    features: int = 784
    classes: int = 10

    @classmethod
    def parse(cls, text: str) -> Self:
        """`10000x9x500`: samples, depth, width."""
        try:
            samples, depth, width = (int(part) for part in text.split("x"))
        except ValueError:
            raise argparse.ArgumentTypeError(f"a size looks like 10000x9x500; got {text!r}") from None
        if min(samples, depth, width) < 1:
            raise argparse.ArgumentTypeError(f"a size has positive numbers; got {text!r}")
        return cls(samples, depth, width)

    @property
    def widths(self) -> tuple[int, ...]:
        """Features, hidden widths, classes."""
        return (self.features, *(self.width,) * self.depth, self.classes)

    def __str__(self) -> str:
        return f"{self.samples:,} × {self.depth} × {self.width}"


def random_data(size: Size, device: torch.device) -> tuple[Tensor, Tensor]:
    """Normal features and random classes: what is computed does not depend on what can be learned."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(size.samples, size.features, generator=generator)
    y = torch.randint(size.classes, (size.samples,), generator=generator)
    return x.to(device), y.to(device)


class Training:
    """A run of that size whose every call is one epoch, with all layers from the start."""

    def __init__(self, size: Size, solver: str, options: Mapping[str, Any]) -> None:
        chosen = {"solver": solver, "grow": "off", **options}
        self.config = Config.from_mapping({**chosen, "hidden": (size.width,) * size.depth}).resolved()
        x, y = random_data(size, torch.device(self.config.device))
        x = x.to(getattr(torch, self.config.dtype))
        self.problem = Problem.whole(x, y, torch.ones_like(x[:, 0]), size.classes)
        self.engine = Engine(self.config, self.problem, range(size.depth))
        self.engine.build()
        self._ridge = self.config.ridge or 0.0
        self.engine.begin_stage(self._ridge)

    def __call__(self) -> None:
        self.engine.iterate(self._ridge)


@dataclass(frozen=True)
class Timings:
    """Seconds of each candidate, round by round."""

    seconds: dict[str, list[float]]

    def median(self, name: str) -> float:
        """The median over rounds."""
        return statistics.median(self.seconds[name])

    def best(self, name: str) -> float:
        """The least over rounds."""
        return min(self.seconds[name])

    def ratio(self, name: str, to: str) -> float:
        """The median over rounds of one's seconds to the other's."""
        return statistics.median(a / b for a, b in zip(self.seconds[name], self.seconds[to], strict=True))


def seconds(call: Callable[[], object]) -> float:
    """How long a call takes, until its device is done."""
    began = time.perf_counter()
    call()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - began


def alternate(calls: Mapping[str, Callable[[], object]], rounds: int, warm_up: int = 1) -> Timings:
    """Time each call once a round, after rounds that do not count."""
    found: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(warm_up + rounds):
        for name, call in calls.items():
            took = seconds(call)
            if number >= warm_up:
                found[name].append(took)
    return Timings(found)


def page_faults() -> int:
    """Pages this process has touched for the first time: what fresh memory costs."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


# --- the command line


def make_parser(doc: str | None, rounds: int) -> argparse.ArgumentParser:
    """The options that all of them have."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=rounds, help="how often each candidate is timed")
    parser.add_argument("--threads", type=int, default=default_threads(), help="threads of this process")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument(
        "--set", action="append", default=[], type=setting, metavar="KEY=VALUE", help="an option of Config; repeatable"
    )
    return parser


def add_sizes(parser: argparse.ArgumentParser, default: Sequence[str], full: Sequence[str] = ()) -> None:
    """`--size`, repeatable, and `--full` for those that take long."""
    parser.add_argument("--size", action="append", type=Size.parse, help=f"repeatable; default {', '.join(default)}")
    if full:
        parser.add_argument("--full", action="store_true", help=f"the long sizes as well: {', '.join(full)}")
    parser.set_defaults(default_sizes=default, full_sizes=full)


def sizes(given: argparse.Namespace) -> list[Size]:
    """The sizes that were asked for."""
    names = [*given.default_sizes, *(given.full_sizes if getattr(given, "full", False) else ())]
    return given.size or [Size.parse(name) for name in names]


def parse(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """The options, with the threads set."""
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    given.set = dict(given.set)
    return given


def setting(text: str) -> tuple[str, object]:
    """`key=value`, the value as TOML has it, or a plain word."""
    key, equals, value = text.partition("=")
    if not equals or key not in {field.name for field in dataclasses.fields(Config)}:
        raise argparse.ArgumentTypeError(f"no option of Config and its value: {text!r}")
    try:
        return key, tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key, value


# --- printing

Row = dict[str, object]


def machine() -> str:
    """Everything about this machine that the figures depend on, in one line."""
    information = Path("/proc/cpuinfo")
    fields: dict[str, str] = {}
    for line in information.read_text().splitlines() if information.exists() else ():
        key, _, value = line.partition(":")
        fields.setdefault(key.strip(), value.strip())
    present = fields.get("flags", "").split()
    flags = " ".join(flag for flag in _TELLING_FLAGS if flag in present)
    parts = (
        fields.get("model name", platform.machine()),
        f"{usable_cores()} of {os.cpu_count()} cores",
        flags or "no wide vectors",
        f"torch {torch.__version__} {torch.backends.cpu.get_cpu_capability()}",
        f"{torch.get_num_threads()} threads",
        time.strftime("%Y-%m-%d"),
    )
    return ", ".join(parts)


def table(columns: Mapping[str, str], rows: Sequence[Row]) -> str:
    """Rows as Markdown; `columns` maps each heading to the format of its numbers."""
    lines = ["| " + " | ".join(columns) + " |", "|---" * len(columns) + "|"]
    for row in rows:
        lines.append("| " + " | ".join(_cell(row.get(name), form) for name, form in columns.items()) + " |")
    return "\n".join(lines)


def _cell(value: object, form: str) -> str:
    return "" if value is None else format(value, form) if isinstance(value, int | float) else str(value)


def report(given: argparse.Namespace, title: str, columns: Mapping[str, str], rows: Sequence[Row]) -> None:
    """Print the answer, as Markdown or as JSON."""
    if given.json:
        print(json.dumps({"question": title, "machine": machine(), "rows": rows}, ensure_ascii=False))
    else:
        print(f"## {title}\n\n{machine()}; {given.rounds} rounds\n\n{table(columns, rows)}", flush=True)
