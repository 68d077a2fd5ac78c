"""Checkpoints on disk: what is written, what is believed when it is read, what is kept."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from pdadmm.checkpoint.files import check_file, read_rows, reads_back, write_tensors
from pdadmm.checkpoint.folder import Folder
from pdadmm.checkpoint.manifest import (
    MANIFEST_FILE,
    FileEntry,
    HistoryMark,
    Manifest,
    Progress,
    check_files,
    directory_name,
    epoch_of,
    read_manifest,
)
from pdadmm.config import Config
from pdadmm.errors import DamageError, StorageError
from pdadmm.rundir import read_small
from resume_cases import content_of, resealed, within

NAME = FileEntry.file_name(0, 0)
TENSORS = {
    "W": torch.arange(12, dtype=torch.float32).reshape(3, 4) / 7,
    "z": torch.arange(10, dtype=torch.float64).reshape(5, 2).sin(),
    "transposed": torch.arange(6, dtype=torch.float32).reshape(2, 3).T,
    "gram_scale": torch.tensor(0.1, dtype=torch.float64),
    "bfloat16": torch.tensor([[1.5, -2.25], [torch.nan, torch.inf]]).to(torch.bfloat16),
    "int8": torch.tensor([-128, 0, 127], dtype=torch.int8),
    "generator": torch.Generator().manual_seed(3).get_state(),
    "no rows": torch.empty(0, 4),
}


# --- tensor files


def bits(tensor: Tensor) -> Tensor:
    """NaN equals itself, as bits."""
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def test_files_are_safetensors_and_hashed_as_they_are_written(tmp_path: Path) -> None:
    path = tmp_path / "tensors"
    size, sha256 = write_tensors(path, TENSORS)
    found = load_file(path)
    assert sorted(found) == sorted(TENSORS)
    for name, tensor in TENSORS.items():
        assert found[name].dtype == tensor.dtype
        assert found[name].shape == tensor.shape
        assert torch.equal(bits(found[name]), bits(tensor)), name
    assert size == path.stat().st_size
    assert sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    check_file(path, size, sha256)
    assert reads_back(path, TENSORS)


def test_a_file_that_the_disk_changed_does_not_read_back(tmp_path: Path) -> None:
    path = tmp_path / "tensors"
    write_tensors(path, TENSORS)
    content = path.read_bytes()
    for place in range(len(content)):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        assert not reads_back(path, TENSORS), place
    for other in (content[:-1], content + b" ", b""):
        path.write_bytes(other)
        assert not reads_back(path, TENSORS)


def test_a_file_is_the_same_bytes_however_its_tensors_lie_in_memory(tmp_path: Path) -> None:
    write_tensors(tmp_path / "one", TENSORS)
    write_tensors(tmp_path / "two", {name: tensor.clone().contiguous() for name, tensor in TENSORS.items()})
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_a_file_may_have_no_tensors_or_many_pieces(tmp_path: Path) -> None:
    write_tensors(tmp_path / "none", {})
    assert load_file(tmp_path / "none") == {}
    large = torch.arange(3 * 2**20, dtype=torch.float32)  # 12 MiB: more than one piece, and not a whole number of them
    size, sha256 = write_tensors(tmp_path / "large", {"z": large, "b": large[:1]})
    assert torch.equal(load_file(tmp_path / "large")["z"], large)
    check_file(tmp_path / "large", size, sha256)


def test_rows_of_a_tensor_are_read_alone(tmp_path: Path) -> None:
    write_tensors(tmp_path / "tensors", TENSORS)
    part = read_rows(tmp_path / "tensors", "z", slice(1, 4))
    assert part is not None
    assert torch.equal(part, TENSORS["z"][1:4])
    whole = read_rows(tmp_path / "tensors", "gram_scale", None)
    assert whole is not None
    assert whole.shape == ()
    assert read_rows(tmp_path / "tensors", "absent", None) is None


@pytest.mark.parametrize("change", ["flip", "shorten", "lengthen", "empty"])
def test_every_kind_of_change_of_a_file_is_seen(change: str, tmp_path: Path) -> None:
    path = tmp_path / "tensors"
    size, sha256 = write_tensors(path, {"W": TENSORS["W"], "z": TENSORS["z"]})
    content = path.read_bytes()
    places = range(len(content)) if change == "flip" else [0]
    for place in places:
        flipped = content[:place] + bytes([content[place] ^ 1 << place % 8]) + content[place + 1 :]
        path.write_bytes({"flip": flipped, "shorten": content[:-1], "lengthen": content + b"\0", "empty": b""}[change])
        with pytest.raises(DamageError, match="tensors"):
            check_file(path, size, sha256)


def put_in_place(kind: str, path: Path) -> None:
    """Something that is not a plain file, where one is expected."""
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    elif kind == "link":
        real = path.parent.parent / "elsewhere"
        write_tensors(real, TENSORS)
        path.symlink_to(real)
    elif kind == "loop":
        path.symlink_to(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")


@pytest.mark.parametrize("kind", ["nothing", "pipe", "directory", "link", "loop", "device"])
def test_only_plain_files_are_opened(kind: str, tmp_path: Path) -> None:
    put_in_place(kind, tmp_path / "tensors")
    with within(10), pytest.raises(DamageError, match="missing" if kind == "nothing" else "not a plain file"):
        read_small(tmp_path / "tensors", 9)
    with within(10), pytest.raises(DamageError):
        check_file(tmp_path / "tensors", 1, "")


class Bomb:
    """Unpickling it makes a file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        return Path.touch, (Path(self._path),)  # type: ignore[return-value]


@pytest.mark.parametrize("write", [pickle.dump, torch.save])
def test_a_pickle_in_place_of_a_tensor_file_runs_nothing(write: Callable[..., None], tmp_path: Path) -> None:
    with (tmp_path / "tensors").open("wb") as file:
        write(Bomb(tmp_path / "it ran"), file)
    with pytest.raises(DamageError, match="cannot be read"):
        read_rows(tmp_path / "tensors", "W", None)
    assert not (tmp_path / "it ran").exists()
    with (tmp_path / "tensors").open("rb") as file:  # the bomb is a real one
        pickle.load(file) if write is pickle.dump else torch.load(file, weights_only=False)
    assert (tmp_path / "it ran").exists()


# --- the manifest


def manifest(epoch: int = 40, files: list[FileEntry] | None = None) -> Manifest:
    return Manifest(
        epoch=epoch,
        pdadmm="0.1.0",
        torch="2.4",
        config=Config(data="größe.csv", hidden=(8, 8)).resolved().to_mapping(),
        data="12" * 32,
        num_samples=5,
        progress=Progress(0.1 + 0.2, None, [0, 1, 2], [(50, [0, 1])], 1, False),
        history=HistoryMark(1234, "ab" * 32),
        files=[FileEntry(NAME, 0, 0, 5, 100, "cd" * 32)] if files is None else files,
    )


def read(content: bytes) -> Manifest:
    return Manifest.from_bytes(content, Path("there/manifest.json"))


def test_a_manifest_is_read_back_as_it_was_byte_for_byte() -> None:
    content = manifest().to_bytes()
    found = read(content)
    assert found.to_bytes() == content
    assert dataclasses.replace(found, progress=manifest().progress) == manifest()
    assert found.progress.objective == 0.1 + 0.2
    assert json.loads(content)["format"] == "pdadmm-checkpoint"


def test_every_change_of_one_byte_every_cut_and_every_addition_is_seen() -> None:
    """At each place: another bit, a digit, nothing, the same byte twice, a space before it."""
    content = manifest().to_bytes()
    changed = {content[:place] for place in range(len(content))}
    changed |= {content + more for more in (b"\0", b" ", b"\n", b"{}", content)}
    for place, byte in enumerate(content):
        before, after = content[:place], content[place + 1 :]
        others = {bytes([byte ^ 1 << place % 8]), b"7", b"", bytes([byte, byte]), b" " + bytes([byte])}
        changed |= {before + other + after for other in others}
    changed.discard(content)
    assert len(changed) > 5 * len(content)
    for damaged in changed:
        with pytest.raises(DamageError, match=r"there/manifest\.json"):
            read(damaged)


def test_a_manifest_without_its_seal_or_with_a_key_twice_is_refused() -> None:
    content = manifest().to_bytes()
    values = json.loads(content)
    del values["sha256"]
    twice = content.replace(b'{\n "format"', b'{\n "epoch": 41,\n "format"', 1)
    compact = json.dumps(json.loads(content)).encode()
    for damaged in (json.dumps(values, indent=1).encode() + b"\n", twice, compact):
        with pytest.raises(DamageError):
            read(damaged)


NAMES: tuple[Any, ...] = (
    "../x",
    "/etc/passwd",
    "a/../b",
    "",
    ".",
    NAME + "\n",
    "x" + NAME,
    NAME + "/../../x",
    None,
    3,
    ["x"],
    {},
)
COUNTS: tuple[Any, ...] = (-1, 1.0, "1", None, True, [], math.nan)
MALICIOUS: dict[tuple[str | int, ...], tuple[Any, ...]] = {
    ("format",): ("pdadmm-model",),
    ("version",): (2, [1]),
    ("one more key",): (1,),
    ("epoch",): COUNTS,
    ("num_samples",): COUNTS,
    ("config",): (None, 3, "x", []),
    ("progress",): (None, 3, "x", [], {}, {"objective": 1.0}),
    ("progress", "objective"): ("1.0", True, [], 10**400),
    ("progress", "least_drop"): ("1.0", True, [], 10**400),
    ("progress", "layers"): (None, 3, "ab", [-1], ["0"], [0.0], [None], {"0": 0}, [[0]]),
    ("progress", "stages"): (None, 3, "ab", [1], [[1]], [[1, 2]], [[1, [0], 2]], [["1", [0]]], [[1, ["0"]]]),
    ("progress", "fresh_outputs"): COUNTS,
    ("history",): (None, 3, "x", [], {}, {"bytes": 1}),
    ("history", "bytes"): COUNTS,
    ("files",): (None, 3, "x", {"a": 1}, [1], [{}], [[]]),
    ("files", 0, "name"): NAMES,
    ("files", 0, "layer"): COUNTS,
    ("files", 0, "first_row"): COUNTS,
    ("files", 0, "rows"): COUNTS,
    ("files", 0, "bytes"): COUNTS,
}
"""Values, by their place in the manifest, that a seal does not make right."""

INFINITE = (math.nan, math.inf, -math.inf)
EMPTY_OR_INFINITE: dict[tuple[str | int, ...], tuple[Any, ...]] = {
    ("progress", "objective"): INFINITE,
    ("progress", "least_drop"): INFINITE,
    ("progress", "layers"): ({}, ""),
    ("progress", "stages"): ({}, ""),
    ("files",): ({}, ""),
}


def each(table: dict[tuple[str | int, ...], tuple[Any, ...]]) -> list[Any]:
    """One parameter set a value."""
    return [
        pytest.param(place, value, id=f"{'.'.join(map(str, place))}={shown(value)}")
        for place, values in table.items()
        for value in values
    ]


def shown(value: Any) -> str:
    return repr(value)[:30]


@pytest.mark.parametrize(("place", "value"), [*each(MALICIOUS), *each(EMPTY_OR_INFINITE)])
def test_a_resealed_manifest_is_not_believed(place: tuple[str | int, ...], value: Any) -> None:
    with pytest.raises(DamageError):
        read(resealed(manifest().to_bytes(), place, value))


def test_a_number_too_long_to_be_read_ends_in_a_line() -> None:
    content = resealed(manifest().to_bytes(), ("epoch",), 0)
    with pytest.raises(DamageError):
        read(content.replace(b'"epoch": 0', b'"epoch": 1' + b"0" * 5000))


def test_resealing_alone_is_no_change() -> None:
    """Else the tests of resealed manifests would show nothing."""
    assert resealed(manifest().to_bytes(), ("epoch",), 40) == manifest().to_bytes()


@pytest.mark.parametrize("depth", [300, 1000, 100_000])
@pytest.mark.parametrize("brackets", [(b"[", b"]"), (b'{"config":', b"}")])
def test_nested_json_ends_in_a_line(depth: int, brackets: tuple[bytes, bytes]) -> None:
    opening, closing = brackets
    with pytest.raises(DamageError):
        read(opening * depth + b"1" + closing * depth)


@pytest.mark.parametrize("content", [b"", b"null", b"3", b'"x"', b"[]", b"{}", b"\xff\xfe", b"NaN", b'"\\ud800"'])
def test_what_is_no_manifest_at_all_ends_in_a_line(content: bytes) -> None:
    with pytest.raises(DamageError):
        read(content)


# --- the directory of a checkpoint


def saved(folder: Folder, epoch: int) -> Path:
    """A checkpoint of two small layers, written as the saver does."""
    directory = folder.saving(epoch)
    directory.mkdir(parents=True)
    files = []
    for layer in (0, 1):
        name = FileEntry.file_name(layer, 0)
        size, sha256 = write_tensors(directory / name, {"W": torch.full((2, 2), float(epoch + layer))})
        files.append(FileEntry(name, layer, 0, 5, size, sha256))
    folder.complete(manifest(epoch, files))
    return folder.directory(epoch)


def test_a_checkpoint_is_complete_under_its_name(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    directory = saved(folder, 40)
    found = read_manifest(directory)
    check_files(directory, found.files)
    assert [entry.name for entry in sorted(directory.iterdir())] == [NAME, FileEntry.file_name(1, 0), MANIFEST_FILE]
    assert not folder.saving(40).exists()
    assert (folder.path / "latest").resolve() == directory.resolve()


@pytest.mark.parametrize("kind", ["nothing", "pipe", "directory", "link", "loop", "device"])
@pytest.mark.parametrize("name", [NAME, MANIFEST_FILE])
def test_a_checkpoint_with_something_else_in_place_of_a_file_is_refused(kind: str, name: str, tmp_path: Path) -> None:
    directory = saved(Folder(tmp_path), 40)
    (directory / name).unlink()
    put_in_place(kind, directory / name)
    with within(10), pytest.raises(DamageError, match=name):
        read_manifest(directory)


@pytest.mark.parametrize("foreign", ["layer-003-shard-01.safetensors", ".hidden", "manifest.json.bak", "a directory/"])
def test_a_foreign_file_is_named(foreign: str, tmp_path: Path) -> None:
    directory = saved(Folder(tmp_path), 40)
    (directory / foreign).mkdir() if foreign.endswith("/") else (directory / foreign).touch()
    with pytest.raises(DamageError, match=foreign.strip("/")):
        read_manifest(directory)


def test_a_checkpoint_under_the_name_of_another_epoch_or_behind_a_link_is_refused(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    directory = saved(folder, 40)
    directory.rename(folder.directory(41))
    with pytest.raises(DamageError, match="epoch 40"):
        read_manifest(folder.directory(41))
    directory.symlink_to(folder.directory(41))
    with pytest.raises(DamageError, match="not a directory"):
        read_manifest(directory)
    with pytest.raises(DamageError, match="not a directory"):
        read_manifest(folder.directory(42))


def test_a_manifest_of_absurd_size_is_not_read(tmp_path: Path) -> None:
    directory = saved(Folder(tmp_path), 40)
    with (directory / MANIFEST_FILE).open("r+b") as file:
        file.truncate(2**40)  # a hole, not a terabyte
    with within(10), pytest.raises(DamageError, match="too large"):
        read_manifest(directory)


def test_files_in_a_manifest_are_checked_by_size_at_once_and_by_hash_when_asked(tmp_path: Path) -> None:
    directory = saved(Folder(tmp_path), 40)
    content = (directory / NAME).read_bytes()
    (directory / NAME).write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    found = read_manifest(directory)
    with pytest.raises(DamageError, match=NAME):
        check_files(directory, found.files)
    (directory / NAME).write_bytes(content[:-1])
    with pytest.raises(DamageError, match=NAME):
        read_manifest(directory)


# --- the folder of all checkpoints


@pytest.mark.parametrize("epoch", [1, 40, 99_999_999, 123_456_789])
def test_the_name_of_a_checkpoint_is_read_back(epoch: int) -> None:
    assert epoch_of(directory_name(epoch)) == epoch


@pytest.mark.parametrize(
    "name", ["latest", "epoch-40", "epoch-00000040.aside", ".saving-epoch-00000040", "epoch-", "x"]
)
def test_other_names_are_no_checkpoints(name: str) -> None:
    assert epoch_of(name) is None


@pytest.mark.parametrize("name", ["epoch-000000040", "epoch-٠٠٠٠٠٠٤٠"])
def test_a_second_spelling_of_an_epoch_is_no_checkpoint(name: str) -> None:
    """Else one directory is counted twice: a good checkpoint is pruned for it, or renamed when it is gone."""
    assert epoch_of(name) is None


def test_two_checkpoints_are_kept(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    for epoch in (10, 20, 30, 40):
        before = content_of(folder.path)
        saved(folder, epoch)
        folder.prune()
        assert folder.epochs() == [epoch, epoch - 10][: len(folder.epochs())]
        kept = directory_name(epoch - 10)
        assert all(content_of(folder.path)[name] == before[name] for name in before if name.startswith(kept))
    assert folder.epochs() == [40, 30]
    assert sorted(path.name for path in folder.path.iterdir()) == [directory_name(30), directory_name(40), "latest"]


def test_later_checkpoints_are_set_aside_byte_for_byte_and_go_when_two_newer_ones_are_there(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    for epoch in (10, 20, 30):
        saved(folder, epoch)
    before = {epoch: content_of(folder.directory(epoch)) for epoch in folder.epochs()}
    assert folder.put_aside_after(10) == [f"{directory_name(30)}.aside", f"{directory_name(20)}.aside"]
    assert folder.epochs() == [10]
    assert folder.set_aside() == [f"{directory_name(20)}.aside", f"{directory_name(30)}.aside"]
    for epoch in (20, 30):
        assert content_of(folder.path / f"{directory_name(epoch)}.aside") == before[epoch]
    assert (folder.path / "latest").resolve() == folder.directory(10).resolve()
    for epoch, left in [(20, 2), (30, 2), (40, 1), (50, 0)]:
        saved(folder, epoch)
        folder.prune()
        assert len(folder.set_aside()) == left


def test_setting_aside_twice_keeps_the_last(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    saved(folder, 10)
    for mark in ("first", "second"):
        saved(folder, 20)
        (folder.directory(20) / mark).touch()
        folder.put_aside_after(10)
    assert (folder.path / f"{directory_name(20)}.aside" / "second").exists()
    assert folder.put_aside_after(10) == []
    assert folder.put_aside_after(0) == [f"{directory_name(10)}.aside"]
    assert not (folder.path / "latest").is_symlink()


def test_something_else_in_place_of_a_checkpoint_is_set_aside_too(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    saved(folder, 10)
    folder.directory(20).write_text("a file")
    folder.directory(30).symlink_to(folder.directory(10))
    assert len(folder.put_aside_after(10)) == 2
    assert folder.epochs() == [10]
    read_manifest(folder.directory(10))


def test_what_is_half_written_is_no_checkpoint_and_is_cleared_alone(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    saved(folder, 10)
    before = content_of(folder.path)
    folder.saving(20).mkdir()
    save_file({"W": torch.ones(1)}, folder.saving(20) / NAME)
    assert folder.epochs() == [10]
    folder.clear_unfinished()
    assert content_of(folder.path) == before
    Folder(tmp_path / "no run").clear_unfinished()
    assert Folder(tmp_path / "no run").epochs() == []


def test_dropping_takes_both_names_of_one_epoch(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    saved(folder, 10)
    saved(folder, 20)
    folder.saving(20).mkdir()
    folder.drop(20)
    assert folder.epochs() == [10]
    assert not folder.saving(20).exists()


def test_a_checkpoint_is_not_renamed_over_one_that_is_there(tmp_path: Path) -> None:
    """The run would rather go on without this checkpoint than mix two."""
    folder = Folder(tmp_path)
    before = content_of(saved(folder, 10))
    with pytest.raises(StorageError, match=directory_name(10)):
        saved(folder, 10)
    assert content_of(folder.directory(10)) == before
