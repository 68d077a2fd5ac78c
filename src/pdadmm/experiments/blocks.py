"""Single layers of a network, measured on this machine and kept: what the simulation's compute times are made of."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path

from pdadmm.config import Config
from pdadmm.errors import UserError
from pdadmm.machine import available_memory, keep_freed_memory
from pdadmm.plan import Shape
from pdadmm.rundir import make_directory, write_whole
from pdadmm.simulate.blocks import BlockTimes, measure_block

DEPTH = 3  # of the network a block is measured in: a first, two equal hidden and an output layer
KINDS = {"first": 0, "hidden": 2, "output": DEPTH}
MEMORY_SHARE = 0.6  # of the memory that is free


@dataclass(frozen=True)
class Block:
    """A layer to be measured: solver, samples, and the widths around it."""

    solver: str
    shape: Shape
    width: int
    kind: str
    threads: int
    repeats: int

    @property
    def key(self) -> str:
        """A name that tells all that its time depends on."""
        around = {"first": (self.shape.features, self.width), "hidden": (self.width, self.width)}
        n_in, n_out = around.get(self.kind, (self.width, self.shape.outputs))
        return f"{self.solver} {self.shape.samples} samples {n_in} to {n_out}, {self.kind}, {self.threads} threads"

    @property
    def config(self) -> Config:
        """Of the network it is measured in."""
        return Config(hidden=(self.width,) * DEPTH, solver=self.solver, grow="off", threads=self.threads).resolved()

    def measure(self) -> BlockTimes:
        """At all its samples, where the free memory holds them."""
        keep_freed_memory()
        free = available_memory() or 4 * 2**30
        return measure_block(
            self.config, self.shape, KINDS[self.kind], self.repeats, int(MEMORY_SHARE * free), self.shape.samples
        )


class BlockStore:
    """Block times in a file, so that each is measured once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._times: dict[str, BlockTimes] = {}
        self.read()

    def read(self) -> None:
        """Take over what is in the file, where another experiment may have put its own."""
        if not self._path.exists():
            return
        try:
            self._times = {key: BlockTimes(**found) for key, found in json.loads(self._path.read_bytes()).items()}
        except (ValueError, TypeError, AttributeError) as error:
            raise UserError(f"{self._path} does not hold block times ({error}); remove it to measure again") from None

    def __contains__(self, block: Block) -> bool:
        return block.key in self._times

    def __getitem__(self, block: Block) -> BlockTimes:
        return self._times[block.key]

    def add(self, block: Block) -> None:
        """Measure it and write all down."""
        self.read()
        self._times[block.key] = block.measure()
        make_directory(self._path.parent)
        known = {key: dataclasses.asdict(times) for key, times in self._times.items()}
        write_whole(self._path, (json.dumps(known, indent=1) + "\n").encode())


def speed_of(times: dict[str, BlockTimes], layers: int, factor: float = 1.0) -> list[BlockTimes]:
    """For `simulate`: each layer as its kind was measured, all longer by `factor`."""
    kinds = ["first", *["hidden"] * (layers - 2), "output"]
    return [times[kind].times(factor) for kind in kinds]
