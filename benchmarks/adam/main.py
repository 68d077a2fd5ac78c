"""How long is an epoch against one of full-batch Adam in plain PyTorch?

The same network (widths, ReLU, cross-entropy), data and threads; an epoch of Adam is a forward pass, a backward pass
and a step. Adam runs in each of its implementations, and the fastest is what we are compared with.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch
from benchmarks.common import Row, Size, Training, add_sizes, alternate, make_parser, parse, random_data, report, sizes
from torch import nn

COLUMNS = {"size": "", "method": "", "s an epoch, median": ".3f", "best": ".3f", "to Adam": ".3f", "goal": ""}
GOALS = {"linearized": 1.5, "exact": 1.9}
ADAMS = {"Adam, for loop": (False, False), "Adam, foreach": (True, False), "Adam, fused": (False, True)}


def adam(size: Size, foreach: bool, fused: bool, device: torch.device) -> Callable[[], None]:
    """An epoch of Adam, to be called again and again."""
    x, y = random_data(size, device)
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for n_in, n_out in zip(size.widths[:-2], size.widths[1:-1], strict=True):
        layers += [nn.Linear(n_in, n_out), nn.ReLU(inplace=True)]
    network = nn.Sequential(*layers, nn.Linear(size.width, size.classes)).to(device)
    optimiser = torch.optim.Adam(network.parameters(), lr=1e-3, foreach=foreach, fused=fused)

    def epoch() -> None:
        optimiser.zero_grad()
        nn.functional.cross_entropy(network(x), y).backward()
        optimiser.step()

    return epoch


def measure(size: Size, given: argparse.Namespace) -> list[Row]:
    ours = {solver: Training(size, solver, given.set) for solver in GOALS}
    device = torch.device(ours["exact"].config.device)
    theirs = {name: adam(size, *implementation, device) for name, implementation in ADAMS.items()}
    timings = alternate({**theirs, **ours}, given.rounds, warm_up=2)
    fastest = min(ADAMS, key=timings.median)
    return [
        {
            "size": str(size),
            "method": name,
            "s an epoch, median": timings.median(name),
            "best": timings.best(name),
            "to Adam": timings.ratio(name, fastest),
            "goal": GOALS.get(name),
        }
        for name in timings.seconds
    ]


def main() -> None:
    parser = make_parser(__doc__, rounds=7)
    add_sizes(parser, default=("10000x9x500", "8000x12x1000"))
    given = parse(parser)
    rows = [row for size in sizes(given) for row in measure(size, given)]
    report(given, "adam: an epoch against the fastest full-batch Adam", COLUMNS, rows)


if __name__ == "__main__":
    main()
