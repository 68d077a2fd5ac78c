"""Names that a terminal or a spreadsheet would obey, absurd numbers, and run directories that someone tampered with."""

from __future__ import annotations

import csv
import io
import json
import random
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import vl_convert

from commands import TINY, Command, assert_refused, samples
from pdadmm.cli.predict import _Visible
from pdadmm.config import Config
from pdadmm.errors import UserError

FORMULAS = ("=1+1", "@SUM(A1)", "-x", "+1 ", "-3.5", "plain")
OBEYED = "\x1b[31m", "\u202e", "\x07", "\x9b1m", "\x7f"


def assert_visible(text: str) -> None:
    """No letter that a terminal obeys or that turns the direction of what follows."""
    assert [letter for letter in text if not letter.isprintable() and letter != "\n"] == []


def write_labelled(path: Path, labels: tuple[str, ...]) -> Path:
    X, _ = samples(60)
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = ([*map(float, row), labels[index % len(labels)]] for index, row in enumerate(X))
        csv.writer(file).writerows([["a", "b", "c", "label"], *rows])
    return path


# --- spreadsheets and terminals


def test_class_names_that_a_spreadsheet_would_run_are_quoted(pdadmm: Command, train: Command, tmp_path: Path) -> None:
    data = write_labelled(tmp_path / "data.csv", FORMULAS)
    assert train("--data", data, "--out", "run").code == 0
    predict = ("predict", "run", "--data", data, "--target", "label")
    told = pdadmm(*predict, "--json").json()["predictions"]
    shown = pdadmm(*predict).out.splitlines()[1:]
    written = {"=1+1": '"\'=1+1"', "@SUM(A1)": '"\'@SUM(A1)"', "-x": '"\'-x"', "+1 ": '"\'+1 "'}
    assert shown == [written.get(label, f'"{label}"') for label in told]
    assert set(written) & set(told)
    assert [row[0] for row in csv.reader(pdadmm(*predict, "--raw").out.splitlines()[1:])] == told


def test_a_terminal_does_not_obey_predicted_names() -> None:
    terminal = io.StringIO()
    csv.writer(_Visible(terminal), lineterminator="\n").writerow(OBEYED)
    assert_visible(terminal.getvalue())
    assert "\\x1b[31m" in terminal.getvalue()


def test_no_name_reaches_a_terminal_or_a_page_unescaped(
    pdadmm: Command, train: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "pdadmm.charts")  # the page has charts
    evil = "".join(OBEYED)
    data = tmp_path / f"data{evil}.npz"
    X, y = samples()
    np.savez(data, X=X, y=np.where(y > 0, f"x{evil}", f"y{evil}"))
    run, missing = tmp_path / f"run{evil}", tmp_path / f"none{evil}"
    commands: list[tuple[tuple[str | Path, ...], int]] = [
        (("train", *TINY, "--data", data, "--out", run), 0),
        (("train", *TINY, "--data", data, "--out", run), 2),
        (("train", *TINY, "--data", data, "--target", f"z{evil}"), 2),
        (("train", *TINY, "--data", missing), 2),
        (("train", "--resume", run, "--epochs", "4"), 0),
        (("evaluate", run), 0),
        (("evaluate", run, "--data", missing), 2),
        (("predict", run, "--data", data, "--out", tmp_path / f"out{evil}"), 0),
        (("predict", run, "--data", missing), 2),
        (("inspect", run), 0),
        (("inspect", missing), 2),
        (("report", tmp_path), 0),
        ((f"tra{evil}in",), 2),
        (("train", f"--hid{evil}"), 2),
    ]
    for arguments, code in commands:
        found = pdadmm(*arguments)
        assert found.code == code, (arguments, found)
        assert_visible(found.out)
        assert_visible(found.err.replace("\r", ""))
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert_visible(page.replace(vl_convert.javascript_bundle(), ""))  # type: ignore[call-arg]  # its types are wrong
    (run / "history.jsonl").write_bytes(b"{\n")
    found = pdadmm("inspect", run)
    assert found.code == 6
    assert_visible(found.out + found.err)


# --- numbers that nobody can mean

HUGE = "99999999999999999999"


@pytest.mark.parametrize(
    ("line", "fragment"),
    [
        *[
            (f"{name} = {HUGE}", f"{name} must be at most")
            for name in ("epochs", "ridge_epochs", "ridge_samples", "evaluate_every", "stationarity_every", "restarts")
        ],
        *[(f"{name} = {HUGE}", f"{name} must be at most") for name in ("checkpoint_every", "batches", "output_steps")],
        *[(f"{name} = {HUGE}", f"{name} must be at most") for name in ("seed", "workers", "shards", "timeout")],
        ("timeout = 1e300", "timeout must be at most 1000000000"),
        (f"nu = {'9' * 400}", "nu must be a number"),
        (f"epochs = {'9' * 5000}", "is not a TOML file"),
        (f"hidden = [{HUGE}]", "hidden widths must be at most"),
        (f"hidden = '1x{HUGE}'", "hidden widths must be at most"),
        ("epochs = 1.5", "epochs must be a whole number; got 1.5"),
        ("epochs = true", "epochs must be a whole number; got True"),
        ("epochs = [3]", "epochs must be a whole number"),
        ("data = 3", "data must be a text; got 3"),
        ("hidden = {a = 1}", "hidden must be"),
        (f"epochs = {'[' * 100_000}", "is not a TOML file"),
        ("epochs = 2026-01-01", "epochs must be a whole number"),
        ("[epochs]", "epochs must be a whole number"),
    ],
    ids=lambda text: text[:30],
)
def test_absurd_configurations_are_refused(line: str, fragment: str, pdadmm: Command, tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(f"{line}\n")
    assert_refused(pdadmm("train", "--config", "config.toml", "--out", "run"), fragment)
    assert not (tmp_path / "run").exists()


def test_numbers_and_texts_of_numpy_are_plain_values() -> None:
    config = Config(hidden=np.array([3, 4]), epochs=np.int64(5), nu=np.float64(0.5), solver=np.str_("exact"))  # type: ignore[arg-type]
    assert config == Config(hidden=(3, 4), epochs=5, nu=0.5)
    assert type(config.epochs) is int
    for options in ({"solver": np.str_("q")}, {"hidden": (np.float64(1.5),)}, {"epochs": np.float64(2.5)}):
        with pytest.raises(UserError, match="must be") as refused:
            Config(**options)
        assert "np." not in str(refused.value)


# --- run directories


def _lying_offsets(path: Path) -> None:
    """A header that says each array is elsewhere, far beyond the file."""
    content = path.read_bytes()
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    for entry in header.values():
        if "data_offsets" in entry:
            entry["data_offsets"] = [offset + 2**40 for offset in entry["data_offsets"]]
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + content[8 + size :])


def _write(name: str, change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def damage(run: Path) -> None:
        (run / name).write_bytes(change((run / name).read_bytes()))

    return damage


DAMAGES: dict[str, tuple[Callable[[Path], None], int, int, int]] = {
    # what is done to a run; exit codes of inspect, of evaluate, of train --resume
    "nothing": (lambda run: None, 0, 0, 0),
    "config of a wrong type": (_write("config.toml", lambda old: old + b"\n[x]\n"), 6, 2, 2),
    "config nested deeply": (_write("config.toml", lambda old: b"x = " + b"[" * 100_000), 6, 2, 2),
    "config of zeros": (_write("config.toml", lambda old: bytes(len(old))), 6, 2, 2),
    "model with lying offsets": (lambda run: _lying_offsets(run / "model.safetensors"), 6, 2, 0),
    "model with a huge header": (_write("model.safetensors", lambda old: b"\xff" * 7 + b"\x7f" + old[8:]), 6, 2, 0),
    "model that is empty": (_write("model.safetensors", lambda old: b""), 6, 2, 0),
    "history that ends in half a line": (_write("history.jsonl", lambda old: old + b'{"epoch": 31, "obj'), 0, 0, 0),
    "history with a line break in a row": (_write("history.jsonl", lambda old: old.replace(b",", b",\n", 1)), 6, 0, 0),
    "history nested deeply": (_write("history.jsonl", lambda old: b"[" * 100_000 + b"\n" + old), 6, 0, 0),
    "summary of another type": (_write("summary.json", lambda old: b"[1]"), 6, 0, 0),
}


def test_damaged_run_directories_are_told_or_mended(pdadmm: Command, trained: Path, tmp_path: Path) -> None:
    found, wanted = {}, {}
    for number, (name, (damage, *codes)) in enumerate(DAMAGES.items()):
        run = tmp_path / f"run-{number}"
        shutil.copytree(trained, run, symlinks=True)
        damage(run)
        commands = (("inspect", run), ("evaluate", run), ("train", "--resume", run, "--epochs", "31", "--quiet"))
        outcomes = [pdadmm(*command) for command in commands]
        found[name], wanted[name] = [outcome.code for outcome in outcomes], codes
        for outcome in outcomes:
            assert "Traceback" not in outcome.err
            assert sum(line.startswith("pdadmm: error: ") for line in outcome.err.splitlines()) == bool(outcome.code)
    assert found == wanted


MUTATIONS = 300


@pytest.mark.slow
def test_random_changes_of_a_run_directory_end_in_a_line(pdadmm: Command, trained: Path, tmp_path: Path) -> None:
    """Bytes of any file are changed, cut, doubled or put in; each try can be repeated by its number alone."""
    files = ("config.toml", "history.jsonl", "model.safetensors", "summary.json", "checkpoints/*/*")
    documented = {0, 2, 3, 6}
    wrong = []
    for number in range(MUTATIONS):
        generator = random.Random(number)
        run = tmp_path / "run"
        shutil.copytree(trained, run, symlinks=True)
        path = generator.choice(sorted(run.glob(files[number % len(files)])))
        content = bytearray(path.read_bytes())
        for _ in range(generator.choice((1, 1, 8))):
            at, length = generator.randrange(len(content) + 1), generator.randint(1, 40)
            put = generator.choice((b"", generator.randbytes(length), content[at : at + length] * 2, b"9" * 20, b"["))
            content[at : at + length * generator.randint(0, 1)] = put
        path.write_bytes(content)
        for command in (("inspect", run), ("evaluate", run), ("train", "--resume", run, "--epochs", "31", "--quiet")):
            try:
                outcome = pdadmm(*command)
            except BaseException as error:
                wrong.append(f"{number} {path.name} {command[0]}: {type(error).__name__} {error}")
                continue
            errors = sum(line.startswith("pdadmm: error: ") for line in outcome.err.splitlines())
            if outcome.code not in documented or errors != bool(outcome.code) or "Traceback" in outcome.err:
                wrong.append(f"{number} {path.name} {command[0]}: {outcome.code} {outcome.err}")
        shutil.rmtree(run)
    assert not wrong, "\n".join(wrong)
