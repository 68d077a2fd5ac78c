"""What is published holds what is needed, and installs and runs on its own."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from itertools import pairwise
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "pdadmm"
IMPORTED_AS = {"scikit-learn": "sklearn", "vl-convert-python": "vl_convert"}


def wheel(folder: Path) -> Path:
    builder = pytest.importorskip("hatchling.builders.wheel", reason="hatchling is not installed")
    (path,) = builder.WheelBuilder(str(ROOT)).build(directory=str(folder), versions=["standard"])
    return Path(path)


def tracked(folder: Path) -> set[str]:
    return {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_the_wheel_holds_the_package_and_nothing_else(tmp_path: Path) -> None:
    names = set(zipfile.ZipFile(wheel(tmp_path)).namelist())
    package = {name.removeprefix("pdadmm/") for name in names if name.startswith("pdadmm/")}
    assert package == tracked(SOURCE)
    assert {"py.typed", "report/templates/report.html"} <= package
    others = {name.split("/")[0] for name in names} - {"pdadmm"}
    assert [name for name in others if not re.fullmatch(r"pdadmm-[\w.]+\.dist-info", name)] == []


def test_the_sdist_holds_what_the_makefile_and_the_tests_need(tmp_path: Path) -> None:
    builder = pytest.importorskip("hatchling.builders.sdist", reason="hatchling is not installed")
    (path,) = builder.SdistBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {f"src/pdadmm/{name}" for name in tracked(SOURCE)} <= names
    needed = (
        "Makefile",
        "constraints.txt",
        "requirements.lock",
        "mkdocs.yml",
        "LICENSE",
        "README.md",
        "docs/index.md",
        "examples/arrays.py",
    )
    assert [name for name in needed if name not in names] == []
    assert [name for name in names if name.startswith((".venv", "runs/", "build/"))] == []


def imports() -> dict[str, bool]:
    """What the package imports from outside, and whether anywhere at the top of a module."""
    found: dict[str, bool] = {}
    for path in SOURCE.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
                names = [node.module]
            for name in names:
                root = name.split(".")[0]
                found[root] = found.get(root, False) or node in tree.body
    return {name: top for name, top in found.items() if name not in sys.stdlib_module_names and name != "pdadmm"}


def declared() -> tuple[set[str], set[str]]:
    """The modules of the dependencies, and of the extras for users."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    lines = [line for name, group in extras.items() if name not in ("all", "dev", "docs") for line in group]

    def modules(requirements: list[str]) -> set[str]:
        names = [re.split(r"[\[<>=!~; ]", requirement)[0] for requirement in requirements]
        return {IMPORTED_AS.get(name, name) for name in names}

    return modules(project["dependencies"]), modules(lines)


def test_every_dependency_is_imported_and_every_import_declared() -> None:
    core, extras = declared()
    found = imports()
    assert core <= set(found), "a dependency that nothing imports"
    assert set(found) - core - extras == set(), "an import that nothing declares"


def test_the_lock_has_a_hash_for_everything_but_torch_and_names_no_host() -> None:
    """`make lock` writes it; here it is compared with what pyproject.toml asks for."""
    lines = [
        line for line in (ROOT / "requirements.lock").read_text().splitlines() if not line.lstrip().startswith("#")
    ]
    pins = [line.removesuffix(" \\") for line in lines if not line.startswith(" ")]
    hashes = [line.strip().removesuffix(" \\") for line in lines if line.startswith(" ")]
    assert all(re.fullmatch(r"[a-z0-9-]+==[\w.]+", pin) for pin in pins)
    assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", value) for value in hashes)
    assert all(line.startswith(" ") for before, line in pairwise(lines) if before.endswith("\\"))
    assert all(line.endswith("\\") for line in lines if not line.startswith(" "))
    locked = dict(pin.split("==") for pin in pins)
    assert [name for name in locked if re.match("torch$|nvidia|cuda|triton", name)] == []
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    asked = [*project["dependencies"], *(line for group in project["optional-dependencies"].values() for line in group)]
    for requirement in map(Requirement, asked):
        if requirement.name not in ("torch", "pdadmm"):
            assert requirement.name in locked, "run make lock"
            assert locked[requirement.name] in requirement.specifier, "run make lock"


def test_extras_are_imported_only_when_they_are_used() -> None:
    core, extras = declared()
    eager = {name for name, top in imports().items() if top}
    # charts and report.page are themselves imported only when they are asked for; test_layout sees to it that it is.
    assert eager - core - {"altair", "vl_convert", "jinja2"} == set()
    assert extras & core == set()


@pytest.mark.slow
def test_the_wheel_runs_in_an_empty_environment(tmp_path: Path) -> None:
    """Needs an index, or a folder of wheels, that pip knows; with what it depends on but no extra."""
    home = tmp_path / "venv"
    venv.create(home, with_pip=True)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def run(*command: str | Path, seconds: float = 300) -> str:
        words = [str(word) for word in command]
        found = subprocess.run(
            words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=seconds, check=False
        )
        assert found.returncode == 0, found.stdout + found.stderr
        return found.stdout

    install: list[str | Path] = [home / "bin" / "pip", "install", "--quiet", "--disable-pip-version-check"]
    try:
        run(*install, "-c", ROOT / "constraints.txt", wheel(tmp_path), seconds=1200)
    except AssertionError as error:
        if "Connection" in str(error):  # a dependency that does not exist is a failure, and says nothing of connections
            pytest.skip("pip reaches no index")
        raise
    told = run(home / "bin" / "pdadmm", "--version")
    assert "altair not installed" in told
    assert run(home / "bin" / "python", "-m", "pdadmm", "--version") == told
    code = (ROOT / "README.md").read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]
    (tmp_path / "ten_lines.py").write_text(code, encoding="utf-8")
    assert "completed 0.9" in run(home / "bin" / "python", "ten_lines.py")
    assert (tmp_path / "model.safetensors").exists()
    run(home / "bin" / "pdadmm", "train", "--hidden", "2x10", "--epochs", "3", "--out", "runs/a")
    with pytest.raises(AssertionError, match=r"pip install 'pdadmm\[report\]'"):  # run's own, as the code is not 0
        run(home / "bin" / "pdadmm", "report", "runs")
    assert not (tmp_path / "runs" / "a" / "plot.png").exists()
