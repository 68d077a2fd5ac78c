"""`pdadmm inspect`: whatever became of a run, it says so, names what is damaged, and its command works."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commands import TINY, Command, Outcome, assert_refused, rows_of, samples, strict_json
from pdadmm.checkpoint.manifest import Manifest, read_manifest
from pdadmm.cli.main import main
from pdadmm.rundir import RunDirectory

DEADLINE = 60.0
KEYS = {"status", "valid", "epoch", "epochs", "checkpoints", "resume_epoch", "resume_command", "problems", "notes"}
NEWEST = "checkpoints/epoch-00000003"


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of three epochs with checkpoints of the last two; not to be changed."""
    folder = tmp_path_factory.mktemp("finished")
    X, y = samples()
    np.savez(folder / "samples.npz", X=X, y=y)
    options = ["--data", str(folder / "samples.npz"), "--checkpoint-every", "1", "--quiet"]
    assert main(["train", *TINY, *options, "--out", str(folder / "run")]) == 0
    return folder / "run"


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    """The same, to be changed: `run` in the directory where commands are run."""
    shutil.copytree(finished, tmp_path / "run", symlinks=True)
    return tmp_path / "run"


def found_in(pdadmm: Command, run: str | Path = "run", code: int = 0) -> dict[str, Any]:
    """The report as JSON; the one for people has the same to say."""
    outcome = pdadmm("inspect", run, "--json")
    assert outcome.code == code, outcome
    report: dict[str, Any] = strict_json(outcome.out)
    assert set(report) >= KEYS
    assert report["valid"] == (code == 0) == (not report["problems"])
    text = pdadmm("inspect", run)
    assert text.code == code
    shown = [line.split()[0] for line in text.out.splitlines()]
    assert {"run", "status", "epoch", "advice"} <= set(shown)
    assert f"{report['status']}: " in text.out
    assert all(word in text.out for word in (report["command"], report["advice"]) if word)
    if code:
        assert_refused(replace(text, out=""), " is damaged: ", code=6)
        assert text.out.count("\nproblems ") == 1
    return report


def follow(pdadmm: Command, report: dict[str, Any]) -> Outcome:
    """Type the command, as a shell would split it."""
    program, *arguments = shlex.split(report["command"])
    assert program == "pdadmm"
    outcome = pdadmm(*arguments, "--quiet")
    assert outcome.code == 0, outcome
    return outcome


def drop_results(run: Path) -> None:
    for name in ("model.safetensors", "summary.json"):
        (run / name).unlink()


def rewrite(run: Path, change: Callable[[Manifest], Manifest]) -> None:
    """Change the newest manifest as someone would who can seal it."""
    path = run / NEWEST / "manifest.json"
    path.write_bytes(change(read_manifest(path.parent)).to_bytes())


# --- how a run may have ended


def test_a_finished_run_and_how_to_extend_it(pdadmm: Command, run: Path) -> None:
    report = found_in(pdadmm)
    assert (report["status"], report["epoch"], report["epochs"], report["resume_epoch"]) == ("completed", 3, 3, 3)
    assert [(found["epoch"], found["valid"], found["problem"]) for found in report["checkpoints"]] == [
        (3, True, None),
        (2, True, None),
    ]
    last = rows_of(run)[-1]
    assert report["objective"] == last["objective"]
    assert report["scores"] == {name: last[name] for name in ("train_accuracy", "test_accuracy")}
    assert report["seconds"] == pytest.approx(sum(row["seconds"] for row in rows_of(run)))
    size = sum(path.stat().st_size for path in (run / NEWEST).glob("layer-*"))
    assert report["checkpoints"][0]["bytes"] == size
    assert report["resume_command"] == "pdadmm train --resume run --epochs 6"
    follow(pdadmm, report)
    assert found_in(pdadmm)["epoch"] == 6


def test_text_is_short_and_aligned(pdadmm: Command, run: Path) -> None:
    lines = pdadmm("inspect", "run").out.splitlines()
    assert len(lines) < 20
    assert all(line[12] == " " and line[13] != " " for line in lines)
    assert lines[2:5] == ["hidden       2x8", "activation   relu", "method       pdadmm"]
    assert re.fullmatch(r"checkpoints  epoch 3 +[\d.]+ KiB  valid", lines[13])


def test_an_interrupted_run_goes_on(pdadmm: Command, npz: Path, tmp_path: Path) -> None:
    with going_on(tmp_path / "run", npz) as process:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=DEADLINE)
    report = found_in(pdadmm)
    epoch = len(rows_of(tmp_path / "run"))
    assert (report["status"], report["epoch"], report["resume_epoch"]) == ("interrupted", epoch, epoch)
    assert report["resume_command"] == "pdadmm train --resume run"


@contextmanager
def going_on(run: Path, data: Path) -> Iterator[subprocess.Popen[str]]:
    """A run in a process of its own that has checkpoints; it is ended, if it has not."""
    options = [*TINY, "--data", str(data), "--epochs", "1000000", "--checkpoint-every", "5", "--quiet"]
    command = [sys.executable, "-m", "pdadmm", "train", *options, "--out", str(run)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            until = time.monotonic() + DEADLINE
            while not (run / "checkpoints" / "latest").exists():
                assert process.poll() is None, process.communicate()
                assert time.monotonic() < until
                time.sleep(0.02)
            yield process
        finally:
            process.kill()


def test_a_run_while_it_goes_on_and_after_it_was_killed(pdadmm: Command, npz: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    with going_on(run, npz) as process:
        seen = []
        for _ in range(10):  # with a checkpoint every few milliseconds, files come and go under our eyes
            report = found_in(pdadmm)
            assert report["status"] == "running"
            assert report["resume_command"] is None
            seen.append(report["epoch"])
        assert seen == sorted(seen)
        assert seen[0] < seen[-1]
        assert process.poll() is None
    report = found_in(pdadmm)
    epoch, saved = len(rows_of(run)), report["resume_epoch"]
    assert (report["status"], report["epoch"]) == ("killed", epoch)
    assert epoch - 10 <= saved <= epoch
    assert (f"to epoch {epoch}, is computed again" in report["advice"]) == (saved < epoch)
    assert report["resume_command"] == "pdadmm train --resume run"
    assert pdadmm("train", "--resume", "run", "--epochs", str(epoch + 1), "--quiet").code == 0
    assert found_in(pdadmm)["status"] == "completed"
    assert len(rows_of(run)) == epoch + 1


def test_a_run_that_has_not_finished_an_epoch(pdadmm: Command, tmp_path: Path) -> None:
    with RunDirectory(tmp_path / "run"):
        report = found_in(pdadmm)
    assert (report["status"], report["epoch"], report["epochs"]) == ("running", 0, None)


def test_a_run_that_diverged(pdadmm: Command, train: Command, npz: Path) -> None:
    options = (
        "--grow",
        "off",
        "--rho",
        "1e-8",
        "--epochs",
        "1000",
        "--set",
        "evaluate_every=1000",
    )  # u grows without end
    outcome = train("--data", npz, "--out", "run", "--checkpoint-every", "3", "--set", "stationarity_every=0", *options)
    assert outcome.code == 3, outcome
    report = found_in(pdadmm)
    assert report["status"] == "stopped"
    assert 9 < report["resume_epoch"] <= report["epoch"] < 1000
    assert "if it diverged, it needs other options too, with --allow-changes" in report["advice"]
    changed = (*shlex.split(report["command"])[1:], "--allow-changes", "--rho", "0.003", "--quiet")
    assert pdadmm(*changed, "--epochs", str(report["resume_epoch"] + 1)).code == 0


def test_a_converged_run(pdadmm: Command, train: Command, npz: Path) -> None:
    assert train("--data", npz, "--out", "run", "--epochs", "300", "--grow", "off", "--set", "tolerance=0.3").code == 0
    report = found_in(pdadmm)
    assert report["status"] == "converged"
    assert report["resume_command"] == "pdadmm train --resume run --set tolerance=0.03"
    follow(pdadmm, report)
    assert found_in(pdadmm)["epoch"] > report["epoch"]


def test_a_resumed_run_that_died_has_older_results(pdadmm: Command, run: Path) -> None:
    results = {name: (run / name).read_bytes() for name in ("model.safetensors", "summary.json")}
    assert pdadmm("train", "--resume", "run", "--epochs", "5", "--quiet").code == 0
    for name, content in results.items():
        (run / name).write_bytes(content)
    (run / ".lock").touch()
    report = found_in(pdadmm)
    assert (report["status"], report["epoch"], report["results_epoch"]) == ("killed", 5, 3)
    assert report["notes"] == ["model and summary are of epoch 3, before the run was resumed"]
    follow(pdadmm, report)
    assert found_in(pdadmm)["results_epoch"] == 5


def test_results_that_were_never_written(pdadmm: Command, run: Path, finished: Path) -> None:
    drop_results(run)
    report = found_in(pdadmm)
    assert (report["status"], report["resume_command"]) == ("stopped", "pdadmm train --resume run")
    follow(pdadmm, report)
    assert (run / "model.safetensors").read_bytes() == (finished / "model.safetensors").read_bytes()


def test_a_run_without_checkpoints(pdadmm: Command, train: Command, npz: Path, tmp_path: Path) -> None:
    options = ("--data", npz, "--set", "checkpoint_minutes=0")
    assert train(*options, "--out", "run").code == 0
    report = found_in(pdadmm)
    assert (report["checkpoints"], report["resume_epoch"], report["resume_command"]) == ([], None, None)
    assert report["command"] == "pdadmm train --config run/config.toml --out run-2 --init-from run"
    follow(pdadmm, report)
    drop_results(tmp_path / "run")
    report = found_in(pdadmm)
    assert (report["resume_epoch"], report["advice"]) == (0, "it has no checkpoint, so it begins anew")
    follow(pdadmm, report)
    assert found_in(pdadmm)["status"] == "completed"


# --- what a run may leave


def test_the_directory_of_a_second_host(pdadmm: Command, run: Path) -> None:
    drop_results(run)
    (run / "history.jsonl").unlink()
    shutil.rmtree(run / "checkpoints/epoch-00000002")
    rewrite(run, lambda manifest: replace(manifest, files=manifest.files[1:]))
    assert_damaged(pdadmm, "layer-001-shard-01.safetensors does not belong")
    (run / NEWEST / "layer-001-shard-01.safetensors").unlink()
    report = found_in(pdadmm)
    assert (report["status"], report["epoch"], report["resume_epoch"]) == ("part", 3, 3)
    assert report["resume_command"] is None
    assert report["advice"].endswith("torchrun … -m pdadmm train --resume run")


def test_what_is_unfinished_set_aside_or_partly_deleted_is_no_damage(pdadmm: Command, run: Path) -> None:
    for name in (".saving-epoch-00000004", ".deleting-epoch-00000001"):
        (run / "checkpoints" / name).mkdir()
    shutil.copytree(run / NEWEST, run / f"{NEWEST}.aside")
    report = found_in(pdadmm)
    assert [found["epoch"] for found in report["checkpoints"]] == [3, 2]
    assert report["notes"] == []
    follow(pdadmm, report)
    assert not [path for path in (run / "checkpoints").iterdir() if path.name.startswith(".")]


def set_option(run: Path, setting: str) -> None:
    """Edit a line of config.toml."""
    name, lines = setting.split()[0], (run / "config.toml").read_text().splitlines()
    assert any(line.startswith(f"{name} = ") for line in lines)
    lines = [setting if line.startswith(f"{name} = ") else line for line in lines]
    (run / "config.toml").write_text("\n".join(lines))


def test_data_that_has_moved(pdadmm: Command, run: Path, finished: Path) -> None:
    set_option(run, "data = 'no/where.npz'")
    report = found_in(pdadmm)
    assert pdadmm(*shlex.split(report["command"])[1:], "--quiet").code == 2
    moved = finished.parent / "samples.npz"
    assert pdadmm(*shlex.split(report["command"])[1:], "--quiet", "--data", moved).code == 0


@pytest.mark.parametrize(
    ("option", "command"),
    [("rho = 0.25", "pdadmm train --resume run --allow-changes"), ("dtype = 'float64'", None)],
)
def test_other_options_than_the_checkpoints(pdadmm: Command, run: Path, option: str, command: str | None) -> None:
    set_option(run, option)
    report = found_in(pdadmm)
    assert report["command"] == command
    assert f"{option.split()[0]} was " in report["advice"]
    if command:
        follow(pdadmm, report)


# --- damage


def assert_damaged(pdadmm: Command, *fragments: str) -> dict[str, Any]:
    report = found_in(pdadmm, code=6)
    for fragment in fragments:
        assert any(fragment in problem for problem in report["problems"]), report["problems"]
    return report


def change_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def replace_by(make: Callable[[Path], None], path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    make(path)


LAYER = f"{NEWEST}/layer-002-shard-01.safetensors"
MANIFEST = f"{NEWEST}/manifest.json"
DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "a bit": (lambda run: change_byte(run / LAYER), f"run/{LAYER} has been changed: its SHA-256 is "),
    "cut": (lambda run: os.truncate(run / LAYER, 100), f"run/{LAYER} has 100 bytes instead of "),
    "missing": (lambda run: (run / LAYER).unlink(), f"run/{LAYER} is missing"),
    "foreign": (lambda run: (run / NEWEST / "x").touch(), f"run/{NEWEST}/x does not belong"),
    "manifest": (lambda run: change_byte(run / MANIFEST), f"run/{MANIFEST} "),
    "no manifest": (lambda run: (run / MANIFEST).unlink(), f"run/{MANIFEST} is missing"),
    "huge manifest": (lambda run: os.truncate(run / MANIFEST, 2**36), f"run/{MANIFEST} is too large"),
    "pipe": (lambda run: replace_by(os.mkfifo, run / LAYER), f"run/{LAYER} is not a plain file"),
    "renamed": (
        lambda run: (run / NEWEST).rename(run / "checkpoints/epoch-00000009"),
        "run/checkpoints/epoch-00000009 holds the checkpoint of epoch 3",
    ),
    "file": (lambda run: replace_by(Path.touch, run / NEWEST), f"run/{NEWEST} is not a directory"),
    "history mark": (
        lambda run: rewrite(run, lambda found: replace(found, history=replace(found.history, bytes=2**70))),
        "run/history.jsonl does not begin with the",
    ),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_checkpoint_is_named_and_the_one_before_taken(pdadmm: Command, run: Path, name: str) -> None:
    damage, fragment = DAMAGE[name]
    damage(run)
    report = assert_damaged(pdadmm, fragment)
    assert [found["valid"] for found in report["checkpoints"]] == [False, True]
    assert fragment in report["checkpoints"][0]["problem"]
    assert (report["resume_epoch"], report["status"]) == (2, "completed")
    if name != "history mark":  # which only someone who can seal a manifest can make
        follow(pdadmm, report)
        after = found_in(pdadmm)
        assert (after["epoch"], after["resume_epoch"]) == (3, 3)


def test_no_checkpoint_is_left(pdadmm: Command, run: Path, finished: Path) -> None:
    for directory in (run / "checkpoints").glob("epoch-*"):
        change_byte(directory / "layer-001-shard-01.safetensors")
    report = assert_damaged(pdadmm, "epoch-00000002/layer-001", "epoch-00000003/layer-001")
    assert (report["resume_epoch"], report["resume_command"]) == (None, None)
    assert report["command"] == "pdadmm train --config run/config.toml --out run-2"
    follow(pdadmm, report)
    assert (run.parent / "run-2/model.safetensors").read_bytes() == (finished / "model.safetensors").read_bytes()


def history_with(change: Callable[[list[bytes]], list[bytes]]) -> Callable[[Path], bytes]:
    return lambda run: b"".join(change((run / "history.jsonl").read_bytes().splitlines(keepends=True)))


HISTORY: dict[str, tuple[Callable[[Path], bytes], str]] = {
    "gap": (history_with(lambda rows: [rows[0], rows[2]]), "run/history.jsonl lacks the row of epoch 2"),
    "repeat": (
        history_with(lambda rows: [rows[0], rows[0]]),
        "line 2 of run/history.jsonl does not follow",
    ),
    "cut": (history_with(lambda rows: [*rows[:2], rows[2][:-9]]), "run/history.jsonl does not begin with the"),
    "binary": (lambda run: os.urandom(5000) + b"\n", "line 1 of run/history.jsonl is not"),
    "deep": (lambda run: b"[" * 100_000 + b"\n", "line 1 of run/history.jsonl is not JSON"),
    "empty line": (history_with(lambda rows: [*rows, b"\n"]), "line 4 of run/history.jsonl is not JSON"),
    "no row": (history_with(lambda rows: [*rows, b"[4]\n"]), "line 4 of run/history.jsonl is not the row of an epoch"),
    "digits": (
        lambda run: b'{"epoch": ' + b"9" * 4000 + b"}\n",
        "line 1 of run/history.jsonl is not the row of an epoch",
    ),
    "zeros": (lambda run: bytes(2**24 + 1), "line 1 of run/history.jsonl is not JSON"),
}


@pytest.mark.parametrize("name", HISTORY)
def test_a_damaged_history(pdadmm: Command, run: Path, name: str) -> None:
    content, fragment = HISTORY[name]
    (run / "history.jsonl").write_bytes(content(run))
    report = assert_damaged(pdadmm, fragment)
    assert report["status"] == "completed"
    assert report["epoch"] == 3


def test_a_damaged_history_is_why_a_checkpoint_is_not_valid(pdadmm: Command, run: Path) -> None:
    lines = (run / "history.jsonl").read_text().splitlines(keepends=True)
    (run / "history.jsonl").write_text("".join([*lines[:2], lines[2].replace("objective", "objektive")]))
    report = assert_damaged(pdadmm, f"run/{NEWEST}: run/history.jsonl does not begin with the")
    assert report["resume_epoch"] == 2
    follow(pdadmm, report)
    found_in(pdadmm)


def test_without_its_history_a_run_goes_on_from_the_newest_checkpoint(pdadmm: Command, run: Path) -> None:
    (run / "history.jsonl").write_text("\n" + (run / "history.jsonl").read_text())
    report = assert_damaged(pdadmm, "run/history.jsonl does not begin with the")
    assert report["resume_epoch"] == 3
    follow(pdadmm, report)
    found_in(pdadmm)


OTHERS: dict[str, tuple[str, bytes, str]] = {
    "toml": ("config.toml", b"\xff\xfe", "run/config.toml is not a TOML file"),
    "option": ("config.toml", b"hiden = 3", "run/config.toml: unknown option 'hiden'"),
    "deep toml": ("config.toml", b"a = " + b"[" * 50_000, "run/config.toml is not a TOML file"),
    "long number": ("config.toml", b"seed = " + b"9" * 5000, "run/config.toml is not a TOML file"),
    "model": ("model.safetensors", b"hello", "run/model.safetensors is not a safetensors file"),
    "summary": ("summary.json", b"{", "run/summary.json makes no sense: JSONDecodeError"),
    "list": ("summary.json", b"[1]", "run/summary.json makes no sense: TypeError"),
    "status": ("summary.json", b'{"status": "fine", "epochs": 3}', "run/summary.json does not say how the run ended"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_damaged_files(pdadmm: Command, run: Path, name: str) -> None:
    file, content, fragment = OTHERS[name]
    (run / file).write_bytes(content)
    report = assert_damaged(pdadmm, fragment)
    assert len(report["problems"]) == 1
    if file == "config.toml":
        assert report["command"] is None
        assert "put a valid config.toml back first; its options are also in the manifest of epoch 3" in report["advice"]
    else:
        follow(pdadmm, report)  # which writes the results anew
        found_in(pdadmm)


@pytest.mark.parametrize("kind", ["pipe", "directory", "loop", "device", "missing"])
@pytest.mark.parametrize("name", ["config.toml", "history.jsonl", "model.safetensors", "summary.json", "checkpoints"])
def test_something_else_in_the_place_of_a_file(pdadmm: Command, run: Path, name: str, kind: str) -> None:
    path = run / name
    make: dict[str, Callable[[Path], None]] = {
        "pipe": os.mkfifo,
        "directory": Path.mkdir,
        "loop": lambda path: path.symlink_to(name),
        "device": lambda path: path.symlink_to("/dev/zero"),
        "missing": lambda path: None,
    }
    replace_by(make[kind], path)
    is_fine = (name == "checkpoints" and kind in ("directory", "missing")) or (name, kind) == (
        "summary.json",
        "missing",
    )
    report = found_in(pdadmm, code=0 if is_fine else 6)
    assert is_fine or any(f"run/{name} " in problem for problem in report["problems"])


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_a_lock_that_is_not_a_file(pdadmm: Command, run: Path, make: Callable[[Path], None]) -> None:
    make(run / ".lock")
    assert_damaged(pdadmm, "run/.lock is not a plain file")


@contextmanager
def without_rights() -> Iterator[None]:
    """Root may read everything, so be someone else for a while."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(before)


@pytest.mark.parametrize("name", ["config.toml", "history.jsonl", "model.safetensors", "summary.json", NEWEST, LAYER])
def test_unreadable_files(pdadmm: Command, run: Path, name: str) -> None:
    run.parent.chmod(0o755)
    (run / name).chmod(0)
    try:
        with without_rights():
            assert_damaged(pdadmm, f"run/{name}", "Permission denied")
    finally:
        (run / name).chmod(0o755)


def test_unreadable_directories(pdadmm: Command, run: Path) -> None:
    run.parent.chmod(0o755)
    for mode in (0o444, 0):
        run.chmod(mode)
        try:
            with without_rights():
                outcome = pdadmm("inspect", "run")
        finally:
            run.chmod(0o755)
        assert outcome.code == (6 if mode else 2)
        assert "Traceback" not in outcome.err


# --- names


def test_what_is_not_a_run(pdadmm: Command, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "pipe")
    assert_refused(pdadmm("inspect", "empty"), "empty is not a run directory: it has none of config.toml")
    assert_refused(pdadmm("inspect", "file"), "file is not a run directory: Not a directory")
    assert_refused(pdadmm("inspect", "pipe"), "pipe is not a run directory: Not a directory")
    assert_refused(pdadmm("inspect", "nowhere", "--json"), "nowhere is not a run directory: No such file")
    assert_refused(pdadmm("inspect"), "RUN", "see pdadmm inspect --help")


@pytest.mark.parametrize("name", ["a run's", "$HOME;`ls`", "-run", "two\nlines", "\x1b[31m", "größe"])
def test_a_command_for_any_name(pdadmm: Command, run: Path, name: str) -> None:
    run.rename(run.parent / name)
    report = strict_json(pdadmm("inspect", "--json", "--", name).out)
    assert report["status"] == "completed"
    text = pdadmm("inspect", "--", name)
    assert text.code == 0
    assert all(line.isprintable() for line in text.out.splitlines())
    assert report["command"] in text.out
    # The shell itself says what it makes of the words.
    shown = subprocess.run(
        ["bash", "-c", f'pdadmm() {{ printf "%s\\0" "$@"; }}; {report["command"]}'], capture_output=True, check=True
    )
    words = os.fsdecode(shown.stdout).split("\0")
    assert words[:2] == ["train", "--resume"]
    assert Path(words[2]) == Path(name)
    assert pdadmm(*words[:-1], "--quiet").code == 0


def test_names_in_it_cannot_reach_the_terminal(pdadmm: Command, run: Path) -> None:
    (run / NEWEST / "\x1b[2J\nx").touch()
    outcome = pdadmm("inspect", "run")
    assert outcome.code == 6
    assert "\x1b" not in outcome.out + outcome.err
    assert "\\x1b[2J\\nx does not belong" in outcome.out


def test_a_name_that_is_not_text(pdadmm: Command, run: Path) -> None:
    run.rename(run.parent / "\udcff")
    outcome = pdadmm("inspect", "\udcff")
    assert outcome.code == 6  # safetensors cannot open the model
    assert "$'\\xff'" in outcome.out
