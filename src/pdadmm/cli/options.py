"""Flags made from `Config`, and a `Config` made from flags, a file and a preset.

A flag given on the command line, or a `--set`, wins over `--config`, which wins over `--preset`, which wins over the
defaults.
"""

from __future__ import annotations

import argparse
import dataclasses
import textwrap
from pathlib import Path
from typing import Any, NoReturn

from pdadmm.config import FIRST, NONE, PRESETS, RETIRED, Config, flag_of, read_toml
from pdadmm.errors import UserError, did_you_mean
from pdadmm.machine import check_device
from pdadmm.math.activations import activation_names, get_activations
from pdadmm.math.losses import get_loss, loss_names
from pdadmm.notation import parse_hidden

_TITLES = {
    "data": "which data",
    "network": "which network",
    "training": "how long, and how it begins",
    "method": "how it learns",
    "machine": "where it runs",
    "run": "what is written on the way",
}
_FIELDS = {field.name: field for field in dataclasses.fields(Config)}
_ALONE = {"grow": "auto", "tensorboard": "on"}  # what these flags mean without a value


def add_config_flags(parser: argparse.ArgumentParser) -> None:
    """The flags of all options that have one; those that are not given leave no trace in the namespace."""
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="a TOML file with options; flags and --set override it"
    )
    parser.add_argument("--preset", choices=tuple(PRESETS), help="a named set of options, which all others override")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="any option by its name; --help-all lists them"
    )
    parser.add_argument("--help-all", action=_HelpAll, nargs=0, help="show all flags and all options, and exit")
    sections = {group: parser.add_argument_group(title) for group, title in _TITLES.items()}
    for field in _FIELDS.values():
        if field.metadata["flag"] != NONE:
            _add_flag(sections[field.metadata["group"]], field)


def _add_flag(section: argparse._ArgumentGroup, field: dataclasses.Field[Any]) -> None:
    alone: dict[str, Any] = {"nargs": "?", "const": _ALONE[field.name]} if field.name in _ALONE else {}
    metavar = {"int": "N", "float": "VALUE"}.get(_kind(field), field.name.upper())
    help = _described(field).replace("%", "%%")
    add = section.add_argument if field.metadata["flag"] == FIRST else add_hidden_flag(section, help)
    add(flag_of(field.name), default=argparse.SUPPRESS, metavar=metavar, help=help, **alone)


def add_hidden_flag(section: argparse._ActionsContainer, help: str) -> Any:
    """Like `section.add_argument`, for a flag that only `--help-all` shows."""

    def add(*names: str, **options: Any) -> None:
        action = section.add_argument(*names, **{**options, "help": argparse.SUPPRESS})
        action.hidden_help = help  # type: ignore[attr-defined]

    return add


class _HelpAll(argparse.Action):
    """`--help-all`: the help with every flag, then the options that only `--set` and files reach."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        for action in parser._actions:
            action.help = getattr(action, "hidden_help", action.help)
        parser.print_help()
        print("\nby --set NAME=VALUE, or in a TOML file (those that say how it learns in its table [method]):")
        for field in _FIELDS.values():
            if field.metadata["flag"] == NONE:
                indent = " " * 24
                text = textwrap.fill(_described(field), 79, initial_indent=indent, subsequent_indent=indent)
                print(f"  {field.name:<20}  {text.lstrip()}" if len(field.name) <= 20 else f"  {field.name}\n{text}")
        parser.exit()


def _described(field: dataclasses.Field[Any]) -> str:
    """An option's help with the names that it may have and its default."""
    text: str = field.metadata["help"]
    if names := listed(field):
        text += f"; one of {', '.join(names)}"
    if field.name == "hidden":
        return text + " (default: 9x100)"
    return text if field.default is None else f"{text} (default: {field.default})"


def listed(field: dataclasses.Field[Any]) -> tuple[str, ...]:
    """The names that an option may have, if it has names."""
    # Those that live in registries are listed here and checked where they are looked up.
    registered = {"activation": activation_names(), "loss": loss_names()}
    return tuple(registered.get(field.name, field.metadata["choices"]))


def what_became_of(flag: str) -> str | None:
    """What to type in place of a flag that an earlier version had."""
    flag = flag.partition("=")[0]
    name = flag.removeprefix("--").replace("-", "_")
    if name in RETIRED:
        return f"{flag} was removed: {RETIRED[name][1]}"
    if name in _FIELDS and _FIELDS[name].metadata["flag"] == NONE:
        return f"{flag} is an option without a flag of its own; give it as --set {name}=VALUE"
    return None


def given_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """The values of the options that flags and `--set` give."""
    values = {name: _parse(field, getattr(arguments, name)) for name, field in _FIELDS.items() if name in arguments}
    for setting in arguments.set:
        name, equals, text = setting.partition("=")
        name = name.strip().removeprefix("method.")
        if not equals:
            raise UserError(f"--set needs NAME=VALUE; got {setting!r}")
        if name not in _FIELDS:
            raise UserError(f"--set: there is no option {name!r}{did_you_mean(name, _FIELDS)}; --help-all lists them")
        values[name] = _parse(_FIELDS[name], text)
    return values


def config_from(arguments: argparse.Namespace, base: Config | None = None) -> Config:
    """The configuration that the flags, the file and the preset make together, upon that of a run to resume."""
    values: dict[str, Any] = base.to_mapping() if base is not None else {}
    values |= PRESETS[arguments.preset] if arguments.preset else {}
    if arguments.config is not None:
        from_file = read_toml(arguments.config)
        Config.from_mapping(from_file, str(arguments.config))  # a mistake in the file is named as the file's
        values |= from_file
    config = Config.from_mapping(values | given_options(arguments))
    # Before the data is read, so that a slip costs no wait and is not taken for a fault of the data.
    get_activations(config.activation, len(config.hidden))
    get_loss(config)
    check_device(config.device)
    return config


def _kind(field: dataclasses.Field[Any]) -> str:
    return str(field.type).split(" | ")[0]


def _parse(field: dataclasses.Field[Any], text: str) -> Any:
    """What was typed as the type of its option."""
    if field.name == "hidden":
        return parse_hidden(text)
    kind = _kind(field)
    try:
        return {"int": int, "float": float, "str": str}[kind](text)
    except ValueError:
        needed = {"int": "a whole number", "float": "a number"}[kind]
        shown = f"--set {field.name}" if field.metadata["flag"] == NONE else flag_of(field.name)
        raise UserError(f"{shown} must be {needed}; got {text!r}") from None


def add_output_flags(parser: argparse._ActionsContainer, out_help: str) -> None:
    """`--out` and `--json`, which every command that writes or prints has."""
    parser.add_argument("--out", type=_directory, metavar="DIR", help=out_help)
    add_json_flag(parser)


def _directory(text: str) -> Path:
    if not text:  # Path would take it for the current directory
        raise argparse.ArgumentTypeError("must name a directory; got ''")
    return Path(text)


def add_json_flag(parser: argparse._ActionsContainer) -> None:
    """`--json`."""
    parser.add_argument("--json", action="store_true", help="print the result as JSON on standard output")
