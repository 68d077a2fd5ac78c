"""Bandwidths and times as people write them: 10Gbit, 1.25GB, 50us. Strict, because a wrong unit is off by thousands."""

from __future__ import annotations

import re

from pdadmm.errors import UserError

_BITS = {"bit": 1.0, "kbit": 1e3, "Mbit": 1e6, "Gbit": 1e9, "Tbit": 1e12}
_BYTES = {"B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0}
_QUANTITY = re.compile(r"(\d+(?:\.\d+)?)([A-Za-zµ]+)(/s)?")


def parse_bandwidth(text: str, name: str) -> float:
    """Bytes a second: 10Gbit, 100Mbit, 1.25GB, with or without /s."""
    factors = {**{unit: factor / 8 for unit, factor in _BITS.items()}, **_BYTES}
    found = _QUANTITY.fullmatch(text)
    if found is None or found[2] not in factors or float(found[1]) == 0:
        raise UserError(
            f"{name} must be a positive number and one of {', '.join(factors)}, such as 10Gbit or 1.25GB; got {text!r}"
        )
    return float(found[1]) * factors[found[2]]


def parse_seconds(text: str, name: str) -> float:
    """Seconds: 50us, 1ms, 0s."""
    found = _QUANTITY.fullmatch(text)
    if found is None or found[3] or found[2] not in _SECONDS:
        raise UserError(f"{name} must be a number and one of {', '.join(_SECONDS)}, such as 50us; got {text!r}")
    return float(found[1]) * _SECONDS[found[2]]
