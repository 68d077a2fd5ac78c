"""Every solver with two activations, and one with many, on an uneven, growing network, in whatever world this is.

As a script it is one process of torchrun: worker_cases.py WORKERS SHARDS OUT CASE …. Each process leaves one file a
case with the final W, b, p, z, q of its layers, where its rows begin among all samples, and the rows of the history.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import save_file

from pdadmm.config import Config
from pdadmm.data import load_data
from pdadmm.engine.comm import DistributedWorld
from pdadmm.engine.core import VARIABLES
from pdadmm.engine.world import World
from pdadmm.observer import silent
from pdadmm.prepare import holds_data, prepare
from pdadmm.session import Session
from pdadmm.storage import storage_of

EPOCHS = 12
HIDDEN = (30, 30, 22, 22, 22, 14)
SOLVERS: dict[str, dict[str, object]] = {
    "exact": {},
    "linearized": {"solver": "linearized", "nu": 0.1},
    "one-step": {"solver": "linearized", "step_size": "one", "nu": 0.1, "grow": "0:3,5:all"},
    "backtracking": {"solver": "backtracking", "nu": 0.1, "grow": "0:4,4:all", "grow_output": "fresh"},
}
CASES = [f"{solver}-{activation}" for solver in SOLVERS for activation in ("relu", "hardtanh")]
CASES.append("exact-tanh,relu,3xhardtanh,leaky_relu")


def run_cases(world: World, out: Path, threads: int, cases: Sequence[str] = CASES) -> None:
    """These cases, one after the other."""
    data = load_data("digits") if holds_data(world) else None
    for case in cases:
        solver, _, activation = case.rpartition("-")
        config = Config(
            hidden=HIDDEN,
            epochs=EPOCHS,
            activation=activation,
            threads=threads,
            workers=world.num_stages,
            shards=world.num_shards,
            **SOLVERS[solver],  # type: ignore[arg-type]
        )
        session = prepare(config.resolved(), data, silent(), world, storage_of(config)).session
        assert isinstance(session, Session)
        rows = []
        for epoch in range(1, EPOCHS + 1):
            row = session.iterate(epoch)
            session.add_evaluations(row, last=epoch == EPOCHS)
            rows.append([row["objective"], row["residual"], row["train_accuracy"], row["test_accuracy"]])
        session.engine.finish()
        tensors = {"history": torch.tensor(rows, dtype=torch.float64)}
        tensors["first row"] = torch.tensor([session.engine.tiling.rows.start])
        for layer, block in zip(session.engine.layers.own, session.engine.blocks, strict=True):
            for name in VARIABLES:
                variable = getattr(block.state, name)
                if variable is not None:
                    tensors[f"{name}{layer}"] = variable.contiguous().clone()
        save_file(tensors, out / f"{case}.{world.stage}.{world.shard}")


def main() -> None:
    workers, shards, out, *cases = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), *sys.argv[4:]
    world = DistributedWorld(workers, shards, timeout=60)
    run_cases(world, out, 1, cases)
    world.close()


if __name__ == "__main__":
    main()
