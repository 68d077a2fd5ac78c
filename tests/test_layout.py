"""The house has one direction of flow: a module imports only from the rows below its own."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "src" / "pdadmm"

# From the ground up. Modules of one row may use each other.
ROWS = [
    ["errors", "history", "notation", "config", "version", "observer", "openmp", "options"],
    ["machine", "rundir", "growth", "storage", "events", "shell", "patience"],
    ["math", "data"],
    ["network", "block"],
    ["engine"],
    ["model", "folding", "plan", "checkpoint"],
    ["simulate"],
    ["method"],
    ["session"],
    ["rivals"],
    ["prepare"],
    ["trainer"],
    ["summary", "charts", "modules", "crew"],
    ["estimator"],
    ["run"],
    ["inspection", "export"],
    ["report", "experiments"],
    ["__init__"],
    ["cli", "__main__"],
]
HEIGHT = {name: height for height, row in enumerate(ROWS) for name in row}
LAZY = {
    "altair": ("charts",),
    "vl_convert": ("charts", "report"),
    "jinja2": ("report",),
    "polars": ("data",),
    "tqdm": ("cli", "experiments"),
    "scipy": ("data",),
    "urllib": ("data",),
    "tensorboard": ("events",),
    "onnx": ("export",),
    "onnxruntime": ("export",),
}


def modules() -> list[Path]:
    return sorted(ROOT.rglob("*.py"))


def row_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported(path: Path) -> list[str]:
    names = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names += [f"{node.module}.{alias.name}" if node.module == "pdadmm" else node.module for alias in node.names]
        elif isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
    return names


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_go_down(path: Path) -> None:
    own = row_of(path)
    for name in imported(path):
        parts = name.split(".")
        if parts[0] == "pdadmm" and len(parts) > 1:
            assert HEIGHT[parts[1]] <= HEIGHT[own], f"{own} imports {name}"


def test_doors_are_opened_only_behind_them() -> None:
    for path in modules():
        for name in imported(path):
            doors = LAZY.get(name.split(".")[0])
            assert doors is None or row_of(path) in doors, f"{path} imports {name}"


def test_importing_the_package_loads_no_extra() -> None:
    import subprocess
    import sys

    extras = (
        "altair",
        "vl_convert",
        "jinja2",
        "polars",
        "pandas",
        "scipy",
        "tensorboard",
        "onnx",
        "onnxruntime",
    )
    code = f"import sys, pdadmm.cli.main; print([m for m in {extras} if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert found.stdout.strip() == "[]"
