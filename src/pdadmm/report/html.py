"""HTML from plain texts: everything that comes from a file is escaped here and nowhere else."""

from __future__ import annotations

import html
import json
import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

_MANY = 20  # rows of a table, which then scrolls downwards too


def text(value: object) -> str:
    """As the content of an element or attribute; what cannot be printed, such as a mark that turns it round, is not."""
    shown = "".join(letter if letter.isprintable() or letter in "\n\t" else "\ufffd" for letter in str(value))
    return html.escape(shown, quote=True)


def inline(value: str) -> str:
    """Text with Markdown's marks for code and emphasis."""
    marked = re.sub(r"`([^`]+)`", r"<code>\1</code>", text(value))
    return re.sub(r"(?<![\w*])\*{1,2}([^*\s][^*]*)\*{1,2}(?!\w)", r"<em>\1</em>", marked)


def number(value: float | None, form: str = ".5g") -> str:
    """For people; a dash where there is none."""
    if value is None or math.isnan(value):
        return "–"
    return format(value, form).replace("inf", "∞")


def embedded(value: Any) -> str:
    """JSON that neither ends the element it stands in nor breaks a line in an old parser."""
    found = json.dumps(value, separators=(",", ":"), allow_nan=False)  # ASCII, so U+2028 is escaped already
    return found.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def items(lines: Iterable[str], css: str = "", marked: bool = False) -> str:
    """A list of texts, which may be Markdown, or nothing."""
    entries = "".join(f"<li>{inline(line) if marked else text(line)}</li>" for line in lines)
    return f'<ul class="{css}">{entries}</ul>' if entries else ""


def facts(pairs: Iterable[tuple[str, object]]) -> str:
    """Names and values under one another."""
    entries = "".join(f"<div><dt>{text(name)}</dt><dd>{text(value)}</dd></div>" for name, value in pairs)
    return f'<dl class="facts">{entries}</dl>'


def table(head: Sequence[str], rows: Sequence[str], caption: str, css: str = "", right: Sequence[str] = ()) -> str:
    """A table that scrolls in a box of its own; `rows` are whole `<tr>`s, columns in `right` have numbers."""
    names = "".join(f'<th scope="col"{" class=n" if name in right else ""}>{name}</th>' for name in head)
    size = "box long" if len(rows) > _MANY else "box"
    return (
        f'<div class="{size}" tabindex="0" role="region" aria-label="{text(caption)}"><table class="{css}">'
        f'<caption class="hidden">{text(caption)}</caption><thead><tr>{names}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def cell(shown: str, key: object = None, css: str = "") -> str:
    """A cell whose text is already HTML; `key` is what its column is sorted by."""
    sort = "" if key is None else f' data-key="{text(key)}"'
    return f"<td{sort}{f' class={css}' if css else ''}>{shown}</td>"


def row(cells: Iterable[str], attributes: str = "") -> str:
    """A line of a table."""
    return f"<tr{attributes}>{''.join(cells)}</tr>"
