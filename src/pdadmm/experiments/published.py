"""What the paper published, number by number, and what is wrong with it.

`published.csv` was read off the vector figures of the authors' PDF, and Table I from its text. Columns: figure, data
set, series (a method, or what was measured), x (an epoch, a number of layers or of neurons), value. The residuals of
the convergence figure could not be read off it.
"""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from functools import cache
from importlib.resources import files

Curve = dict[int, float]

DATA = {
    "mnist": "MNIST",
    "fashion": "Fashion-MNIST",
    "kmnist": "KMNIST",
    "svhn": "SVHN",
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
}
"""The paper's six data sets: our names, and those for people."""
METHODS = ("pdADMM", "GD", "Adadelta", "Adagrad", "Adam", "dlADMM")

DEFECTS = {
    "cifar100": "CIFAR-100: the published pdADMM curve is the two-class task (fine labels 0 and 2, 1,000/200 samples), "
    "while its baselines ran ten classes (5,000/1,000); they cannot be compared with one another. Ours are all on the "
    "two classes.",
    "svhn": "SVHN: the published 24,446/9,248 samples are the digits 1 and 2 alone, since the files store digit 0 as "
    "10; so are ours.",
    "cifar10": "CIFAR-10: the training set of the two classes has 10,000 images, not the 12,000 the paper says.",
    "full_batch": "Adam and the other published baselines ran full batch, one step an epoch.",
    "warm_up": "The warm-up of the authors' growing strategy seems not to be counted in the published epochs; ours is.",
    "one_run": "The published curves are one run each; no spread is given.",
    "logarithm": "The convergence figure's objective is in logarithmic units of its own. We take the natural "
    "logarithm: its exponential at epoch 0 is then 0.6 to 1.7 for each training sample.",
    "residual": "The published residual curves could not be read off the figure; of them the paper says that they "
    "converge sublinearly to 0.",
    "condition": "The published convergence runs have rho = nu, outside the condition of the paper's own theorems, "
    "rho > max(4 nu S², (√17+1) nu/2); so there is no c_k for them.",
    "disagree": "The layer figure and Table I disagree for the same network: on MNIST, 19 layers of 2,400, the figure "
    "has 10.4 and the table 12.3.",
    "machines": "The published speedups of 9 to 14 used about 20 machines, which is an efficiency of 44 to 70 %.",
    "seconds": "Table I's seconds do not go with the samples: CIFAR-10 (10,000) takes longer than MNIST (55,000); "
    "Fashion-MNIST and KMNIST end at 2,200 neurons; 2,000 neurons stand twice for MNIST.",
}
"""What must be said wherever the numbers are used, by a short name."""


@cache
def _all() -> dict[tuple[str, str, str], Curve]:
    curves: dict[tuple[str, str, str], Curve] = defaultdict(dict)
    text = (files("pdadmm.experiments") / "published.csv").read_text(encoding="utf-8")
    for row in csv.DictReader(io.StringIO(text)):
        curves[row["figure"], row["data"], row["series"]][int(row["x"])] = float(row["value"])
    return dict(curves)


def published(figure: str, data: str, series: str) -> Curve:
    """A curve of the paper; empty where it has none."""
    return dict(_all().get((figure, data, series), {}))


def defects(*names: str) -> list[str]:
    """What is wrong, as sentences."""
    return [DEFECTS[name] for name in names]
