"""The documentation site builds without a warning, shows what the program has, and fetches nothing when opened."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import pdadmm
from pdadmm.cli.main import build_parser
from pdadmm.errors import PdadmmError

for needed in ("mkdocs", "material", "mkdocstrings"):
    pytest.importorskip(needed, reason="the docs extra is not installed")

ROOT = Path(__file__).resolve().parents[1]


def build(root: Path, out: Path) -> subprocess.CompletedProcess[str]:
    # Not --quiet: it drops warnings before strict mode counts them, and nothing would ever fail.
    command = [sys.executable, "-m", "mkdocs", "build", "--config-file", str(root / "mkdocs.yml")]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT / "src")}
    return subprocess.run(
        [*command, "--site-dir", str(out)],
        cwd=root,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    found = build(ROOT, out)
    assert found.returncode == 0, found.stdout + found.stderr
    assert "WARNING" not in found.stderr
    return out


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def test_every_page_is_there_and_in_the_navigation(site: Path) -> None:
    start = text_of(site / "index.html")
    for page in (ROOT / "docs").rglob("*.md"):
        address = page.relative_to(ROOT / "docs").with_suffix(".html").as_posix()
        assert (site / address).exists()
        assert f'href="{address}"' in start, f"{address} is not in the navigation"


def test_nothing_is_fetched(site: Path) -> None:
    for page in site.rglob("*.html"):
        text = text_of(page)
        loaded = re.findall(r"<(?:script|img|iframe)[^>]+src=\"?([^\"\s>]+)", text)
        loaded += re.findall(r"<link[^>]+href=\"?([^\"\s>]+)", text)
        assert [address for address in loaded if re.match(r"(?:[a-z]+:)?//", address)] == [], page
    for style in site.rglob("*.css"):
        assert not re.search(r"(?:@import|url\()\s*[\"']?(?:https?:)?//", text_of(style)), style


def test_the_reference_has_the_public_names(site: Path) -> None:
    text = text_of(site / "reference" / "python.html")
    shown = set(re.findall(r'id="(pdadmm[\w.]*)"', text))
    public = {f"pdadmm.{name}" for name in pdadmm.__all__ if not name.startswith("__")}
    assert public <= shown
    assert {f"pdadmm.errors.{kind.__name__}" for kind in PdadmmError.__subclasses__()} <= shown


def test_the_page_of_the_command_line_has_every_option(site: Path) -> None:
    text = text_of(site / "reference" / "cli.html")
    commands = next(action.choices for action in build_parser()._actions if isinstance(action.choices, dict))
    for name, command in commands.items():
        assert f'id="pdadmm-{name}"' in text
        for action in command._actions:
            for flag in action.option_strings:
                assert flag in ("-h", "--help") or re.search(rf"(<code>|, ){flag}[ <,]", text), f"{name} {flag}"


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("[gone](no-such-page.md)", "no-such-page.md"),
        pytest.param("[gone](method.md#no-such-heading)", "no-such-heading", marks=pytest.mark.slow),
        pytest.param("::: pdadmm.no_such_name", "no_such_name", marks=pytest.mark.slow),
    ],
)
def test_a_broken_reference_fails(tmp_path: Path, line: str, complaint: str) -> None:
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    shutil.copytree(ROOT / "benchmarks", tmp_path / "benchmarks", ignore=shutil.ignore_patterns("curves"))
    (tmp_path / "src").symlink_to(ROOT / "src")
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    (tmp_path / "docs" / "index.md").write_text(f"# Start\n\n{line}\n", encoding="utf-8")
    found = build(tmp_path, tmp_path / "site")
    assert found.returncode != 0
    assert complaint in found.stdout + found.stderr
