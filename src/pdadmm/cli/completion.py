"""`pdadmm completion`: a script by which bash, zsh or fish completes commands, options and their values.

It is made from the parser, so it knows what the program knows; and it is static, because starting Python and torch at
every press of Tab would take seconds.
"""

from __future__ import annotations

import argparse
import dataclasses
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pdadmm.cli.options import listed
from pdadmm.config import Config
from pdadmm.data.published import VARIANTS

SHELLS = ("bash", "zsh", "fish")
_PATHS = ("DIR", "FILE", "RUN", "MODEL", "DATA", "INIT_FROM", "STORAGE_DIR")


@dataclass(frozen=True)
class Slot:
    """An option, or a place for an argument: what may stand there."""

    flags: tuple[str, ...]
    takes_value: bool
    words: tuple[str, ...]
    is_path: bool
    help: str


@dataclass(frozen=True)
class Command:
    """A command by its words, such as `data fetch`; the empty one is the program itself."""

    name: str
    help: str
    below: tuple[str, ...]
    options: tuple[Slot, ...]
    arguments: tuple[Slot, ...]

    @property
    def words(self) -> tuple[str, ...]:
        """What may stand where no option does."""
        return (*self.below, *(word for slot in self.arguments for word in slot.words))

    @property
    def takes_path(self) -> bool:
        """Whether files may stand there."""
        return any(slot.is_path for slot in self.arguments)


def add_parser(commands: Any, root: argparse.ArgumentParser) -> None:
    """Declare the command; `root` is the parser that it describes."""
    parser = commands.add_parser("completion", help="a script that completes this program's commands in a shell")
    parser.add_argument("shell", choices=SHELLS, help="the shell to print it for")
    parser.set_defaults(run=partial(run, root))


def run(root: argparse.ArgumentParser, arguments: argparse.Namespace) -> int:
    """Print the script."""
    print(script(root, arguments.shell))
    return 0


def script(root: argparse.ArgumentParser, shell: str) -> str:
    """The script for one of `SHELLS`."""
    found = list(_commands(root, "", ""))
    return "\n".join({"bash": _bash, "zsh": _zsh, "fish": _fish}[shell](found))


def _commands(parser: argparse.ArgumentParser, name: str, help: str) -> Iterator[Command]:
    options: list[Slot] = []
    arguments: list[Slot] = []
    below: dict[str, tuple[argparse.ArgumentParser, str]] = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {choice.dest: choice.help or "" for choice in action._choices_actions}
            below = {word: (child, helps.get(word, "")) for word, child in action.choices.items()}
        else:
            (options if action.option_strings else arguments).append(_slot(action))
    yield Command(name, help, tuple(below), tuple(options), tuple(arguments))
    for word, (child, its_help) in below.items():
        yield from _commands(child, f"{name} {word}".strip(), its_help)


def _slot(action: argparse.Action) -> Slot:
    fields = {field.name: field for field in dataclasses.fields(Config)}
    words = tuple(map(str, action.choices or ()))
    if not words and action.option_strings and action.dest in fields:
        words = listed(fields[action.dest])
    if action.metavar in ("DATA", "NAME"):
        words = ("digits", *VARIANTS) if action.metavar == "DATA" else tuple(VARIANTS)
    is_path = action.type is Path or str(action.metavar).split("_OR_")[0] in _PATHS
    return Slot(tuple(action.option_strings), action.nargs != 0, words, is_path, _line(action.help or ""))


def _line(help: str) -> str:
    return help.replace("%%", "%").split(";")[0].split(" (")[0]


def _bash(found: list[Command]) -> Iterator[str]:
    yield "# pdadmm's completion for bash: source <(pdadmm completion bash)"
    yield "_pdadmm() {"
    yield '    local IFS=$\' \\t\\n\' current="${COMP_WORDS[COMP_CWORD]}" previous="${COMP_WORDS[COMP_CWORD-1]}"'
    yield "    local command= word words= options= paths="
    # bash makes three words of --option=value
    yield '    if [[ "$current" == "=" ]]; then current=; elif [[ "$previous" == "=" ]]; then'
    yield '        previous="${COMP_WORDS[COMP_CWORD-2]}"; fi'
    yield '    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do'
    yield '        case "${command:+$command }$word" in'
    yield f'            {_names(found)}) command="${{command:+$command }}$word" ;;'
    yield "        esac"
    yield "    done"
    yield '    case "$command:$previous" in'
    yield from _cases(found)
    yield "    esac"
    yield '    [[ "$current" == -* ]] && words=$options paths='
    yield '    COMPREPLY=( $(compgen -W "$words" -- "$current") )'
    yield '    if [[ -n "$paths" ]]; then'
    yield "        compopt -o filenames 2>/dev/null"
    yield "        IFS=$'\\n'"
    yield '        COMPREPLY+=( $(compgen -f -- "$current") )'
    yield "    fi"
    yield "}"
    yield "complete -F _pdadmm pdadmm"


def _zsh(found: list[Command]) -> Iterator[str]:
    yield "#compdef pdadmm"
    yield "# pdadmm's completion for zsh: source <(pdadmm completion zsh), after compinit"
    yield "_pdadmm() {"
    yield '    local command= word words_= options= paths= current="${words[CURRENT]}" previous="${words[CURRENT-1]}"'
    yield '    if [[ "$current" == --*=* ]]; then previous="${current%%=*}"; compset -P "*="; current=; fi'
    yield '    for word in "${(@)words[2,CURRENT-1]}"; do'
    yield '        case "${command:+$command }$word" in'
    yield f'            ({_names(found)}) command="${{command:+$command }}$word" ;;'
    yield "        esac"
    yield "    done"
    yield '    case "$command:$previous" in'
    yield from (line.replace("words=", "words_=") for line in _cases(found, "("))
    yield "    esac"
    yield '    if [[ "$current" == -* ]]; then words_=$options paths=; fi'
    yield "    compadd -- ${=words_}"
    yield '    if [[ -n "$paths" ]]; then _files; fi'
    yield "}"
    yield 'if [[ "${funcstack[1]}" == _pdadmm ]]; then _pdadmm "$@"; else compdef _pdadmm pdadmm; fi'


def _names(found: list[Command]) -> str:
    return "|".join(f'"{command.name}"' for command in found if command.name)


def _cases(found: list[Command], opening: str = "") -> Iterator[str]:
    """What the variables are after an option that takes a value, and else by the command."""
    for command in found:
        for slot in command.options:
            if slot.takes_value:
                patterns = "|".join(f'"{command.name}:{flag}"' for flag in slot.flags)
                yield f"        {opening}{patterns}) {_values(slot.words, slot.is_path)} ;;"
    for command in found:
        flags = " ".join(flag for slot in command.options for flag in slot.flags)
        values = _values(command.words, command.takes_path)
        yield f'        {opening}"{command.name}:"*) {values} options={shlex.quote(flags)} ;;'


def _values(words: tuple[str, ...], is_path: bool) -> str:
    return f"words={shlex.quote(' '.join(words))} paths={'yes' if is_path else ''}"


def _fish(found: list[Command]) -> Iterator[str]:
    yield "# pdadmm's completion for fish: pdadmm completion fish | source"
    yield "function __pdadmm_at"
    yield "    set -l command ''"
    yield "    for word in (commandline -opc)[2..-1]"
    yield '        set -l longer (string trim -- "$command $word")'
    yield f"        if contains -- $longer {' '.join(shlex.quote(command.name) for command in found if command.name)}"
    yield "            set command $longer"
    yield "        end"
    yield "    end"
    yield '    test "$command" = "$argv[1]"'
    yield "end"
    yield "complete -c pdadmm -f"
    helps = {command.name: _line(command.help) for command in found}
    for command in found:
        here = f"complete -c pdadmm -n {_fished(f'__pdadmm_at {_fished(command.name)}')}"
        for word in command.words:
            yield f"{here} -a {word} -d {_fished(helps.get(f'{command.name} {word}'.strip(), ''))}"
        if command.takes_path:
            yield f"{here} -F"
        for slot in command.options:
            names = " ".join(f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}" for flag in slot.flags)
            value = (" -r -F" if slot.is_path else " -x") if slot.takes_value else ""
            words = f" -a {_fished(' '.join(slot.words))}" if slot.words else ""
            yield f"{here} {names}{value}{words} -d {_fished(slot.help)}"


def _fished(text: str) -> str:
    """Quoted as fish reads it."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
