"""Who hears of a run while it goes on."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field

from pdadmm.errors import PdadmmWarning
from pdadmm.history import Row


def _warn(note: str) -> None:
    warnings.warn(note, PdadmmWarning, stacklevel=6)


@dataclass
class Observer:
    """By default notes become warnings, rows go unheard and nothing stops the run."""

    on_row: Callable[[Row], None] = field(default=lambda row: None)
    on_note: Callable[[str], None] = field(default=_warn)
    should_stop: Callable[[], bool] = field(default=lambda: False)
    on_warning: Callable[[str], None] = field(default=_warn)
    """Told of what went wrong without ending the run, such as a damaged checkpoint."""
    is_enough: Callable[[Row], bool] = field(default=lambda row: False)
    """Asked after a row whether the run is to end with it; all processes must give the same answer."""


def silent() -> Observer:
    """For processes that leave the talking to another."""
    return Observer(on_note=lambda note: None, on_warning=lambda note: None)
