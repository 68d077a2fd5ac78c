"""A run that an experiment needs: its directory, its options, and how far it has come."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pdadmm.config import Config
from pdadmm.engine.cost import Timing
from pdadmm.engine.typical import TYPICAL
from pdadmm.errors import UserError
from pdadmm.history import Row
from pdadmm.notation import format_hidden
from pdadmm.plan import Shape, cost_model
from pdadmm.run import read_config
from pdadmm.rundir import CONFIG_FILE, HISTORY_FILE, SUMMARY_FILE, read_history

START_UP = 4.0  # seconds until a process has begun


@dataclass(frozen=True)
class Case:
    """One `pdadmm train`."""

    path: Path
    """The run directory."""
    config: Config
    shape: Shape
    """Of its data, from which the work is estimated."""
    alone: bool = False
    """Its time is what it is run for, so nothing else may run beside it."""

    @property
    def name(self) -> str:
        """That of its directory."""
        return self.path.name

    @property
    def key(self) -> str:
        """A name that no other run has."""
        return str(self.path)

    @property
    def work(self) -> float:
        """Seconds of the whole run on typical cores; only what is left against what is done matters."""
        timing = Timing(cost_model(self.config.resolved(), self.shape), TYPICAL)
        processes = self.config.workers * self.config.shards
        return START_UP + self.config.epochs * sum(timing.layer_seconds()) / processes

    def arguments(self, threads: int) -> list[str]:
        """Of `pdadmm train`, to begin or to go on."""
        if self.is_begun() and not self.alone:
            return ["--resume", str(self.path), "--data", self.config.data, "--threads", str(threads)]
        flags = []
        for field in dataclasses.fields(self.config):
            value = self.config.to_mapping().get(field.name)
            if value is not None and getattr(self.config, field.name) != field.default:
                flags += [f"--{field.name.replace('_', '-')}", str(value)]
        # What was timed in part is timed again: it has no checkpoints, which would take time.
        again = ["--overwrite"] if self.is_begun() else []
        return [*flags, *again, "--threads", str(threads), "--out", str(self.path)]

    def is_begun(self) -> bool:
        """Whether there is something to go on with."""
        return (self.path / CONFIG_FILE).exists()

    def is_finished(self) -> bool:
        """Whether it has all its epochs."""
        summary = self.summary()
        return summary is not None and (summary["status"], summary["epochs"]) == ("completed", self.config.epochs)

    def summary(self) -> dict[str, Any] | None:
        """How it ended, if it did."""
        try:
            found: dict[str, Any] = json.loads((self.path / SUMMARY_FILE).read_bytes())
        except (OSError, ValueError):
            return None
        return found

    def epochs_done(self) -> int:
        """Epochs in the history."""
        try:
            return (self.path / HISTORY_FILE).read_bytes().count(b"\n")
        except OSError:
            return 0

    def history(self) -> list[Row]:
        """Its rows."""
        return read_history(self.path)

    def check(self) -> None:
        """Refuse a directory that holds a run of other options: its numbers are not those asked for."""
        if not self.is_begun():
            return
        before, now = read_config(self.path).resolved(), self.config.resolved()
        # First the options that are the experiment's own, as others follow from them.
        names = ["epochs", "workers", "shards"]
        names += [field.name for field in dataclasses.fields(Config) if field.metadata["on_resume"] != "free"]
        for name in names:
            was, is_now = getattr(before, name), getattr(now, name)
            if was != is_now:
                both = [format_hidden(value) if isinstance(value, tuple) else value for value in (was, is_now)]
                raise UserError(
                    f"{self.path} holds a run with {name} {both[0]}, where {both[1]} is needed; "
                    f"choose another --out, or remove it"
                )
