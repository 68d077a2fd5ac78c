"""Damaged checkpoints and numbers that go wrong: always seen, never gone on from, nothing valid lost.

One run is the measure of all: it is copied when it holds the checkpoints of two epochs, a half-written third and rows
beyond them. Whatever is done to a copy, it either comes to the same model byte for byte, or ends with a line.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import random
import re
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from commands import Outcome, assert_refused
from pdadmm.checkpoint.files import write_tensors
from pdadmm.checkpoint.folder import Folder
from pdadmm.checkpoint.manifest import MANIFEST_FILE, check_files, read_manifest
from pdadmm.config import Config
from pdadmm.errors import DamageError
from pdadmm.rundir import read_history
from pdadmm.trainer import load_for
from resume_cases import (
    assert_same_run,
    content_of,
    copied,
    pdadmm,
    resealed,
    resume,
    with_copies,
    within,
    write_samples,
)

OLDER, NEWER = 4, 6
DIED_IN = 9
CORRUPTIONS = 200


@dataclass(frozen=True)
class Ground:
    """An undisturbed run, a copy of it from when it had two checkpoints, and the same of a run of another seed."""

    reference: Path
    cut: Path
    other: Path


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Ground:
    """Four layers that grow, 32 samples, 10 epochs."""
    path = tmp_path_factory.mktemp("damage")
    cuts = []
    for seed in (0, 1):
        config = Config(
            data=str(write_samples(path / "samples.npz")),
            hidden=(6, 6, 6),
            epochs=10,
            grow="0:1,3:all",
            checkpoint_every=2,
            checkpoint_minutes=0.0,
            threads=1,
            seed=seed,
        )
        _, copies = with_copies(config, load_for(config), path / f"seed-{seed}", {DIED_IN})
        assert Folder(copies[DIED_IN]).epochs() == [NEWER, OLDER]
        cuts.append(copies[DIED_IN])
    return Ground(path / "seed-0", *cuts)


@pytest.fixture
def run(ground: Ground, tmp_path: Path) -> Path:
    """A copy to damage."""
    return copied(ground.cut, tmp_path / "run")


def directory(run: Path, epoch: int) -> Path:
    return Folder(run).directory(epoch)


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def test_without_damage_the_run_goes_on_from_the_newest(run: Path, ground: Ground) -> None:
    """Else what follows would show nothing."""
    assert resume(run).json()["resumed_from"] == NEWER
    assert_same_run(run, ground.reference)
    assert sorted(os.listdir(Folder(run).path)) == ["epoch-00000008", "epoch-00000010", "latest"]  # noqa: PTH208


# --- two hundred corruptions


@dataclass
class Damage:
    """What was done to a run directory: epochs not to be used any more, epochs that are gone, names to be told."""

    run: Path
    other: Path
    random: random.Random
    damaged: set[int] = field(default_factory=set)
    gone: set[int] = field(default_factory=set)
    named: dict[int, str] = field(default_factory=dict)

    def files(self, epoch: int) -> list[Path]:
        return sorted(directory(self.run, epoch).iterdir())

    def tensor_files(self, epoch: int) -> list[Path]:
        return [path for path in self.files(epoch) if path.name != MANIFEST_FILE]

    def hit(self, epoch: int, path: Path) -> None:
        self.damaged.add(epoch)
        self.named[epoch] = path.name

    def outcome(self) -> tuple[str, int | None]:
        """What must happen: `goes on` from an epoch, or from none, or is `refused`."""
        whole = {OLDER, NEWER} - self.damaged - self.gone
        if whole:
            return "goes on", max(whole)
        return ("refused", None) if self.damaged else ("goes on", None)


def _flip(damage: Damage, epoch: int, path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[damage.random.randrange(len(content))] ^= 1 << damage.random.randrange(8)
    path.write_bytes(content)
    damage.hit(epoch, path)


def flip_a_tensor_file(damage: Damage, epoch: int) -> None:
    _flip(damage, epoch, damage.random.choice(damage.tensor_files(epoch)))


def flip_the_manifest(damage: Damage, epoch: int) -> None:
    _flip(damage, epoch, directory(damage.run, epoch) / MANIFEST_FILE)


def truncate(damage: Damage, epoch: int) -> None:
    path = damage.random.choice(damage.files(epoch))
    os.truncate(path, damage.random.randrange(path.stat().st_size))
    damage.hit(epoch, path)


def append(damage: Damage, epoch: int) -> None:
    path = damage.random.choice(damage.files(epoch))
    with path.open("ab") as file:
        file.write(damage.random.randbytes(damage.random.randint(1, 100)))
    damage.hit(epoch, path)


def overwrite_with_zeros(damage: Damage, epoch: int) -> None:
    """What a file system may show of a file that was never flushed."""
    path = damage.random.choice(damage.files(epoch))
    path.write_bytes(bytes(path.stat().st_size))
    damage.hit(epoch, path)


def delete_a_file(damage: Damage, epoch: int) -> None:
    path = damage.random.choice(damage.files(epoch))
    path.unlink()
    damage.hit(epoch, path)


def delete_the_directory(damage: Damage, epoch: int) -> None:
    """Nothing tells this from a run that never came so far."""
    shutil.rmtree(directory(damage.run, epoch))
    damage.gone.add(epoch)


def swap_layers(damage: Damage, epoch: int) -> None:
    one, two = damage.random.sample(damage.tensor_files(epoch), 2)
    _swap(one, two)
    damage.hit(epoch, directory(damage.run, epoch))


def swap_between_checkpoints(damage: Damage, epoch: int) -> None:
    path = damage.random.choice(damage.files(epoch))
    other = OLDER if epoch == NEWER else NEWER
    _swap(path, directory(damage.run, other) / path.name)
    damage.hit(epoch, directory(damage.run, epoch))
    damage.hit(other, directory(damage.run, other))


def swap_checkpoints(damage: Damage, epoch: int) -> None:
    _swap(directory(damage.run, NEWER), directory(damage.run, OLDER))
    damage.hit(NEWER, directory(damage.run, NEWER))
    damage.hit(OLDER, directory(damage.run, OLDER))


def copy_the_other_checkpoint(damage: Damage, epoch: int) -> None:
    other = OLDER if epoch == NEWER else NEWER
    if other in damage.damaged:
        return  # else it would get back what it was
    shutil.rmtree(directory(damage.run, epoch))
    shutil.copytree(directory(damage.run, other), directory(damage.run, epoch))
    damage.hit(epoch, directory(damage.run, epoch))


def add_a_foreign_file(damage: Damage, epoch: int) -> None:
    names = ["layer-005-shard-01.safetensors", "layer-001-shard-02.safetensors", "notes.txt", ".DS_Store"]
    path = directory(damage.run, epoch) / damage.random.choice(names)
    shutil.copy(damage.random.choice(damage.files(epoch)), path)
    damage.hit(epoch, path)


def add_a_stray_file(damage: Damage, epoch: int) -> None:
    """Beside the checkpoints, where it does no harm."""
    stray = Folder(damage.run).path / damage.random.choice(
        ["notes.txt", "epoch-7", ".saving-x", "epoch-00000002.aside"]
    )
    stray.mkdir(exist_ok=True)
    (stray / MANIFEST_FILE).write_bytes(damage.random.randbytes(20))


def edit_a_number(damage: Damage, epoch: int) -> None:
    """Well-formed JSON, as an editor leaves it."""
    path = directory(damage.run, epoch) / MANIFEST_FILE
    text = path.read_text()
    found = damage.random.choice(list(re.finditer(r"(?<=: )\d+(?=[,\n])", text)))
    path.write_text(f"{text[: found.start()]}{int(found[0]) + damage.random.randint(1, 9)}{text[found.end() :]}")
    damage.hit(epoch, path)


def take_a_file_of_another_run(damage: Damage, epoch: int) -> None:
    path = damage.random.choice(damage.tensor_files(epoch))
    shutil.copy(directory(damage.other, epoch) / path.name, path)
    damage.hit(epoch, path)


def _swap(one: Path, two: Path) -> None:
    aside = one.with_name("aside")
    one.rename(aside)
    two.rename(one)
    aside.rename(two)


KINDS: Sequence[Callable[[Damage, int], None]] = (
    flip_a_tensor_file,
    flip_the_manifest,
    truncate,
    append,
    overwrite_with_zeros,
    delete_a_file,
    delete_the_directory,
    swap_layers,
    swap_between_checkpoints,
    swap_checkpoints,
    copy_the_other_checkpoint,
    add_a_foreign_file,
    add_a_stray_file,
    edit_a_number,
    take_a_file_of_another_run,
)


def judge(damage: Damage, before: dict[str, bytes], found: Outcome, reference: Path) -> str:
    """How a resumed run came out; a wrong resume fails here."""
    expected, epoch = damage.outcome()
    if expected == "refused":
        assert_refused_whole(damage.run, before, found, *damage.named.values())
        return "refused"
    assert found.code == 0, found.err
    assert found.json()["resumed_from"] == epoch
    assert_same_run(damage.run, reference)
    newer_damage = [number for number in damage.damaged if number > (epoch or 0)]
    for number in newer_damage:
        assert damage.named[number] in found.err
        assert f"going back to the checkpoint of epoch {epoch}" in found.err
    assert not newer_damage or "note: " in found.err
    return f"from epoch {epoch}"


def assert_refused_whole(run: Path, before: dict[str, bytes], found: Outcome, *names: str) -> None:
    """Exit code 6, one line that names what is wrong, and not a byte changed."""
    assert found.code == 6, found
    assert found.out == ""
    lines = [line for line in found.err.splitlines() if not line.startswith("note: ")]
    assert len(lines) == 1
    assert lines[0].startswith("pdadmm: error: no checkpoint of the run can be used")
    assert all(name in lines[0] for name in names)
    assert content_of(run) == before


def test_no_corruption_is_resumed_from(ground: Ground, tmp_path: Path) -> None:
    """Each kind hits the newest checkpoint, the one before, or both; some copies are hit twice."""
    counts: Counter[tuple[str, str]] = Counter()
    wrong = []
    for number in range(CORRUPTIONS):
        kind, generator = KINDS[number % len(KINDS)], random.Random(number)  # each can be repeated alone
        damage = Damage(copied(ground.cut, tmp_path / f"{number}"), ground.other, generator)
        for epoch in generator.choice([(NEWER,), (NEWER,), (OLDER,), (NEWER, OLDER)]):
            if epoch not in damage.damaged:
                kind(damage, epoch)
        before = content_of(damage.run)
        try:
            counts[kind.__name__, judge(damage, before, resume(damage.run), ground.reference)] += 1
        except Exception as error:
            wrong.append(f"{number} {kind.__name__} {damage.damaged or damage.gone}: {type(error).__name__} {error}")
        shutil.rmtree(damage.run)
    for (name, outcome), count in sorted(counts.items()):
        print(f"{count:4}  {name.replace('_', ' '):28}  {outcome}")
    print(f"{sum(counts.values()):4}  of {CORRUPTIONS} as they must be, {len(wrong)} wrong")
    assert not wrong, "\n".join(wrong)


# --- what is lost, and what is not


def test_what_could_not_be_used_is_set_aside_byte_for_byte(run: Path) -> None:
    """The run ends before two newer checkpoints are there, so nothing has been cleared away yet."""
    flip_a_bit(directory(run, NEWER) / "layer-002-shard-01.safetensors")
    before = content_of(Folder(run).path)
    result = resume(run, "--epochs", str(NEWER + 1), "--checkpoint-every", "100").json()
    assert result["resumed_from"] == OLDER
    after = content_of(Folder(run).path)
    for epoch, name in [(OLDER, f"epoch-{OLDER:08d}"), (NEWER, f"epoch-{NEWER:08d}.aside")]:
        old = {path: content for path, content in before.items() if path.startswith(f"epoch-{epoch:08d}/")}
        assert len(old) == 5
        assert all(after[path.replace(f"epoch-{epoch:08d}", name)] == content for path, content in old.items())
    assert Folder(run).epochs() == [NEWER + 1, OLDER]
    read_manifest(directory(run, NEWER + 1))


def test_a_damaged_older_checkpoint_does_not_matter(run: Path, ground: Ground) -> None:
    (directory(run, OLDER) / "layer-001-shard-01.safetensors").unlink()
    found = resume(run)
    assert found.json()["resumed_from"] == NEWER
    assert "going back" not in found.err
    assert_same_run(run, ground.reference)


def test_an_empty_directory_with_the_name_of_a_later_epoch_is_passed_over(run: Path, ground: Ground) -> None:
    directory(run, 8).mkdir()
    found = resume(run)
    assert found.json()["resumed_from"] == NEWER
    assert f"going back to the checkpoint of epoch {NEWER}" in found.err
    assert_same_run(run, ground.reference)


def test_another_spelling_of_a_damaged_epoch_does_not_stop_the_run(run: Path, ground: Ground) -> None:
    flip_a_bit(directory(run, NEWER) / MANIFEST_FILE)
    (Folder(run).path / f"epoch-{NEWER:09d}").mkdir()
    found = resume(run)
    assert found.code == 0, found.err
    assert_same_run(run, ground.reference)


@pytest.mark.parametrize(
    "epoch",
    [OLDER, NEWER],
)
@pytest.mark.parametrize("what", ["the manifest", "the directory"])
def test_a_checkpoint_of_another_run_is_passed_over(what: str, epoch: int, run: Path, ground: Ground) -> None:
    if what == "the manifest":
        shutil.copy(directory(ground.other, epoch) / MANIFEST_FILE, directory(run, epoch))
    else:
        shutil.rmtree(directory(run, epoch))
        shutil.copytree(directory(ground.other, epoch), directory(run, epoch))
    found = resume(run)
    assert found.code == 0, found.err
    assert found.json()["resumed_from"] == OLDER + NEWER - epoch
    assert_same_run(run, ground.reference)


def test_a_whole_checkpoint_of_another_run_is_never_gone_on_from(run: Path, ground: Ground) -> None:
    for epoch in (OLDER, NEWER):
        shutil.rmtree(directory(run, epoch))
        shutil.copytree(directory(ground.other, epoch), directory(run, epoch))
    before = content_of(run)
    found = resume(run)
    assert found.code in (2, 6)
    assert content_of(run) == before


# --- the history


def rows_end(run: Path, epoch: int) -> int:
    """Where the row of an epoch ends in history.jsonl."""
    lines = (run / "history.jsonl").read_bytes().splitlines(keepends=True)
    return sum(len(line) for line in lines[:epoch])


def edit_row(run: Path, epoch: int) -> None:
    path = run / "history.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    lines[epoch - 1] = lines[epoch - 1].replace("true", "false")
    path.write_text("".join(lines))


def replace_by_a_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


HISTORY: dict[str, tuple[Callable[[Path], None], int | None]] = {
    "cut after the newer": (lambda run: os.truncate(run / "history.jsonl", rows_end(run, 7) + 5), NEWER),
    "cut at the newer": (lambda run: os.truncate(run / "history.jsonl", rows_end(run, NEWER)), NEWER),
    "cut before the newer": (lambda run: os.truncate(run / "history.jsonl", rows_end(run, NEWER) - 1), OLDER),
    "cut at the older": (lambda run: os.truncate(run / "history.jsonl", rows_end(run, OLDER)), OLDER),
    "cut before the older": (lambda run: os.truncate(run / "history.jsonl", rows_end(run, OLDER) - 1), None),
    "empty": (lambda run: os.truncate(run / "history.jsonl", 0), None),
    "deleted": (lambda run: (run / "history.jsonl").unlink(), None),
    "a row after the newer edited": (lambda run: edit_row(run, 8), NEWER),
    "a row after the older edited": (lambda run: edit_row(run, 5), OLDER),
    "the first row edited": (lambda run: edit_row(run, 1), None),
    "a directory": (lambda run: replace_by_a_directory(run / "history.jsonl"), None),
}
"""What is done to the history, and the checkpoint whose rows are all still there."""


@pytest.mark.parametrize("case", HISTORY)
def test_a_damaged_history_is_gone_back_behind(case: str, run: Path, ground: Ground) -> None:
    damage, epoch = HISTORY[case]
    damage(run)
    before = content_of(run)
    found = resume(run)
    if epoch is None:
        assert_went_on_without_history(run, before, found, ground)
        return
    assert found.json()["resumed_from"] == epoch
    assert ("history.jsonl does not begin" in found.err) == (epoch == OLDER)
    assert_same_run(run, ground.reference)


def assert_went_on_without_history(run: Path, before: dict[str, bytes], found: Outcome, ground: Ground) -> None:
    """From the newest checkpoint, with the same network; the rows that could be read are kept, the file set aside."""
    assert found.json()["resumed_from"] == NEWER
    assert "history.jsonl is damaged" in found.err
    assert (run / "model.safetensors").read_bytes() == (ground.reference / "model.safetensors").read_bytes()
    epochs = [json.loads(line)["epoch"] for line in (run / "history.jsonl").read_text().splitlines()]
    assert epochs == sorted(set(epochs))
    assert epochs[-1] == found.json()["epochs"]
    aside = [path.read_bytes() if path.is_file() else b"" for path in run.glob("history.jsonl.aside-*")]
    assert aside == [content for name, content in before.items() if name == "history.jsonl"]


def test_a_pipe_in_place_of_the_history_is_not_waited_for(run: Path) -> None:
    (run / "history.jsonl").unlink()
    os.mkfifo(run / "history.jsonl")
    with within(10):
        assert resume(run).json()["resumed_from"] == NEWER


# --- files that someone made on purpose


def reseal(run: Path, epoch: int, place: Sequence[str | int], value: Any) -> None:
    path = directory(run, epoch) / MANIFEST_FILE
    path.write_bytes(resealed(path.read_bytes(), place, value))


def reseal_file(run: Path, epoch: int, index: int) -> None:
    """Make a manifest agree with a file that was exchanged."""
    path = directory(run, epoch) / read_manifest_values(run, epoch)["files"][index]["name"]
    reseal(run, epoch, ("files", index, "bytes"), path.stat().st_size)
    reseal(run, epoch, ("files", index, "sha256"), hashlib.sha256(path.read_bytes()).hexdigest())


def read_manifest_values(run: Path, epoch: int) -> Any:
    return json.loads((directory(run, epoch) / MANIFEST_FILE).read_text())


RESEALED: dict[str, tuple[tuple[str | int, ...], Any]] = {
    "a name outside": (("files", 0, "name"), "../epoch-00000004/layer-001-shard-01.safetensors"),
    "negative rows": (("files", 0, "rows"), -1),
    "too few rows": (("files", 1, "rows"), 3),
    "a gap before the rows": (("files", 1, "first_row"), 2),
    "a layer twice": (("files", 1, "layer"), 0),
    "no files": (("files",), []),
    "another data set": (("data",), "0" * 64),
    "options that do not exist": (("config", "colour"), "red"),
    "options of a wrong type": (("config", "nu"), [1]),
    "options out of range": (("config", "nu"), -1.0),
    "another network": (("config", "hidden"), "4x6"),
    "another history": (("history", "sha256"), "0" * 64),
    "a history longer than memory": (("history", "bytes"), 10**15),
    "a history of an impossible length": (("history", "bytes"), 10**30),
    "no layers": (("progress", "layers"), []),
    "layers in another order": (("progress", "layers"), [3, 2, 1, 0]),
    "no objective": (("progress", "objective"), None),
    "layers that do not exist": (("progress", "layers"), [0, 1, 2, 7, 8]),
    "layers without the output": (("progress", "layers"), [0, 1, 2]),
    "growth that makes no sense": (("progress", "stages"), [[7, [0]]]),
    "growth into layers that do not exist": (("progress", "stages"), [[7, [0, 1, 2, 9]]]),
}


@pytest.mark.parametrize(
    ("place", "value"),
    [pytest.param(*change, id=name) for name, change in RESEALED.items()],
)
def test_a_manifest_resealed_on_purpose_ends_in_a_line_at_worst(
    place: tuple[str | int, ...], value: Any, run: Path, ground: Ground
) -> None:
    """It cannot be told from a real one by its seal; but it must not bring down the program or lead out of the run."""
    reseal(run, NEWER, place, value)
    before = content_of(run)
    with within(20):
        found = resume(run)
    assert found.code in (0, 2, 6), found.err
    if found.code:
        assert content_of(run) == before
    else:
        assert_same_run(run, ground.reference)


def test_a_pickle_under_a_resealed_manifest_runs_nothing(run: Path, tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
            return os.mkdir, (str(tmp_path / "it ran"),)

    (directory(run, NEWER) / "layer-001-shard-01.safetensors").write_bytes(pickle.dumps(Bomb()))
    reseal_file(run, NEWER, 0)
    before = content_of(run)
    found = resume(run)
    assert not (tmp_path / "it ran").exists()
    assert_refused(Outcome(found.code, found.out, found.err.splitlines(keepends=True)[-1]), "layer-001", code=6)
    assert content_of(run) == before


TENSORS: dict[str, Callable[[dict[str, torch.Tensor]], None]] = {
    "a variable less": lambda tensors: tensors.__delitem__("z"),
    "other columns": lambda tensors: tensors.__setitem__("z", tensors["z"][:, 1:]),
    "fewer rows": lambda tensors: tensors.__setitem__("z", tensors["z"][:-3]),
    "another type": lambda tensors: tensors.__setitem__("z", tensors["z"].double()),
    "bytes for numbers": lambda tensors: tensors.__setitem__("W", tensors["W"].to(torch.uint8)),
    "another shape of W": lambda tensors: tensors.__setitem__("W", tensors["W"][:-1]),
    "a vector for a number": lambda tensors: tensors.__setitem__("gram_scale", torch.ones(2, dtype=torch.float64)),
}


@pytest.mark.parametrize("case", TENSORS)
def test_a_file_that_does_not_fit_under_a_resealed_manifest_ends_in_a_line(case: str, run: Path) -> None:
    path = directory(run, NEWER) / "layer-002-shard-01.safetensors"
    tensors = {name: tensor.clone() for name, tensor in load_file(path).items()}  # the file is written anew
    TENSORS[case](tensors)
    write_tensors(path, {name: tensor.contiguous() for name, tensor in tensors.items()})
    reseal_file(run, NEWER, 1)
    before = content_of(run)
    found = resume(run)
    assert found.code == 6, found
    assert "layer 2" in found.err
    assert content_of(run) == before


# --- two processes


@pytest.mark.parametrize("both", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_damage_that_only_the_second_worker_sees_is_agreed_on(both: bool, run: Path, ground: Ground) -> None:
    """The output layer is on the second worker; the first finds nothing wrong with its own files."""
    for epoch in (NEWER, OLDER) if both else (NEWER,):
        flip_a_bit(directory(run, epoch) / "layer-004-shard-01.safetensors")
    before = content_of(run)
    found = resume(run, workers=2)
    if both:
        assert_refused_whole(run, before, found, "layer-004-shard-01.safetensors")
        return
    assert found.json()["resumed_from"] == OLDER
    assert f"going back to the checkpoint of epoch {OLDER}" in found.err
    assert found.err.count("layer-004-shard-01.safetensors") == 1
    assert_same_run(run, ground.reference)


# --- numbers that go wrong


def epoch_kept(found: Outcome, run: Path) -> int:
    """The checkpoint that the message leads back to, which must be valid."""
    assert found.code == 3, found
    last = found.err.splitlines()[-1]
    assert last.startswith("pdadmm: error: ")
    assert "scale the features" in last
    kept = re.search(rf"the checkpoint of epoch (\d+) is kept: pdadmm train --resume {re.escape(str(run))}", last)
    assert kept is not None, last
    epoch = int(kept[1])
    assert Folder(run).epochs()[0] == epoch
    check_files(directory(run, epoch), read_manifest(directory(run, epoch)).files)
    for path in directory(run, epoch).glob("*.safetensors"):
        assert all(bool(tensor.isfinite().all()) for tensor in load_file(path).values())
    return epoch


def test_options_that_diverge_at_once_leave_the_run_as_it_was(tmp_path: Path) -> None:
    """Layer, variable and epoch are named; the run can still go on with the options it had."""
    options = ["--data", str(write_samples(tmp_path / "samples.npz")), "--solver", "linearized", "--hidden", "3x6"]
    options += ["--epochs", "8", "--threads", "1", "--checkpoint-every", "2", "--set", "stationarity_every=1"]
    assert pdadmm("train", *options, "--out", tmp_path / "reference").code == 0
    assert pdadmm("train", *options, "--out", tmp_path / "run", "--epochs", "4", "--set", "ridge_epochs=8").code == 0
    before = content_of(tmp_path / "run")
    absurd = ("--epochs", "8", "--nu", "1e19", "--rho", "1e-19")
    found = resume(tmp_path / "run", *absurd, "--allow-changes")
    what = r"([pWbzq]|a product or sum) of layer \d"
    assert re.search(rf"error: {what} became NaN, infinite or too large in epoch 5;", found.err), found.err
    assert epoch_kept(found, tmp_path / "run") == 4
    assert content_of(tmp_path / "run") == before
    assert resume(tmp_path / "run", "--epochs", "8").json()["resumed_from"] == 4
    assert_same_run(tmp_path / "run", tmp_path / "reference")


def test_a_run_that_diverges_after_many_epochs_keeps_its_last_finite_checkpoint(tmp_path: Path) -> None:
    """With next to no rho, u grows until float32 ends; the way back is with a rho that holds."""
    options = [
        "--data",
        str(write_samples(tmp_path / "samples.npz")),
        "--hidden",
        "3x6",
        "--grow",
        "off",
        "--rho",
        "1e-8",
    ]
    options += ["--epochs", "1000", "--threads", "1", "--checkpoint-every", "3", "--set", "checkpoint_minutes=0"]
    options += ["--set", "stationarity_every=0", "--set", "evaluate_every=1000", "--quiet"]
    found = pdadmm("train", *options, "--out", tmp_path / "run")
    epoch = epoch_kept(found, tmp_path / "run")
    diverged = re.search(r"layer \d became NaN, infinite or too large in epoch (\d+);", found.err)
    assert diverged is not None
    assert epoch < int(diverged[1]) <= epoch + 3
    assert epoch > 9
    assert not (tmp_path / "run" / "model.safetensors").exists()
    more = ("--rho", "1", "--allow-changes", "--epochs", str(epoch + 5))
    assert resume(tmp_path / "run", *more).json()["resumed_from"] == epoch


@pytest.mark.parametrize(
    "options",
    [("--rho", "1e-30"), ("--nu", "1e38", "--set", "nu_output=1e38"), ("--rho", "1e-12", "--loss", "squared")],
)
def test_a_factorisation_that_fails_ends_in_a_line(options: tuple[str, ...], tmp_path: Path) -> None:
    samples = write_samples(tmp_path / "samples.npz")
    found = pdadmm("train", "--data", samples, "--hidden", "3x6", "--grow", "off", "--threads", "1", *options)
    assert found.code == 3


def test_a_history_is_read_up_to_a_half_line_and_refused_where_it_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    rows = [json.dumps({"epoch": epoch, "seconds": 1, "objective": 2}) + "\n" for epoch in (1, 2, 3)]
    path.write_text(rows[0] + rows[1] + rows[2][:9])
    assert [row["epoch"] for row in read_history(tmp_path)] == [1, 2]
    path.write_text(rows[0] + "?\n" + rows[2])
    with pytest.raises(DamageError, match=r"line 2 of .*history.jsonl is not JSON"):
        read_history(tmp_path)
    problems: list[str] = []
    assert [row["epoch"] for row in read_history(tmp_path, problems)] == [1, 3]
    assert len(problems) == 1
