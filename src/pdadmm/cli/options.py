"""Flags made from `Config`, and a `Config` made from flags, a file and a preset.

A flag given on the command line wins over `--config`, which wins over `--preset`, which wins over the defaults.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pdadmm.config import PRESETS, Config, read_toml
from pdadmm.errors import UserError
from pdadmm.machine import check_device
from pdadmm.math.activations import activation_names, get_activations
from pdadmm.math.losses import get_loss, loss_names
from pdadmm.notation import parse_hidden

_TITLES = {
    "data": "data",
    "network": "network",
    "method": "method",
    "growth": "growing depth",
    "workers": "workers",
    "run": "run",
}


def add_config_flags(parser: argparse.ArgumentParser, groups: Iterable[str] = tuple(_TITLES)) -> None:
    """One flag an option; those that are not given leave no trace in the namespace."""
    parser.add_argument("--config", type=Path, metavar="FILE", help="a TOML file with options; flags override it")
    parser.add_argument(
        "--preset", choices=tuple(PRESETS), help="a named set of options; --config and flags override it"
    )
    for group in groups:
        section = parser.add_argument_group(_TITLES[group])
        for field in dataclasses.fields(Config):
            if field.metadata["group"] == group:
                _add_flag(section, field)


def _add_flag(section: argparse._ArgumentGroup, field: dataclasses.Field[Any]) -> None:
    text = field.metadata["help"]
    if names := listed(field):
        text += f"; one of {', '.join(names)}"
    if field.name == "hidden":
        text += " (default: 9x100)"
    elif field.default is not None:
        text += f" (default: {field.default})"
    alone = {"grow": "auto", "tensorboard": "on"}.get(field.name)
    kwargs: dict[str, Any] = {"nargs": "?", "const": alone} if alone else {}
    section.add_argument(
        f"--{field.name.replace('_', '-')}",
        default=argparse.SUPPRESS,
        metavar={"int": "N", "float": "VALUE"}.get(_kind(field), field.name.upper()),
        help=text.replace("%", "%%"),
        **kwargs,
    )


def listed(field: dataclasses.Field[Any]) -> tuple[str, ...]:
    """The names that an option may have, if it has names."""
    # Those that live in registries are listed here and checked where they are looked up.
    registered = {"activation": activation_names(), "loss": loss_names()}
    return tuple(registered.get(field.name, field.metadata["choices"]))


def config_from(arguments: argparse.Namespace, base: Config | None = None) -> Config:
    """The configuration that the flags, the file and the preset make together, upon that of a run to resume."""
    values: dict[str, Any] = base.to_mapping() if base is not None else {}
    values |= PRESETS[arguments.preset] if arguments.preset else {}
    if arguments.config is not None:
        from_file = read_toml(arguments.config)
        Config.from_mapping(from_file, str(arguments.config))  # a mistake in the file is named as the file's
        values |= from_file
    for field in dataclasses.fields(Config):
        if hasattr(arguments, field.name):
            values[field.name] = _parse(field, getattr(arguments, field.name))
    config = Config.from_mapping(values)
    # Before the data is read, so that a slip costs no wait and is not taken for a fault of the data.
    get_activations(config.activation, len(config.hidden))
    get_loss(config)
    check_device(config.device)
    return config


def _kind(field: dataclasses.Field[Any]) -> str:
    return str(field.type).split(" | ")[0]


def _parse(field: dataclasses.Field[Any], text: str) -> Any:
    """A flag's text as the type of its option."""
    if field.name == "hidden":
        return parse_hidden(text)
    kind = _kind(field)
    try:
        return {"int": int, "float": float, "str": str}[kind](text)
    except ValueError:
        needed = {"int": "a whole number", "float": "a number"}[kind]
        raise UserError(f"--{field.name.replace('_', '-')} must be {needed}; got {text!r}") from None


def add_output_flags(parser: argparse.ArgumentParser, out_help: str) -> None:
    """`--out` and `--json`, which every command that writes or prints has."""
    parser.add_argument("--out", type=_directory, metavar="DIR", help=out_help)
    add_json_flag(parser)


def _directory(text: str) -> Path:
    if not text:  # Path would take it for the current directory
        raise argparse.ArgumentTypeError("must name a directory; got ''")
    return Path(text)


def add_json_flag(parser: argparse.ArgumentParser) -> None:
    """`--json`."""
    parser.add_argument("--json", action="store_true", help="print the result as JSON on standard output")
