"""A calibration as a file: JSON, written whole, and read with suspicion."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from pdadmm.engine.cost import Layer, Phase, Speed, Work
from pdadmm.engine.timeline import Link
from pdadmm.errors import DamageError, UserError
from pdadmm.rundir import make_directory, write_whole

FORMAT = 1
_LINK = tuple(field.name for field in dataclasses.fields(Link))


@dataclass(frozen=True)
class Calibration:
    """What was measured, and of what."""

    speed: Speed
    link: Link
    slowdown: float = 1.0
    """Seconds of a layer while another process computes on the same machine, to those of one alone."""
    threads: int = 1
    made: str = ""
    """When and on what, for people to read."""


def default_path() -> Path:
    """In the user's cache."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (cache if cache.is_absolute() else Path.home() / ".cache") / "pdadmm" / "calibration.json"


def save_calibration(path: Path, found: Calibration) -> None:
    """Write it whole or not at all."""
    seconds = {
        "/".join(key): {name: value for name, value in rates._asdict().items() if value}
        for key, rates in found.speed.seconds.items()
    }
    content = {
        "format": FORMAT,
        "made": found.made,
        "threads": found.threads,
        "gflops": found.speed.gflops,
        "bytes_per_second": found.speed.bytes_per_second,
        "slowdown": found.slowdown,
        "link": dataclasses.asdict(found.link),
        "seconds": seconds,
    }
    make_directory(path.parent)
    write_whole(path, json.dumps(content, indent=1).encode() + b"\n")


def load_calibration(path: Path) -> Calibration:
    """What `save_calibration` wrote; anything else is an error that names the file."""
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise UserError(f"--calibration must name a file; {path} is missing: measure one by --calibrate") from None
    except OSError as error:
        raise UserError(f"--calibration must name a file that can be read; {path}: {error.strerror}") from None
    except ValueError:
        raise _damage(path, "it is no JSON") from None
    try:
        if content["format"] != FORMAT:
            raise _damage(path, f"its format is {content['format']!r}, not {FORMAT}")
        seconds = {_key(name): _work(rates) for name, rates in content["seconds"].items()}
        speed = Speed(_positive(content["gflops"]), seconds, _positive(content["bytes_per_second"]))
        link = Link(**{name: _number(content["link"][name]) for name in _LINK})
        return Calibration(speed, link, _positive(content["slowdown"]), int(content["threads"]), str(content["made"]))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _damage(path, f"{type(error).__name__}: {error}") from None


def _damage(path: Path, why: str) -> DamageError:
    return DamageError(f"{path} is no calibration ({why}); measure again by pdadmm simulate --calibrate")


def _key(name: str) -> tuple[str, Layer, Phase]:
    solver, layer, phase = name.split("/")
    if layer not in ("first", "hidden", "output") or phase not in ("p", "W", "z", "m"):
        raise ValueError(f"{name!r} is no phase of a layer")
    return solver, cast(Layer, layer), cast(Phase, phase)


def _work(rates: dict[str, Any]) -> Work:
    unknown = sorted(set(rates) - set(Work._fields))
    if unknown:
        raise ValueError(f"{unknown[0]!r} is no count")
    return Work(**{name: _number(value) for name, value in rates.items()})


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise ValueError(f"{value!r} is no number of seconds, bytes or flops")
    return float(value)


def _positive(value: object) -> float:
    number = _number(value)
    if number == 0:
        raise ValueError("0 is no speed")
    return number
