"""How fast do the solvers learn, against full-batch Adam, on the digits that ship with scikit-learn?

Prints train/test accuracy by epoch as a Markdown table: 9 hidden layers of 100, the default split, one seed or more.
"""

from __future__ import annotations

import argparse

import numpy as np

import pdadmm
from pdadmm import Config, Dataset, Observer
from pdadmm.config import PRESETS

EPOCHS = (5, 10, 20, 50, 100)
HIDDEN = (100,) * 9
Curve = dict[int, tuple[float, float]]

METHODS: dict[str, dict[str, object]] = {
    "exact, grown (default)": {},
    "exact, whole from the start": {"grow": "off"},
    "linearized, a step size each": {"solver": "linearized"},
    "linearized, one step size a layer": {"solver": "linearized", "step_size": "one"},
    "backtracking (nu = rho = 1e-4)": {"solver": "backtracking", "nu": 1e-4, "rho": 1e-4, "init": "paper"},
    "preset paper (5 layers, then all)": dict(PRESETS["paper"]),
    "Adam, full batch, lr 1e-3": {"method": "adam"},
}


def curve(options: dict[str, object], data: Dataset, seed: int) -> Curve:
    config = Config(hidden=HIDDEN, epochs=max(EPOCHS), seed=seed, **options)  # type: ignore[arg-type]
    history = pdadmm.train(config, data, Observer(on_note=lambda note: None)).history
    return {epoch: (history[epoch - 1]["train_accuracy"], history[epoch - 1]["test_accuracy"]) for epoch in EPOCHS}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1, help="average over this many seeds")
    seeds = range(parser.parse_args().seeds)
    data = pdadmm.load_data("digits")
    print("## digits, 9 x 100: train/test accuracy by epoch\n")
    print("| method | " + " | ".join(map(str, EPOCHS)) + " |")
    print("|---" * (len(EPOCHS) + 1) + "|")
    for name, options in METHODS.items():
        curves = [curve(options, data, seed) for seed in seeds]
        means = [np.mean([found[epoch] for found in curves], axis=0) for epoch in EPOCHS]
        print(f"| {name} | " + " | ".join(f"{train:.3f}/{test:.3f}" for train, test in means) + " |", flush=True)


if __name__ == "__main__":
    main()
