"""What do other arithmetic, compiled kernels and arrays on the disk gain, and what do they cost?

Time: an epoch of the same training with each option, in turn, against that with none. Effect: digits, 9 x 100, 100
epochs with the same seeds: the accuracies and L_rho at the end, and the largest relative difference of L_rho to the
standard run over the first ten epochs.
"""

from __future__ import annotations

import statistics
import warnings
from typing import Any

from benchmarks.common import Row, Training, add_sizes, alternate, make_parser, parse, report, sizes

import pdadmm
from pdadmm import Config, Result

OPTIONS: dict[str, dict[str, Any]] = {
    "none": {},
    "compile=on": {"compile": "on"},
    "products=onednn": {"products": "onednn"},
    "products=bfloat16": {"products": "bfloat16"},
}
SEEDS = (0, 1, 2)
COLUMNS = {
    "size": "",
    "option": "",
    "epoch, to none": ".3f",
    "train accuracy": ".4f",
    "test accuracy": ".4f",
    "L_rho at the end": ".5g",
    "L_rho, first 10 epochs, differs by": ".1e",
}


def effect(options: dict[str, Any]) -> list[Result]:
    data = pdadmm.load_data("digits")
    with warnings.catch_warnings(action="ignore"):
        return [pdadmm.train(Config(hidden=(100,) * 9, seed=seed, **options), data) for seed in SEEDS]


def mean(results: list[Result], key: str) -> float:
    return statistics.mean(float(result.history[-1][key]) for result in results)


def difference(results: list[Result], standard: list[Result]) -> float:
    pairs = [
        (row["objective"], other["objective"])
        for result, base in zip(results, standard, strict=True)
        for row, other in zip(result.history[:10], base.history[:10], strict=True)
    ]
    return float(max(abs(one - other) / abs(other) for one, other in pairs))


def main() -> None:
    parser = make_parser(__doc__, rounds=5)
    add_sizes(parser, default=("10000x9x500", "8000x12x1000"))
    given = parse(parser)
    ends = {name: effect(options) for name, options in OPTIONS.items()}
    rows: list[Row] = []
    for size in sizes(given):
        trainings = {name: Training(size, "exact", options) for name, options in OPTIONS.items()}
        times = alternate(trainings, given.rounds)
        for name in OPTIONS:
            rows.append(
                {
                    "size": str(size),
                    "option": name,
                    "epoch, to none": times.ratio(name, "none"),
                    "train accuracy": mean(ends[name], "train_accuracy"),
                    "test accuracy": mean(ends[name], "test_accuracy"),
                    "L_rho at the end": mean(ends[name], "objective"),
                    "L_rho, first 10 epochs, differs by": difference(ends[name], ends["none"]),
                }
            )
    report(given, "precision: other arithmetic, exact solver", COLUMNS, rows)


if __name__ == "__main__":
    main()
