"""When to stop: once a run has not become better for a while.

The rule sees the rows of the history alone, so that every process of a run, on any number of workers, comes to the same
answer after the same iteration.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from pdadmm.history import Row


@dataclass
class Patience:
    """Is over after more than `rounds` rows in a row that are no better than the best before by more than `tol`.

    For the objective, whose size depends on nu, `tol` is a share of it; for a score it is a difference.
    Rows from before the network has all its `layers` do not count: a run that stopped there would lack some.
    """

    key: str
    """What is compared: `objective`, which is to fall, or a score, which is to rise."""
    tol: float
    rounds: int
    layers: int
    best: float = math.inf
    waited: int = 0

    def see(self, row: Row) -> None:
        """Take in the next row."""
        if row["layers"] < self.layers or self.key not in row:
            return
        falls = self.key == "objective"
        value = row[self.key] if falls else -row[self.key]
        needed = self.tol * abs(value) if falls else self.tol
        self.waited = 0 if value < self.best - needed else self.waited + 1
        self.best = min(self.best, value)

    @property
    def is_over(self) -> bool:
        """Whether the run is to end."""
        return self.waited > self.rounds
