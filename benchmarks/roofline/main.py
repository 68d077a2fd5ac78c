"""How near does an epoch come to what the machine's matrix products allow?

The share of the roofline is the time that the epoch's products and factorisations would take at the best rate that was
measured at their shapes, in the same process, with the same threads and in turn with the epochs (`benchmarks/roof.py`
counts and measures), divided by the time that the epoch takes.
"""

from __future__ import annotations

import argparse
import statistics

from benchmarks.common import Row, Size, Training, add_sizes, alternate, make_parser, parse, report, sizes
from benchmarks.roof import Rates, flops

COLUMNS = {
    "size": "",
    "solver": "",
    "Gflop an epoch": ".1f",
    "Gflop/s of the products": ".1f",
    "s an epoch, median": ".3f",
    "s an epoch, best": ".3f",
    "s at the roof": ".3f",
    "share, median": ".3f",
    "share, best": ".3f",
    "goal": "",
}


def goal(size: Size) -> float:
    return 0.80 if size.width < 1000 else 0.87


def measure(size: Size, solver: str, given: argparse.Namespace) -> Row:
    training = Training(size, solver, given.set)
    work = flops(size, solver)
    rates = Rates(work, training.problem)
    timings = alternate({"products": rates.measure, "epoch": training}, given.rounds)
    roof = rates.seconds(work)
    return {
        "size": str(size),
        "solver": solver,
        "Gflop an epoch": work.total() / 1e9,
        "Gflop/s of the products": work.total() / roof / 1e9,
        "s an epoch, median": timings.median("epoch"),
        "s an epoch, best": timings.best("epoch"),
        "s at the roof": roof,
        "share, median": statistics.median(roof / took for took in timings.seconds["epoch"]),
        "share, best": roof / timings.best("epoch"),
        "goal": goal(size),
    }


def main() -> None:
    parser = make_parser(__doc__, rounds=5)
    add_sizes(parser, default=("10000x9x500", "8000x12x1000"), full=("55000x9x500", "5000x19x2400"))
    parser.add_argument("--solver", action="append", help="repeatable; default linearized and exact")
    given = parse(parser)
    solvers = given.solver or ["linearized", "exact"]
    rows = [measure(size, solver, given) for size in sizes(given) for solver in solvers]
    report(given, "roofline: share of the rate of the machine's own products", COLUMNS, rows)


if __name__ == "__main__":
    main()
