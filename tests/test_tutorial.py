"""The tutorial and the how-to guides run as they stand: every block, in order, in an empty folder."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pdadmm.cli.main import main

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGES = [DOCS / "index.md", DOCS / "tutorial.md", *sorted((DOCS / "how-to").glob("*.md"))]
SECONDS = 240
_BLOCK = re.compile(r"(?:^<!-- (not run: [^>]+) -->\n)?^```(sh|python)\n(.*?)^```", re.M | re.S)


def blocks(page: Path) -> Iterator[tuple[str, str]]:
    """Language and text of the blocks that are to be run."""
    for reason, language, text in _BLOCK.findall(page.read_text(encoding="utf-8")):
        if not reason:
            yield language, text


def is_plain(text: str) -> bool:
    """Whether a block is nothing but commands of ours, so that it can run in this process."""
    lines = [line for line in text.splitlines() if line.strip()]
    return all(line.startswith("pdadmm ") and not re.search(r"[&|;$>\\]", line) for line in lines)


def run_shell(text: str, folder: Path) -> None:
    """As a user's shell would; whatever it started is gone afterwards."""
    tools = folder / ".tools"
    tools.mkdir(exist_ok=True)
    for name, module in (("pdadmm", "pdadmm"), ("torchrun", "torch.distributed.run")):
        (tools / name).write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m {module} "$@"\n')
        (tools / name).chmod(0o755)
    environment = {**os.environ, "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"}
    with (folder / ".output").open("w+") as output:
        shell = subprocess.Popen(
            ["bash", "-e", "-c", text],
            cwd=folder,
            env=environment,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            code = shell.wait(SECONDS)
        finally:
            if shell.poll() is None:
                os.killpg(shell.pid, signal.SIGKILL)
                shell.wait()
        output.seek(0)
        assert code == 0, f"{text}\n{output.read()}"


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=pytest.mark.slow) if page.stem == "tutorial" else page for page in PAGES],
    ids=lambda page: page.stem,
)
def test_every_block_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "pdadmm.charts", None)  # figures would take most of the time
    names: dict[str, Any] = {"__name__": page.stem}
    for language, text in blocks(page):
        if language == "python":
            exec(compile(text, str(page), "exec"), names)
        elif is_plain(text):
            for line in filter(str.strip, text.splitlines()):
                assert main(shlex.split(line, comments=True)[1:]) == 0, line
        else:
            run_shell(text, tmp_path)


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """An activation that a page registers is forgotten after it."""
    from pdadmm.math import activations

    monkeypatch.setattr(activations, "_REGISTRY", dict(activations._REGISTRY))


def test_pages_have_blocks_and_reasons() -> None:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        fences = len(re.findall(r"^```(?:sh|python)$", text, re.M))
        skipped = len(re.findall(r"^<!-- not run: ", text, re.M))
        assert len(list(blocks(page))) == fences - skipped, page
    assert sum(1 for _ in blocks(DOCS / "tutorial.md")) >= 13
