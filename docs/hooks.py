"""What the site adds to the pages in docs/, so that nothing stands in two places.

The page of the command line is made from the parser; READMEs of benchmarks become pages, since docs/ links to them; and
a page that the navigation of mkdocs.yml does not name comes last in it, rather than nowhere.
"""

from __future__ import annotations

import argparse
import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from pdadmm.cli.main import build_parser
from pdadmm.config import NONE, Config

ROOT = Path(__file__).resolve().parents[1]
COMMANDS = "<!-- commands -->"


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add the pages that the navigation does not name."""
    named = set(_pages(config.nav))
    found = [path.relative_to(config.docs_dir).as_posix() for path in sorted(Path(config.docs_dir).rglob("*.md"))]
    forgotten = [page for page in found if page not in named]
    if forgotten:
        config.nav = [*(config.nav or []), {"More": forgotten}]
    return config


def _pages(nav: Any) -> Iterator[str]:
    """All files named at any depth."""
    if isinstance(nav, str):
        yield nav
    else:
        for item in nav.values() if isinstance(nav, dict) else nav or []:
            yield from _pages(item)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Take in the pages of the benchmarks, which live beside their programs."""
    benchmarks = ROOT / "benchmarks"
    for path in sorted([*benchmarks.glob("*/README.md"), *benchmarks.glob("*/tables/*.md")]):
        name = path.relative_to(ROOT).as_posix()
        files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links between docs/ and benchmarks/ as they are within the site; the commands in place of their mark."""
    if page.file.src_uri.startswith("benchmarks/"):
        return markdown.replace("](../../docs/", "](../../")
    markdown = re.sub(r"\]\((\.\./)+benchmarks/", lambda match: match[0].replace("../", "", 1), markdown)
    return markdown.replace(COMMANDS, "\n".join([*describe(build_parser()), *_settings()]))


def _settings() -> Iterator[str]:
    """A table of the options that `--set` reaches."""
    yield from ("", "## Options without a flag", "", "| `--set` | |", "|---|---|")
    for field in dataclasses.fields(Config):
        if field.metadata["flag"] == NONE:
            yield f"| `{field.name}` | {_text(field.metadata['help'])} |"


def describe(parser: argparse.ArgumentParser) -> Iterator[str]:
    """A section for each command below `parser`, with a table of options for each of its groups."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {choice.dest: choice.help or "" for choice in action._choices_actions}
            for name, command in action.choices.items():
                yield from ("", f"## {command.prog}", "", _text(helps.get(name, "")) + ".")
                yield from _tables(command)
                yield from describe(command)


def _tables(parser: argparse.ArgumentParser) -> Iterator[str]:
    for group in parser._action_groups:
        shown = [
            action
            for action in group._group_actions
            if not isinstance(action, argparse._HelpAction | argparse._SubParsersAction)
        ]
        if shown:
            yield from ("", f"**{(group.title or '').capitalize()}**", "", "| | |", "|---|---|")
            for action in shown:
                help = getattr(action, "hidden_help", action.help) or ""
                yield f"| {_usage(action)} | {_text(help % {'prog': parser.prog})} |"


def _usage(action: argparse.Action) -> str:
    """`--name VALUE`, as the help shows it."""
    values = "" if action.nargs == 0 else _metavar(action)
    names = ", ".join(action.option_strings)
    return f"`{' '.join(filter(None, (names, values)))}`".replace("|", "\\|")


def _metavar(action: argparse.Action) -> str:
    name = action.metavar if isinstance(action.metavar, str) else action.dest
    if action.choices is not None and action.metavar is None:
        name = "{" + ",".join(map(str, action.choices)) + "}"
    return {"?": f"[{name}]", "*": f"[{name} …]", "+": f"{name} …"}.get(str(action.nargs), name)


def _text(help: str) -> str:
    """Help as it may stand in a table."""
    return help.replace("|", "\\|").replace("<", "&lt;")
