"""How options are typed: the flags that there are, `--set` for all others, files, and what became of older flags."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from commands import Command, assert_refused, typed
from pdadmm.config import NONE, PRESETS, Config, read_toml, to_toml

FIELDS = dataclasses.fields(Config)


def flags_in(help: str) -> list[str]:
    return [line.split()[0] for line in help.splitlines() if line.startswith("  -")]


def help_of(pdadmm: Command, capsys: pytest.CaptureFixture[str], flag: str) -> str:
    with pytest.raises(SystemExit) as end:
        pdadmm("train", flag)
    assert end.value.code == 0
    return capsys.readouterr().out


def test_the_first_screen_is_short(pdadmm: Command, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(flags_in(help_of(pdadmm, capsys, "--help"))) <= 25


def test_all_help_names_every_option(pdadmm: Command, capsys: pytest.CaptureFixture[str]) -> None:
    help = help_of(pdadmm, capsys, "--help-all")
    assert len(flags_in(help)) <= 40
    words = set(help.split())
    assert {typed(field.name, "x")[0] for field in FIELDS} <= words
    assert {field.name for field in FIELDS if field.metadata["flag"] == NONE} <= words


def test_options_are_set_by_name(train: Command, npz: Path, tmp_path: Path) -> None:
    settings = ["--set", "epochs=2"]
    settings += ["--set", "p_relax=1.1", "--set", "method.rho=0.02", "--set", "activation=tanh"]
    assert train("--data", npz, "--out", "run", *settings).code == 0
    found = Config.from_mapping(read_toml(tmp_path / "run" / "config.toml"))
    assert (found.epochs, found.p_relax, found.rho, found.activation) == (2, 1.1, 0.02, "tanh")


@pytest.mark.parametrize(
    ("arguments", "fragments"),
    [
        (("--p-relax", "1"), ("--p-relax is an option without a flag of its own", "--set p_relax=VALUE")),
        (("--p-relax=1",), ("--set p_relax=VALUE",)),
        (("--tile-rows", "8"), ("--tile-rows was removed",)),
        (("--products", "standard"), ("--products was removed",)),
        (("--set", "p_relx=1"), ("no option 'p_relx' (did you mean p_relax?)",)),
        (("--set", "p_relax"), ("--set needs NAME=VALUE; got 'p_relax'",)),
        (("--set", "p_relax=much"), ("--set p_relax must be a number; got 'much'",)),
        (("--set", "p_relax=2"), ("p_relax must be below 2; got 2.0",)),
        (("--epoch", "3"), ("unrecognized arguments", "did you mean --epochs?")),
    ],
)
def test_what_is_answered(train: Command, arguments: tuple[str, ...], fragments: tuple[str, ...]) -> None:
    assert_refused(train("--out", "run", *arguments), *fragments)


def test_a_written_file_is_read_back(tmp_path: Path) -> None:
    for config in (Config(), Config(**PRESETS["paper"]).resolved(), Config(method="adam", learning_rate=0.1)):
        (tmp_path / "config.toml").write_text(to_toml(config))
        assert Config.from_mapping(read_toml(tmp_path / "config.toml")) == config


def test_the_table_of_the_method(tmp_path: Path) -> None:
    (tmp_path / "my.toml").write_text('epochs = 3\n[method]\nname = "dladmm"\nrho = 0.5\n')
    assert Config.from_mapping(read_toml(tmp_path / "my.toml")) == Config(epochs=3, method="dladmm", rho=0.5)
    (tmp_path / "my.toml").write_text('epochs = 3\nmethod = "dladmm"\nrho = 0.5\n')  # as files were
    assert Config.from_mapping(read_toml(tmp_path / "my.toml")) == Config(epochs=3, method="dladmm", rho=0.5)
