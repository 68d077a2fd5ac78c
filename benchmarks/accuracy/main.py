"""How accurate are the networks, epoch by epoch, against the paper's curves and five rivals on its six data sets?

The experiment is `pdadmm reproduce accuracy --scale paper`; this keeps what its runs came to beside this file in
`curves/`, from which `--table` makes the tables again without running anything.
"""

from __future__ import annotations

import argparse
import dataclasses
import shutil
from pathlib import Path

from pdadmm.experiments.accuracy import METHODS
from pdadmm.experiments.experiment import SCALES, Settings
from pdadmm.experiments.published import DATA
from pdadmm.experiments.reproduce import reproduce
from pdadmm.experiments.result import markdown

HERE = Path(__file__).parent
CURVES, TABLES = HERE / "curves", HERE / "tables"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", nargs="+", choices=tuple(DATA), default=list(DATA))
    parser.add_argument("--methods", nargs="+", choices=tuple(METHODS), default=list(METHODS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=Path, default=Path("runs/accuracy"), help="where the runs live")
    parser.add_argument("--table", action="store_true", help="run nothing, only make the tables")
    given = parser.parse_args()
    command, methods, seeds = "python -m benchmarks.accuracy.main", tuple(given.methods), tuple(given.seeds)
    for data in given.data:
        settings = Settings(given.runs, SCALES["paper"], command, (data,), methods, seeds, CURVES)
        (result,), failures = reproduce(["accuracy"], settings, given.threads, table_only=given.table)
        if failures:
            raise SystemExit(str(failures[0]))
        for curve in (given.runs / "accuracy" / "curves").glob(f"{data}-*.csv"):
            shutil.copy(curve, CURVES)
        text = markdown(dataclasses.replace(result, notes=[]))
        (TABLES / f"{data}.md").write_text(text)
        print(text, flush=True)


if __name__ == "__main__":
    main()
