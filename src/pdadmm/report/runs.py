"""Runs as they are found below a folder: whole, under way, cut off or damaged.

Nothing is verified but what is shown: `pdadmm inspect` looks at checkpoints and models. What cannot be read is put down
as a problem, and the rest is shown.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pdadmm.config import Config
from pdadmm.errors import DamageError, PdadmmError
from pdadmm.experiments.result import RESULT_FILE
from pdadmm.history import Row
from pdadmm.inspection import number_in, run_status
from pdadmm.run import read_config
from pdadmm.rundir import (
    CHECKPOINTS,
    CONFIG_FILE,
    EVENTS,
    HISTORY_FILE,
    LOCK_FILE,
    SUMMARY_FILE,
    is_in_use,
    read_history,
)
from pdadmm.shell import printable

_LARGEST = 2**28  # bytes of a file that is read as a whole


@dataclass
class FoundRun:
    """All that is known of a run."""

    path: Path
    name: str
    config: Config | None = None
    """Resolved; None where config.toml cannot be read."""
    rows: list[Row] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)
    """Empty before the end of a run."""
    status: str = "stopped"
    problems: list[str] = field(default_factory=list)

    @property
    def method(self) -> str:
        """What trained it at last."""
        return self.config.method if self.config else "unknown"

    @property
    def data(self) -> str:
        """The data set's name, or its file's."""
        return printable(Path(self.config.data).name) if self.config else "unknown"

    @property
    def epoch(self) -> int:
        """The last."""
        return int(self.rows[-1]["epoch"]) if self.rows else 0

    @property
    def seconds(self) -> float:
        """Of training, over all rows."""
        return sum(number_in(row, "seconds") or 0.0 for row in self.rows)

    def last(self, *keys: str) -> float | None:
        """The last value that the history has for one of the keys."""
        values = (number_in(row, key) for key in keys for row in reversed(self.rows))
        return next((value for value in values if value is not None), None)


def find_folders(folder: Path) -> tuple[list[Path], list[Path]]:
    """Run directories and folders of experiments, at and below a folder, in the order of their names."""
    runs, experiments = [], []
    for place, folders, files in os.walk(folder):
        # What belongs to a run is no folder of runs, and hidden folders are nobody's results.
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in (CHECKPOINTS, EVENTS))
        runs += [Path(place)] if HISTORY_FILE in files else []
        experiments += [Path(place)] if RESULT_FILE in files else []
    return runs, experiments


def read_run(path: Path, folder: Path) -> FoundRun:
    """A run as far as it can be read."""
    found = FoundRun(path, printable(path.relative_to(folder).as_posix() if path != folder else path.resolve().name))
    running = is_in_use(path)
    try:
        found.config = read_config(path).resolved()
    except (PdadmmError, OSError, ArithmeticError) as error:
        found.problems.append(named(path / CONFIG_FILE, error))
    found.rows = read_history(path, found.problems)
    try:
        summary = json.loads(read_bytes(path / SUMMARY_FILE))
        if not isinstance(summary, dict) or type(summary.get("epochs")) is not int or "status" not in summary:
            raise DamageError(f"{path / SUMMARY_FILE} does not say how the run ended")
        found.summary = summary | {"status": printable(str(summary["status"]))}
    except FileNotFoundError:
        pass  # the run has not ended
    except (DamageError, OSError, ValueError, RecursionError) as error:
        found.problems.append(named(path / SUMMARY_FILE, error))
    found.status = run_status(running, (path / LOCK_FILE).exists(), found.config, found.epoch, found.summary or None)
    return found


def read_bytes(path: Path) -> bytes:
    """A plain file of reasonable size; opening a pipe would wait forever."""
    size = path.stat().st_size
    if not path.is_file() or size > _LARGEST:
        raise DamageError(f"{path} is not a plain file of at most {_LARGEST} bytes")
    return path.read_bytes()


def named(path: Path, error: Exception) -> str:
    """What is wrong with which file."""
    reason = error.strerror or str(error) if isinstance(error, OSError) else str(error)
    return reason if str(path) in reason else f"{path}: {reason}"
