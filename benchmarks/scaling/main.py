"""Does the cost per unit of work stay flat when the problem doubles?

From one base size, the samples, the width and the depth are doubled, one at a time, and doubled again. The time that an
epoch's products would take at the machine's best rate at their shapes is the unit: it grows as the arithmetic does,
whatever the rate at that shape is. The cost per unit, against that of the base, should stay within 10 % of 1. All sizes
take turns in one process, so that noise hits all alike.
"""

from __future__ import annotations

import argparse
import dataclasses

from benchmarks.common import Row, Size, Training, alternate, make_parser, parse, report
from benchmarks.roof import Rates, flops

COLUMNS = {
    "solver": "",
    "size": "",
    "doubled": "",
    "s an epoch, median": ".3f",
    "time, to the base": ".2f",
    "arithmetic, to the base": ".2f",
    "cost per unit": ".3f",
    "goal": "",
}
GOAL = "0.90 to 1.10"


def variants(base: Size, times: int) -> dict[str, Size]:
    """The base, and each of its three numbers doubled up to `times` times."""
    found = {"": base}
    for name in ("samples", "width", "depth"):
        for power in range(1, times + 1):
            found[f"{name} × {2**power}"] = dataclasses.replace(base, **{name: getattr(base, name) * 2**power})
    return found


def measure(solver: str, given: argparse.Namespace) -> list[Row]:
    cases = variants(given.size, given.times)
    trainings = {name: Training(size, solver, given.set) for name, size in cases.items()}
    work = {name: flops(size, solver) for name, size in cases.items()}
    rates = Rates((shape for one in work.values() for shape in one), trainings[""].problem)
    timings = alternate({"products": rates.measure, **trainings}, given.rounds)
    units = {name: rates.seconds(one) for name, one in work.items()}
    rows: list[Row] = []
    for name, size in cases.items():
        arithmetic = units[name] / units[""]
        ratio = timings.ratio(name, to="")
        rows.append(
            {
                "solver": solver,
                "size": str(size),
                "doubled": name,
                "s an epoch, median": timings.median(name),
                "time, to the base": ratio,
                "arithmetic, to the base": arithmetic,
                "cost per unit": ratio / arithmetic,
                "goal": GOAL if name else None,
            }
        )
    return rows


def main() -> None:
    parser = make_parser(__doc__, rounds=5)
    parser.add_argument("--size", type=Size.parse, default=Size(5000, 6, 500), help="the base (default 5000x6x500)")
    parser.add_argument("--times", type=int, default=2, help="how often each number is doubled")
    parser.add_argument("--solver", action="append", help="repeatable; default linearized and exact")
    given = parse(parser)
    rows = [row for solver in given.solver or ["linearized", "exact"] for row in measure(solver, given)]
    report(given, "scaling: cost per unit of arithmetic as the problem doubles", COLUMNS, rows)


if __name__ == "__main__":
    main()
