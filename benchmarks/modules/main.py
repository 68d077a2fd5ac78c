"""Where should `pdadmm.fit` start: from the weights that PyTorch made a module with, or from weights drawn anew?

Test accuracy on digits after 60 epochs, and after 10 in brackets, for modules of hidden layers of 100.
"""

from __future__ import annotations

import argparse
import warnings

import torch
from torch import nn

import pdadmm
from pdadmm.errors import DivergenceError

SEEDS = (0, 1)
CASES = ((2, "ReLU"), (4, "ReLU"), (6, "ReLU"), (9, "ReLU"), (4, "Tanh"), (9, "Tanh"))


def make(depth: int, activation: str, seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    parts: list[nn.Module] = []
    for layer in range(depth):
        parts += [nn.Linear(100 if layer else 64, 100), getattr(nn, activation)()]
    return nn.Sequential(*parts, nn.Linear(100, 10))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    data = pdadmm.load_data("digits")
    train, test = (data.train.X, data.train.y), (data.test.X, data.test.y)  # type: ignore[union-attr]
    print("| hidden layers of 100 | PyTorch's weights | drawn anew |\n|---|---|---|")
    for depth, activation in CASES:
        cells = []
        for fresh in (False, True):
            found = []
            for seed in SEEDS:
                try:
                    with warnings.catch_warnings(action="ignore"):
                        fitted = pdadmm.fit(
                            make(depth, activation, seed),
                            *train,
                            validation=test,
                            epochs=arguments.epochs,
                            seed=seed,
                            threads=arguments.threads,
                            fresh=fresh,
                        )
                except DivergenceError:
                    found.append("diverges")
                else:
                    curve = [row["test_accuracy"] for row in fitted.history]
                    found.append(f"{curve[-1]:.3f} ({curve[min(9, len(curve) - 1)]:.3f})")
            cells.append(", ".join(found))
        print(f"| {depth} {activation} | {cells[0]} | {cells[1]} |", flush=True)


if __name__ == "__main__":
    main()
