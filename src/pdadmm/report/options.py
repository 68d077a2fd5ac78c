"""A run's options against the defaults, and the commands that run it again."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from pdadmm.config import Config, typed
from pdadmm.notation import format_hidden
from pdadmm.report.runs import FoundRun
from pdadmm.rundir import CONFIG_FILE
from pdadmm.shell import as_argument, beside, quoted

_DECIDING = ("data", "method", "solver", "nu", "epochs")  # other defaults follow from these


@dataclass(frozen=True)
class Option:
    """One option of a run."""

    name: str
    group: str
    help: str
    value: str
    """Empty where it is not set."""
    default: str
    """What it would be if it had not been given, with this method and its other options."""

    @property
    def is_given(self) -> bool:
        """Whether it differs from the default."""
        return self.value != self.default


def options(config: Config) -> list[Option]:
    """Every option of a resolved configuration."""
    plain: dict[str, Any] = {name: getattr(config, name) for name in _DECIDING}
    if config.method != "pdadmm":
        plain = {name: plain[name] for name in ("data", "method", "epochs")}
    usual, first = Config(**plain).resolved(), Config().resolved()
    return [
        Option(
            field.name,
            field.metadata["group"],
            field.metadata["help"],
            _text(getattr(config, field.name)),
            _text(getattr(first if field.name in plain else usual, field.name)),
        )
        for field in dataclasses.fields(config)
    ]


def _text(value: object) -> str:
    return "" if value is None else format_hidden(value) if isinstance(value, tuple) else str(value)


def commands(run: FoundRun) -> list[tuple[str, str]]:
    """What each command does, and the command."""
    config = run.config
    if config is None:
        return []
    path = as_argument(run.path)
    again = ["train", "--config", as_argument(run.path / CONFIG_FILE), "--out", as_argument(beside(run.path))]
    found = [("the same again, beside it", again)]
    if run.status in ("interrupted", "killed", "stopped"):
        found.insert(0, ("go on from its last checkpoint", ["train", "--resume", path]))
    flags = [part for option in options(config) if option.is_given for part in _flag(option)]
    found += [
        ("the same without its files, by flags", ["train", *flags]),
        ("what it holds, is it whole", ["inspect", path]),
        ("score its model again", ["evaluate", path]),
    ]
    return [(text, " ".join(["pdadmm", *map(quoted, parts)])) for text, parts in found]


def _flag(option: Option) -> list[str]:
    flag, value = typed(option.name, option.value)
    # A value that begins with a dash would be taken for a flag.
    return [f"{flag}={value}"] if value.startswith("-") else [flag, value]
