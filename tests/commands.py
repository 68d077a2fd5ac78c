"""The command line as a user sees it: what a command printed, how it ended, and small data to give it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pdadmm.config import NONE, Config, flag_of

NO_FLAG = {field.name for field in dataclasses.fields(Config) if field.metadata["flag"] == NONE}
TINY = ("--hidden", "2x8", "--epochs", "3", "--threads", "1")


@dataclass(frozen=True)
class Outcome:
    """How a command ended."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        """Standard output, which must be one JSON value, strictly."""
        assert self.code == 0, self.err
        return strict_json(self.out)


def typed(name: str, value: str) -> tuple[str, str]:
    """What a user types to give an option this value."""
    return ("--set", f"{name}={value}") if name in NO_FLAG else (flag_of(name), value)


Command = Callable[..., Outcome]


def strict_json(text: str) -> Any:
    """JSON as other programs read it: without NaN and Infinity."""

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


def assert_refused(outcome: Outcome, *fragments: str, code: int = 2) -> None:
    """One line on standard error that says all of `fragments`, and nothing on standard output."""
    assert outcome.code == code, outcome
    assert outcome.out == ""
    assert outcome.err.startswith("pdadmm: error: ")
    assert outcome.err.count("\n") == 1
    assert outcome.err.endswith("\n")
    for fragment in fragments:
        assert fragment in outcome.err


def samples(count: int = 40) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Three features; the class is the place of the largest."""
    X = np.random.default_rng(0).normal(size=(count, 3))
    return X, X.argmax(axis=1).astype(np.int64)


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> Path:
    """A .csv file of these columns."""
    lines = [",".join(header), *(",".join(str(cell) for cell in row) for row in rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def rows_of(run: Path) -> list[dict[str, Any]]:
    """history.jsonl, strictly."""
    text = (run / "history.jsonl").read_text(encoding="utf-8")
    assert text.endswith("\n")
    return [strict_json(line) for line in text.splitlines()]
