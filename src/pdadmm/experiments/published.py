"""What the paper published, number by number, and how its experiments are run again.

`paper.toml` has data sets, sizes, methods and notes. `published.csv` was read off the vector figures of the authors'
PDF, and Table I from its text. Its columns: figure, data set, series (a method, or what was measured), x (an epoch, a
number of layers or of neurons), value. The residuals of the convergence figure could not be read off it.
"""

from __future__ import annotations

import csv
import tomllib
from collections import defaultdict
from functools import cache
from importlib.resources import files
from typing import Any

Curve = dict[int, float]

PAPER: dict[str, Any] = tomllib.loads((files("pdadmm.experiments") / "paper.toml").read_text(encoding="utf-8"))
DATA: dict[str, str] = PAPER["data"]
"""The paper's six data sets: our names, and those for people."""
METHODS = ("pdADMM", "GD", "Adadelta", "Adagrad", "Adam", "dlADMM")
"""The published accuracy curves."""


@cache
def _all() -> dict[tuple[str, str, str], Curve]:
    curves: dict[tuple[str, str, str], Curve] = defaultdict(dict)
    text = (files("pdadmm.experiments") / "published.csv").read_text(encoding="utf-8")
    for row in csv.DictReader(text.splitlines()):
        curves[row["figure"], row["data"], row["series"]][int(row["x"])] = float(row["value"])
    return dict(curves)


def published(figure: str, data: str, series: str) -> Curve:
    """A curve of the paper; empty where it has none."""
    return dict(_all().get((figure, data, series), {}))
