"""How accurate are the networks, epoch by epoch, against the paper's curves and five rivals on its six data sets?

The experiment is `pdadmm reproduce accuracy --scale paper`; this keeps what its runs came to beside this file in
`curves/`, from which `--table` makes the tables again without running anything.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from pathlib import Path

from pdadmm.experiments.accuracy import KINDS, METHODS, data_table, make_case, summary
from pdadmm.experiments.cases import Case
from pdadmm.experiments.curves import read_curves, write_curve
from pdadmm.experiments.meter import Meter
from pdadmm.experiments.published import DATA
from pdadmm.experiments.runner import Runner
from pdadmm.experiments.settings import SCALES, Settings, check_cached

HERE = Path(__file__).parent
CURVES, TABLES = HERE / "curves", HERE / "tables"


def write_tables(names: Iterable[str]) -> None:
    """The tables of what is kept."""
    TABLES.mkdir(exist_ok=True)
    for data in names:
        curves = read_curves(CURVES, data, tuple(METHODS))
        if curves:
            parts = [f"{kind.replace('_', ' ')}\n\n{data_table(data, kind, curves).markdown()}" for kind in KINDS]
            text = "\n".join(parts)
            (TABLES / f"{data}.md").write_text(text)
            print(f"{text}\n{json.dumps(summary(data, curves))}\n", flush=True)


def run(cases: list[Case], threads: int) -> None:
    """Train what is not finished, one after the other, and keep each curve as soon as it is there."""
    meter = Meter({case.key: case.work for case in cases}, quiet=False)
    runner = Runner(meter, 1, threads)
    for case in cases:
        case.check()
        for failure in runner.run([case]):
            raise SystemExit(str(failure))
        write_curve(case.history(), CURVES / f"{case.name}.csv")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", nargs="+", choices=tuple(DATA), default=list(DATA))
    parser.add_argument("--methods", nargs="+", choices=tuple(METHODS), default=list(METHODS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=Path, default=Path("runs/accuracy"), help="where the runs live")
    parser.add_argument("--again", action="store_true", help="also what is kept in curves/ already")
    parser.add_argument("--table", action="store_true", help="run nothing, only make the tables")
    given = parser.parse_args()
    if not given.table:
        settings = Settings(given.runs, SCALES["paper"], "python -m benchmarks.accuracy.main")
        cases = [
            make_case(given.runs / f"{data}-{method}-{seed}", settings, data, method, seed)
            for data in given.data
            for method in given.methods
            for seed in given.seeds
            if given.again or not (CURVES / f"{data}-{method}-{seed}.csv").exists()
        ]
        check_cached(tuple({case.config.data for case in cases}))
        run(cases, given.threads)
    write_tables(given.data)


if __name__ == "__main__":
    main()
