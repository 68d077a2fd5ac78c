"""How much faster is this than the paper's algorithm written the authors' way?

`plain.py` is Algorithm 1 in plain eager PyTorch with the authors' search for tau and theta. First it is checked on a
small problem: after each of the first iterations its variables are those of our `backtracking` solver, and so its step
sizes are. Then it is timed in turn with all three of our solvers.
"""

from __future__ import annotations

import argparse
import math
import sys

import torch
from benchmarks.authors.plain import Plain
from benchmarks.common import Row, Size, Training, add_sizes, alternate, make_parser, parse, report, sizes

COLUMNS = {
    "size": "",
    "method": "",
    "products an epoch": "",
    "a layer": ".1f",
    "s an epoch, median": ".3f",
    "best": ".3f",
    "authors' way to it": ".2f",
}
PAPER = {"nu": 1e-4, "rho": 1e-4, "init": "paper"}
SMALL = Size(samples=700, depth=4, width=60, features=50)
PRODUCTS = {"backtracking": 4, "linearized": 4, "exact": 5}  # the first layer has 2
TOLERANCE = 1e-9


def disturb(training: Training) -> None:
    """Move z and q off the forward pass.

    A run starts where all gradients but the output layer's are zero up to rounding. A search that compares rounded
    values of phi then doubles its step size some thirty times for nothing; we do not hold that against it.
    """
    generator = torch.Generator().manual_seed(1)
    for block in training.engine.blocks:
        for array in (block.state.z, block.state.q):
            if array is not None:
                array.add_(torch.randn(array.shape, generator=generator).to(array), alpha=0.3)


def largest_difference(nu: float, iterations: int = 3) -> float:
    """The largest distance of a variable of `plain.py` from ours in float64, relative to 1 + its norm.

    It is that of the steps as well, relative to their own length: another tau or theta makes it 1/2 or more.
    """
    options = {**PAPER, "nu": nu, "rho": nu, "dtype": "float64", "output_tolerance": 1e-13}
    ours = Training(SMALL, "backtracking", options)
    disturb(ours)
    plain = Plain.of(ours.engine, ours.config, ours.problem)
    distances = []
    for _ in range(iterations):
        before = [(block.state.p.clone(), block.state.W.clone()) for block in ours.engine.blocks]
        ours()
        plain()
        for layer, block in enumerate(ours.engine.blocks):
            for name, old in zip(("p", "W", "b", "z", "q"), (*before[layer], None, None, None), strict=True):
                mine = getattr(plain, name)
                if layer < len(mine) and (layer > 0 or name != "p"):
                    length = 1 + mine[layer].norm() if old is None else (mine[layer] - old).norm()
                    distances.append(float((mine[layer] - getattr(block.state, name)).norm() / length))
    return max(distance if math.isfinite(distance) else math.inf for distance in distances)


def measure(size: Size, given: argparse.Namespace) -> list[Row]:
    ours = {
        "backtracking": Training(size, "backtracking", {**PAPER, **given.set}),
        "linearized": Training(size, "linearized", given.set),
        "exact": Training(size, "exact", given.set),
    }
    for training in ours.values():
        disturb(training)
    first = ours["backtracking"]
    plain = Plain.of(first.engine, first.config, first.problem)
    warm_up = 1
    timings = alternate({"authors' way": plain, **ours}, given.rounds, warm_up)
    epochs = warm_up + given.rounds
    counts = {name: 2 + count * size.depth for name, count in PRODUCTS.items()}
    counts["authors' way"] = plain.products // epochs
    return [
        {
            "size": str(size),
            "method": name,
            "products an epoch": counts[name],
            "a layer": counts[name] / (size.depth + 1),
            "s an epoch, median": timings.median(name),
            "best": timings.best(name),
            "authors' way to it": timings.ratio("authors' way", name),
        }
        for name in timings.seconds
    ]


def main() -> None:
    parser = make_parser(__doc__, rounds=5)
    add_sizes(parser, default=("10000x9x500",))
    parser.add_argument("--check", action="store_true", help="check the small problem and stop")
    given = parse(parser)
    with torch.no_grad():
        # At the paper's nu every step size is the first one tried; at the other, theta is searched for.
        difference = max(largest_difference(nu) for nu in (1e-4, 0.1))
        if not difference < TOLERANCE:
            sys.exit(f"plain.py differs from the backtracking solver by {difference:.1e}, more than {TOLERANCE}")
        if given.check:
            print(f"plain.py and the backtracking solver differ by {difference:.1e}")
            return
        rows = [row for size in sizes(given) for row in measure(size, given)]
    report(given, "authors: an epoch against the authors' way in plain PyTorch", COLUMNS, rows)


if __name__ == "__main__":
    main()
