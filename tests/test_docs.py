"""The documentation agrees with the code: keys, names, links, exit codes, and the worked examples run."""

from __future__ import annotations

import dataclasses
import importlib
import re
import warnings
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor

from brute import minimise_1d, minimise_rows
from pdadmm import errors, rundir
from pdadmm.checkpoint.saver import Cost
from pdadmm.config import Config
from pdadmm.history import KEYS
from pdadmm.math import activations, losses

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.glob("*.md"), ROOT / "README.md"])
_FENCED = re.compile(r"^ *```.*?^ *```", re.DOTALL | re.MULTILINE)


def section(page: str, heading: str) -> str:
    """The text from `## heading` to the next heading of that level."""
    text = (DOCS / page).read_text(encoding="utf-8")
    match = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE)
    assert match, f"{page} has no section {heading!r}"
    return match[1]


def rows(text: str) -> list[list[str]]:
    """The cells of every table line but the rules."""
    lines = [line for line in text.splitlines() if line.startswith("|") and not line.startswith("|---")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def test_the_history_table_has_every_key_and_no_other() -> None:
    keys = [row[0].strip("`") for row in rows(section("run-directory.md", "history.jsonl"))[1:]]
    assert len(keys) == len(set(keys))
    assert set(keys) == set(KEYS)


def test_the_run_directory_page_names_every_file_and_exit_code() -> None:
    first_table = (DOCS / "run-directory.md").read_text(encoding="utf-8").split("\n## ")[0]
    folders = {f"{name}/" for name in rundir._FOLDERS}
    assert {row[0].strip("`") for row in rows(first_table)[1:]} == {*rundir._FILES, *folders, rundir.REPORT_FILE}
    listed = {row[1].strip("`"): int(row[0]) for row in rows(section("run-directory.md", "Exit codes"))[1:] if row[1]}
    raised = {
        name: kind.exit_code
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, errors.PdadmmError) and kind is not errors.PdadmmError
    }
    assert listed == raised


def test_the_summary_table_has_every_key_of_checkpoints() -> None:
    table = dict(row[:2] for row in rows(section("run-directory.md", "summary.json"))[1:])
    assert set(re.findall(r"`(\w+)`", table["`checkpoints`"])) == {field.name for field in dataclasses.fields(Cost)}


def test_the_recovery_page_says_what_a_resumed_run_may_change() -> None:
    listed = {row[0]: set(re.findall(r"`(\w+)`", row[1])) for row in rows(section("recovery.md", "Resume"))[1:]}
    for kind in ("free", "fixed"):
        names = {field.name for field in dataclasses.fields(Config) if field.metadata["on_resume"] == kind}
        assert listed[kind] == names
    assert set(listed) == {field.metadata["on_resume"] for field in dataclasses.fields(Config)}


def exists(dotted: str) -> bool:
    """Whether a dotted name is a module, or an attribute or dataclass field reached from one."""
    parts = dotted.split(".")
    found: object = None
    for depth in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:depth]))
            break
        except ModuleNotFoundError:
            continue
    assert isinstance(found, ModuleType)
    for index, part in enumerate(parts[depth:], start=depth + 1):
        if hasattr(found, part):
            found = getattr(found, part)
        else:
            fields = {f.name for f in dataclasses.fields(found)} if dataclasses.is_dataclass(found) else set()
            annotated = getattr(found, "__annotations__", {})
            return index == len(parts) and (part in fields or part in annotated)
    return True


def test_the_readmes_ten_lines_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (ROOT / "README.md").read_text()
    code = text.split("```python\n")[1].split("```")[0]
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings(action="ignore"):
        exec(compile(code, "README.md", "exec"), {})
    assert (tmp_path / "model.safetensors").exists()


def dotted_names(page: Path) -> list[str]:
    return sorted(set(re.findall(r"`(pdadmm(?:\.\w+)+)`", page.read_text(encoding="utf-8"))))


def test_dotted_names_are_told_apart() -> None:
    assert exists("pdadmm.math.state.LayerState.p")
    assert not exists("pdadmm.math.state.LayerState.no_such_field")
    assert not exists("pdadmm.no_such_module")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_dotted_name_exists(page: Path) -> None:
    names = dotted_names(page)
    assert len(names) > 30 or page.name != "method.md"
    assert [name for name in names if not exists(name)] == []


def slugs(page: Path) -> set[str]:
    """The anchors GitHub makes of a page's headings."""
    text = _FENCED.sub("", page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_within_the_documentation_lead_somewhere(page: Path) -> None:
    text = _FENCED.sub("", page.read_text(encoding="utf-8"))
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = page.parent / path if path else page
        assert file.exists(), f"{page.name} links to {target}"
        if anchor and file.suffix == ".md":
            assert anchor in slugs(file), f"{page.name} links to {target}"


def run_example(class_name: str, module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Execute the block of docs/extending.md that defines a class, as if it stood at the end of `module`."""
    monkeypatch.setattr(module, "_REGISTRY", dict(module._REGISTRY))
    blocks = re.findall(r"^```python\n(.*?)^```", (DOCS / "extending.md").read_text(encoding="utf-8"), re.M | re.S)
    (source,) = [block for block in blocks if f"class {class_name}(" in block]
    exec(compile(source, "docs/extending.md", "exec"), vars(module).copy())


def test_the_example_activation_finds_the_minimum(monkeypatch: pytest.MonkeyPatch) -> None:
    run_example("ReLU6", activations, monkeypatch)
    f = activations.get_activation("relu6")
    generator = torch.Generator().manual_seed(0)
    a, q, z_old = (5 * torch.randn(200, generator=generator, dtype=torch.float64) for _ in range(3))

    def subproblem(z: Tensor) -> Tensor:
        value = f.forward(z, torch.empty_like(z))
        return (z - a[:, None]) ** 2 + (q[:, None] - value) ** 2 + 0.1 * (z - z_old[:, None]) ** 2

    found = subproblem(f.z_step(a, q, z_old, 0.1, torch.empty_like(a))[:, None])[:, 0]
    bound = torch.full_like(a, 60.0)
    assert float((found - minimise_1d(subproblem, -bound, bound)).max()) < 1e-9
    in_place = a.clone()
    torch.testing.assert_close(f.forward(in_place, in_place), torch.nn.functional.relu6(a))


def test_the_example_loss_finds_the_minimum(monkeypatch: pytest.MonkeyPatch) -> None:
    run_example("EpsilonInsensitive", losses, monkeypatch)
    loss = losses.get_loss(Config(loss="epsilon_insensitive"))
    generator = torch.Generator().manual_seed(0)
    a, y = (torch.randn(50, 3, generator=generator, dtype=torch.float64) for _ in range(2))
    weight = torch.rand(50, generator=generator, dtype=torch.float64)

    def objective(z: Tensor) -> Tensor:
        return loss.value(z, y, weight) + 0.05 * ((z - a) ** 2).sum(1)

    found = objective(loss.prox(a, y, weight, torch.zeros_like(a), 0.1)[0])
    assert float((found - minimise_rows(objective, a)).max()) < 1e-9
    z = a.clone().requires_grad_()
    (slope,) = torch.autograd.grad(loss.value(z, y, weight).sum(), z)
    torch.testing.assert_close(loss.gradient(a, y, weight), slope)


def test_every_test_that_the_page_on_security_names_exists() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", (DOCS / "security.md").read_text(encoding="utf-8"))
    for path, name in named:
        assert f"\ndef {name}(" in (ROOT / path).read_text(encoding="utf-8"), f"{path} has no {name}"
    table = rows((DOCS / "security.md").read_text(encoding="utf-8"))[1:]
    assert all("::test_" in row[2] for row in table)
