"""Links and other things that someone planted in a run directory: never followed, and no file of theirs is touched."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from commands import TINY, assert_refused
from pdadmm.config import Config
from pdadmm.data import Dataset
from pdadmm.engine.world import World
from pdadmm.errors import UserError
from pdadmm.observer import Observer
from pdadmm.run import Place, carry_out
from pdadmm.rundir import is_in_use, open_new, write_whole
from resume_cases import pdadmm

TEMPORARY = (".model.safetensors.tmp", ".summary.json.tmp", ".config.toml.tmp", ".plot.png.tmp", ".history.jsonl.tmp")


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """A file that a link leads to."""
    path = tmp_path / "target"
    path.write_text("mine")
    return path


def plant(run: Path, name: str, target: Path) -> None:
    run.mkdir(exist_ok=True)
    (run / name).symlink_to(target)


@pytest.mark.parametrize("options", [(), ("--overwrite",), ("--workers", "2")])
def test_a_link_in_place_of_the_lock_is_refused(options: tuple[str, ...], tmp_path: Path, target: Path) -> None:
    plant(tmp_path / "run", ".lock", target)
    found = pdadmm("train", *TINY, "--quiet", "--out", tmp_path / "run", *options)
    assert_refused(found, ".lock is not a plain file", "take that away")
    assert target.read_text() == "mine"


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir], ids=["pipe", "folder"])
def test_what_is_no_file_in_place_of_the_lock_is_refused(make: Callable[[Path], None], tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    make(tmp_path / "run" / ".lock")
    assert_refused(pdadmm("train", *TINY, "--quiet", "--out", tmp_path / "run"), ".lock is not a plain file")


def test_a_lock_that_a_killed_run_left_is_taken_over_as_it_is(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / ".lock").write_text("not emptied")
    assert not is_in_use(run)
    assert (run / ".lock").read_text() == "not emptied"
    assert pdadmm("train", *TINY, "--quiet", "--out", run).code == 0
    assert not (run / ".lock").exists()


def test_the_directory_is_held_before_the_data_is_loaded(tmp_path: Path) -> None:
    """Else a second run could begin there meanwhile."""

    def load() -> Dataset:
        assert is_in_use(tmp_path / "run")
        raise UserError("no data")

    with pytest.raises(UserError, match="no data"):
        carry_out(World(), Config(), load, Place(tmp_path / "run"), Observer())
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", TEMPORARY)
def test_links_in_place_of_temporary_files_are_not_followed(name: str, tmp_path: Path, target: Path) -> None:
    """Those of killed runs are swept away, and with them a link that has such a name."""
    run = tmp_path / "run"
    plant(run, name, target)
    assert pdadmm("train", *TINY, "--quiet", "--out", run).code == 0
    assert target.read_text() == "mine"
    assert [path.name for path in run.glob(".*")] == []


@pytest.mark.parametrize("name", ["history.jsonl", "config.toml", "model.safetensors", "summary.json", "plot.png"])
def test_links_in_place_of_a_runs_files_are_not_followed(name: str, tmp_path: Path, target: Path) -> None:
    run = tmp_path / "run"
    plant(run, name, target)
    assert_refused(pdadmm("train", *TINY, "--quiet", "--out", run), f"already holds a run ({name})")
    assert pdadmm("train", *TINY, "--quiet", "--out", run, "--overwrite").code == 0
    assert target.read_text() == "mine"
    assert not (run / name).is_symlink()


def test_a_link_in_place_of_checkpoints_is_taken_away_not_what_it_leads_to(tmp_path: Path) -> None:
    run, other = tmp_path / "run", tmp_path / "other"
    other.mkdir()
    (other / "kept").touch()
    plant(run, "checkpoints", other)
    assert pdadmm("train", *TINY, "--quiet", "--out", run, "--overwrite").code == 0
    assert [path.name for path in other.iterdir()] == ["kept"]
    assert not (run / "checkpoints").is_symlink()


def test_files_are_written_under_names_that_nobody_can_guess(tmp_path: Path, target: Path) -> None:
    """A link in place of the file itself is replaced, and what it led to stays."""
    (tmp_path / "file").symlink_to(target)
    write_whole(tmp_path / "file", b"new")
    assert (tmp_path / "file").read_bytes() == b"new"
    assert target.read_text() == "mine"
    with pytest.raises(FileExistsError):
        open_new(tmp_path / "file")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(FileExistsError):
        open_new(tmp_path / "link")


def test_a_users_own_hidden_files_are_not_swept(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / ".notes.tmp").write_text("mine")
    assert pdadmm("train", *TINY, "--quiet", "--out", run).code == 0
    assert (run / ".notes.tmp").read_text() == "mine"
