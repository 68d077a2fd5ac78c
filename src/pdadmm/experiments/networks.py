"""The networks whose speedup is asked, and their layers, each measured once on this machine and kept."""

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

KINDS = ("first", "hidden", "output")
MEMORY_SHARE = 0.6  # of the memory that is free


@dataclass(frozen=True)
class Network:
    """A network of the paper at the scale of the experiment; `x` is the published number it stands for."""

    data: str
    solver: str
    x: int
    depth: int
    width: int
    shape: Shape

    def config(self, workers: int) -> Config:
        """Whole from the start, as a timed run has it."""
        return Config(hidden=(self.width,) * self.depth, solver=self.solver, grow="off", workers=workers)

    @property
    def workers(self) -> int:
        """One for each layer, the output counted."""
        return self.depth + 1

    def layer(self, kind: str) -> str:
        """The name of a kind of layer, which tells all that its time depends on."""
        around = {"first": (self.shape.features, self.width), "output": (self.width, self.shape.outputs)}
        n_in, n_out = around.get(kind, (self.width, self.width))
        return f"{self.solver} {self.shape.samples} samples {n_in} to {n_out}, {kind}, 1 threads"


class LayerTimes:
    """Times of single layers on one thread, in a file that several experiments may use."""

    def __init__(self, path: Path, repeats: int) -> None:
        self._path, self._repeats = path, repeats
        self._times: dict[str, BlockTimes] = {}
        self._read()

    def _read(self) -> None:
        if not self._path.exists():
            return
        try:
            self._times = {name: BlockTimes(**found) for name, found in json.loads(self._path.read_bytes()).items()}
        except (ValueError, TypeError, AttributeError) as error:
            raise UserError(f"{self._path} does not hold block times ({error}); remove it to measure again") from None

    def has(self, network: Network) -> bool:
        """Whether all its layers were measured."""
        return all(network.layer(kind) in self._times for kind in KINDS)

    def measure(self, network: Network, kind: str) -> None:
        """Measure a layer that has not been, at all its samples where the free memory holds them, and write it down."""
        self._read()  # another experiment may have put its own there
        if (name := network.layer(kind)) in self._times:
            return
        keep_freed_memory()
        config = dataclasses.replace(network.config(1), threads=1).resolved()
        number = {"first": 0, "hidden": 2, "output": network.depth}[kind]  # a hidden layer after another one
        most_bytes = int(MEMORY_SHARE * (available_memory() or 4 * 2**30))
        samples = network.shape.samples
        self._times[name] = measure_block(config, network.shape, number, self._repeats, most_bytes, samples)
        make_directory(self._path.parent)
        known = {name: dataclasses.asdict(times) for name, times in self._times.items()}
        write_whole(self._path, (json.dumps(known, indent=1) + "\n").encode())

    def speed(self, network: Network, factor: float = 1.0) -> list[BlockTimes]:
        """For `simulate`: each layer as its kind was measured, all longer by `factor`."""
        kinds = ["first", *["hidden"] * (network.depth - 1), "output"]
        return [self._times[network.layer(kind)].times(factor) for kind in kinds]
