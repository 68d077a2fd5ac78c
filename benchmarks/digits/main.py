"""How fast do the solvers learn, against full-batch Adam, on the digits that ship with scikit-learn?

Prints train/test accuracy by epoch as a Markdown table: 9 hidden layers of 100, the default split, one seed or more.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np
import torch

import pdadmm
from pdadmm import Config, Dataset, Observer
from pdadmm.config import PRESETS
from pdadmm.data import Preprocessor
from pdadmm.math.activations import get_activations
from pdadmm.model import score
from pdadmm.network import Network, initial_layer

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
}


def ours(options: dict[str, object], data: Dataset, seed: int) -> Curve:
    config = Config(hidden=HIDDEN, epochs=max(EPOCHS), seed=seed, **options)  # type: ignore[arg-type]
    history = pdadmm.train(config, data, Observer(on_note=lambda note: None)).history
    return {epoch: (history[epoch - 1]["train_accuracy"], history[epoch - 1]["test_accuracy"]) for epoch in EPOCHS}


def adam(data: Dataset, seed: int) -> Curve:
    """Full-batch Adam, learning rate 1e-3, from the same initial weights and the same scaled features."""
    preprocessor = Preprocessor.fit(data.train, "global", regression=False)
    assert data.test is not None
    parts = [
        (
            torch.from_numpy(preprocessor.features(part.X, np.dtype("float32"))),
            torch.from_numpy(preprocessor.targets(part.y)),
        )
        for part in (data.train, data.test)
    ]
    widths = (parts[0][0].shape[1], *HIDDEN, preprocessor.num_outputs)
    cpu = torch.device("cpu")
    layers = [
        initial_layer(seed, i, widths[i], widths[i + 1], "he", torch.float32, cpu) for i in range(len(widths) - 1)
    ]
    parameters = [tensor.requires_grad_() for layer in layers for tensor in layer]
    optimiser = torch.optim.Adam(parameters, lr=1e-3)
    curve: Curve = {}
    for epoch in range(1, max(EPOCHS) + 1):
        h, y = parts[0]
        for W, b in layers[:-1]:
            h = torch.relu(torch.nn.functional.linear(h, W, b))
        loss = torch.nn.functional.cross_entropy(torch.nn.functional.linear(h, *layers[-1]), y)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if epoch in EPOCHS:
            with torch.no_grad():
                network = Network(
                    [W for W, _ in layers], [b for _, b in layers], get_activations("relu", len(layers) - 1)
                )
                train, test = (score(network.forward(x), target, regression=False) for x, target in parts)
            curve[epoch] = (train, test)
    return curve


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1, help="average over this many seeds")
    seeds = range(parser.parse_args().seeds)
    data = pdadmm.load_data("digits")
    rows: dict[str, Callable[[int], Curve]] = {
        name: lambda seed, options=options: ours(options, data, seed)  # type: ignore[misc]
        for name, options in METHODS.items()
    }
    rows["Adam, full batch, lr 1e-3"] = lambda seed: adam(data, seed)
    print("## digits, 9 x 100: train/test accuracy by epoch\n")
    print("| method | " + " | ".join(map(str, EPOCHS)) + " |")
    print("|---" * (len(EPOCHS) + 1) + "|")
    for name, run in rows.items():
        curves = [run(seed) for seed in seeds]
        means = [np.mean([curve[epoch] for curve in curves], axis=0) for epoch in EPOCHS]
        print(f"| {name} | " + " | ".join(f"{train:.3f}/{test:.3f}" for train, test in means) + " |", flush=True)


if __name__ == "__main__":
    main()
