"""Which options learn best, judged on a part of the training samples that is held out?

The test part of the data is never looked at: a fifth of the training part (at most 4,000 samples) takes its place. Each
`--try` is one run with these options upon the defaults, and one line of the table.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from benchmarks.common import setting
from sklearn.model_selection import train_test_split

from pdadmm import Config, Dataset, Observer, load_data, train
from pdadmm.data import Part

SHOWN = (5, 10, 20, 30, 50, 60, 80, 95)
MOST_HELD_OUT = 4000


def held_out(name: str, samples: int | None) -> Dataset:
    """The training part alone, split; `samples` of it are trained on, or all."""
    whole = load_data(name)
    X, y = whole.train.X, whole.train.y
    train_rows, rest = train_test_split(np.arange(len(X)), test_size=0.2, random_state=1, stratify=y)
    train_rows, rest = train_rows[:samples], rest[:MOST_HELD_OUT]
    learnt, judged = (Part(X[rows], y[rows]) for rows in (train_rows, rest))
    return Dataset(name, learnt, judged, whole.feature_names)


def curve(data: Dataset, config: Config) -> str:
    """Train and held-out accuracy at the shown epochs."""
    silent = Observer(on_note=lambda note: None)
    rows = {row["epoch"]: row for row in train(config, data, silent).history}
    cells = (f"{rows[e]['train_accuracy']:.3f}/{rows[e]['test_accuracy']:.4f}" if e in rows else "" for e in SHOWN)
    return " | ".join(cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="kmnist")
    parser.add_argument("--samples", type=int, help="training samples (default: four fifths of the training part)")
    parser.add_argument("--hidden", default="9x300")
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument(
        "--try", dest="tries", action="append", default=[], metavar="OPTIONS", help="such as 'ridge=0.03 w_relax=1'"
    )
    arguments = parser.parse_args()
    data = held_out(arguments.data, arguments.samples)
    print(f"| {data.name}, {len(data.train.X):,} × {arguments.hidden} | " + " | ".join(map(str, SHOWN)) + " |")
    print("|---" * (len(SHOWN) + 1) + "|", flush=True)
    for text in arguments.tries or [""]:
        common = {"hidden": arguments.hidden, "epochs": arguments.epochs, "scaling": "global", "stationarity_every": 0}
        given: dict[str, Any] = {**common, **dict(setting(pair) for pair in text.split())}
        config = Config.from_mapping(given)
        print(f"| {text or 'defaults'} | {curve(data, config)} |", flush=True)


if __name__ == "__main__":
    main()
