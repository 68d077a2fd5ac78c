"""The options that `pdadmm.fit` and the estimators share: solver, nu and rho by name, all others in one mapping."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from pdadmm.config import Config
from pdadmm.errors import UserError, did_you_mean

_OF_RUNS = (
    *("data", "target", "weight", "test_fraction", "split_seed", "init_from", "shards", "placement", "timeout"),
    *("restarts", "checkpoint_every", "checkpoint_minutes", "tensorboard", "method", "learning_rate", "batch_size"),
)
"""What a fit of arrays in memory has no use for."""


def config_of_fit(
    solver: str, nu: float | None, rho: float | None, method: Mapping[str, Any] | None, **decided: Any
) -> Config:
    """The configuration that a fit decides, with the options of `method`, which may be any that it leaves open."""
    settings = {"solver": solver, "nu": nu, "rho": rho, **decided}
    known = [field.name for field in dataclasses.fields(Config) if field.name not in (*settings, *_OF_RUNS)]
    if not isinstance(method, Mapping | None):
        raise UserError(f"method must be a mapping of options, such as {{'ridge': 0.01}}; got {method!r}")
    for name in method or {}:
        if name in settings:
            raise UserError(f"method must not have {name!r}, which the fit's own parameters or its data decide")
        if name not in known:
            meant = did_you_mean(str(name), known)
            raise UserError(f"method must have options of the training; got {name!r}{meant}; known: {', '.join(known)}")
    settings |= {"scaling": "standard", **(method or {})}
    plain = {name: value.item() if hasattr(value, "item") else value for name, value in settings.items()}
    return Config.from_mapping({name: value for name, value in plain.items() if value is not None})
