"""Shells really complete what the printed scripts say."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from commands import Command, assert_refused
from pdadmm.cli.completion import SHELLS, script
from pdadmm.cli.main import build_parser
from pdadmm.math.activations import activation_names

COMMANDS: list[str] = next(
    list(action.choices) for action in build_parser()._actions if action.dest == "command" and action.choices
)
CASES = [
    (("",), set(COMMANDS)),
    (("tr",), {"train"}),
    (("data", "fe"), {"fetch"}),
    (("data", "fetch", "svhn-c"), {"svhn-corrected"}),
    (("train", "--rest"), {"--restarts"}),
    (("train", "--solver", ""), {"exact", "linearized", "backtracking"}),
    (("train", "--activation", ""), set(activation_names())),
    (("train", "--data", "run."), {"run.npz"}),
    (("train", "--allow"), {"--allow-changes"}),
    (("train", "--quiet", "--data", "fashion-c"), {"fashion-corrected"}),
    (("evaluate", "run."), {"run.npz"}),
    (("train", "--epochs", ""), set()),
    (("train", "--out", "train", "--rest"), {"--restarts"}),
]


def shell(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not installed")
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in SHELLS:
        (tmp_path / f"script.{name}").write_text(script(build_parser(), name), encoding="utf-8")
    (tmp_path / "run.npz").touch()
    return tmp_path


@pytest.mark.parametrize(
    ("words", "expected"), CASES, ids=lambda case: " ".join(sorted(case)) if isinstance(case, set) else " ".join(case)
)
def test_bash_completes(folder: Path, words: tuple[str, ...], expected: set[str]) -> None:
    program = (
        'source script.bash; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); '
        '_shtab_pdadmm pdadmm "${@: -1}"; for reply in "${COMPREPLY[@]}"; do echo "$reply"; done; complete -p pdadmm'
    )
    command = [shell("bash"), "--norc", "-c", program, "bash", "pdadmm", *words]
    found = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=30, check=True)
    *replies, registered = found.stdout.splitlines()
    assert set(replies) == expected
    assert registered.endswith("-F _shtab_pdadmm pdadmm")
    assert found.stderr == ""


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("pdadmm tr", ["train"]),
        ("pdadmm data fe", ["fetch"]),
        ("pdadmm data fetch svhn-c", ["svhn-corrected"]),
        ("pdadmm train --rest", ["--restarts"]),
        ("pdadmm train --solver ", ["exact", "linearized", "backtracking"]),
        ("pdadmm evaluate run.", ["run.npz"]),
        ("pdadmm train --epochs ", []),
    ],
)
def test_fish_completes(folder: Path, line: str, expected: list[str]) -> None:
    command = [shell("fish"), "--no-config", "-c", f"source script.fish; complete -C '{line}'"]
    home = {**os.environ, "HOME": str(folder), "XDG_CONFIG_HOME": str(folder), "XDG_DATA_HOME": str(folder)}
    found = subprocess.run(command, cwd=folder, env=home, capture_output=True, text=True, timeout=30, check=True)
    assert [reply.split("\t")[0] for reply in found.stdout.splitlines()] == expected
    assert found.stderr == ""


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("pdadmm tr\t", "pdadmm train "),
        ("pdadmm data fe\t", "pdadmm data fetch "),
        ("pdadmm train --solver lin\t", "--solver linearized"),
        ("pdadmm train --rest\t", "--restarts"),
        ("pdadmm evaluate run.\t", "evaluate run.npz"),
    ],
)
def test_zsh_completes(folder: Path, typed: str, completed: str) -> None:
    path = shell("zsh")
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.execve(path, [path, "-f", "-i"], {"PATH": os.environ["PATH"], "TERM": "dumb", "HOME": str(folder)})
    try:
        setup = 'PS1=; unsetopt zle_bracketed_paste; autoload -U compinit; compinit -D -u; eval "$(<script.zsh)"'
        os.write(terminal, f"{setup}; echo rea''dy\n".encode())
        _read_until(terminal, "ready\r\n")
        os.write(terminal, typed.encode())
        _read_until(terminal, completed)
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        os.close(terminal)


def _read_until(terminal: int, expected: str, seconds: float = 20.0) -> None:
    """What a person would see; fails with all of it when the time is over."""
    seen, deadline = "", time.monotonic() + seconds
    while expected not in seen:
        ready, _, _ = select.select([terminal], [], [], max(0.0, deadline - time.monotonic()))
        assert ready, f"{expected!r} did not come: {seen!r}"
        seen += os.read(terminal, 4096).decode(errors="replace")


def test_another_shell_is_refused(pdadmm: Command) -> None:
    assert_refused(pdadmm("completion", "tcsh"), "tcsh", "bash")
    assert_refused(pdadmm("completion"), "shell")
