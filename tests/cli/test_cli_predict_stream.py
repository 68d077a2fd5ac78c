"""`pdadmm predict` on files of many blocks: the bits of predicting at once, bad rows by their place, bounded memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from commands import Command, assert_refused
from pdadmm import load_model
from pdadmm.data import tables
from pdadmm.data.tables import block_rows, in_blocks
from pdadmm.network import FORWARD_ROWS

ROWS = 10_000


def features(rows: int = ROWS) -> NDArray[Any]:
    """Numbers that text holds exactly."""
    return np.random.default_rng(0).integers(-999, 999, (rows, 3)) / 256


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of 4096 rows."""
    monkeypatch.setattr(tables, "BLOCK_ELEMENTS", 1)


def test_blocks_are_whole_tiles_of_a_network() -> None:
    assert all(block_rows(width) % FORWARD_ROWS == 0 for width in (1, 3, 1000, 10**7))
    assert block_rows(3) == FORWARD_ROWS  # by the fixture


@pytest.mark.parametrize("sizes", [[], [0], [3], [5, 5], [1, 9, 0, 4], [30], [10, 10]], ids=str)
def test_pieces_of_any_size_become_blocks(sizes: list[int]) -> None:
    X = np.arange(2.0 * sum(sizes)).reshape(-1, 2)
    pieces = np.split(X, np.cumsum(sizes)[:-1]) if sizes else []
    blocks = list(in_blocks(pieces, 10))
    assert all(len(block) == 10 for block in blocks[:-1])
    assert all(len(block) for block in blocks)
    assert np.array_equal(np.concatenate(blocks) if blocks else X, X)


def write(folder: Path, name: str, X: NDArray[Any], group: int = 1500) -> None:
    if name.endswith(".npz"):
        save = np.savez_compressed if name.startswith("packed") else np.savez
        content: Any = X.reshape(len(X), 3, 1) if name.startswith("images") else X
        save(folder / name, X=np.asfortranarray(content) if name.startswith("fortran") else content)
    elif name.endswith(".parquet"):
        table = pl.DataFrame({"other": X[:, 0], "a": X[:, 0], "b": X[:, 1], "c": X[:, 2]})
        table.write_parquet(folder / name, row_group_size=group)
    elif name.startswith("quoted"):
        lines = [f'{a},"some\ntext, {index}",{b},"{c}"\n\n' for index, (a, b, c) in enumerate(X.tolist())]
        (folder / name).write_text("".join(['a,note,b,"c"\n', *lines]))
    else:
        (folder / name).write_text("".join(["a,b,c\n", *(f"{a},{b},{c}\n" for a, b, c in X.tolist())]))


@pytest.mark.parametrize(
    "name",
    ["plain.npz", "packed.npz", "fortran.npz", "images.npz", "plain.csv", "quoted.csv", "plain.parquet"],
)
def test_blocks_give_the_bits_of_predicting_at_once(name: str, pdadmm: Command, trained: Path, tmp_path: Path) -> None:
    X = features()
    write(tmp_path, name, X)
    target = ["--target", "note"] if name.startswith("quoted") else ["--target", "other"] if "parquet" in name else []
    found = pdadmm("predict", trained, "--data", name, "--probabilities", "--json", *target).json()
    model = load_model(trained)
    assert found["predictions"] == model.predict(X).tolist()
    assert found["probabilities"] == model.predict_proba(X).tolist()
    text = pdadmm("predict", trained, "--data", name, "--proba", "--out", "out", *target)
    assert text.out == f"out/predictions.csv: {len(X)} predictions\n"
    lines = (tmp_path / "out/predictions.csv").read_text().splitlines()[1:]
    assert [[float(cell) for cell in line.split(",")] for line in lines] == [
        [label, *row] for label, row in zip(found["predictions"], found["probabilities"], strict=True)
    ]


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ("nan", "line 9003, column 'b': must be finite; got nan"),
        ("word", "line 9003, column 'b': must be a number; got 'word'"),
        ("", "line 9003, column 'b': must not be empty"),
        ("1,2", "line 9003: every line must have the first line's 3 fields; got 4"),
    ],
)
def test_a_bad_line_is_named_however_far_down(
    bad: str, message: str, pdadmm: Command, trained: Path, tmp_path: Path
) -> None:
    lines = [f"{a},{b},{c}" for a, b, c in features().tolist()]
    lines[9000] = f"1,{bad},3"
    (tmp_path / "bad.csv").write_text("\n".join(["a,b,c", "", *lines]) + "\n")
    assert_refused(pdadmm("predict", trained, "--data", "bad.csv", "--out", "new/out"), message)
    assert not (tmp_path / "new").exists()
    (tmp_path / "old").mkdir()
    (tmp_path / "old/predictions.csv").write_text("kept")
    assert_refused(pdadmm("predict", trained, "--data", "bad.csv", "--out", "old"), message)
    assert [path.name for path in (tmp_path / "old").iterdir()] == ["predictions.csv"]
    assert (tmp_path / "old/predictions.csv").read_text() == "kept"


@pytest.mark.parametrize("name", ["plain.npz", "packed.npz", "plain.parquet"])
def test_a_bad_row_of_a_later_block_is_named(name: str, pdadmm: Command, trained: Path, tmp_path: Path) -> None:
    X = features()
    X[9000, 1] = np.inf
    write(tmp_path, name, X)
    arguments = ["--data", name, "--target", "other", "--out", "out"]
    assert_refused(pdadmm("predict", trained, *arguments), "got inf at row 9000, column 1")
    assert not (tmp_path / "out").exists()


def test_a_damaged_npz_leaves_nothing(pdadmm: Command, trained: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", X=features())
    content = bytearray((tmp_path / "x.npz").read_bytes())
    content[len(content) // 2] ^= 64
    (tmp_path / "x.npz").write_bytes(content)
    assert_refused(pdadmm("predict", trained, "--data", "x.npz", "--out", "out"), "x.npz is not a .npz file", "CRC")
    assert not (tmp_path / "out").exists()


def test_no_samples_give_no_lines(pdadmm: Command, trained: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "none.npz", X=np.empty((0, 3)))
    assert pdadmm("predict", trained, "--data", "none.npz").out == "prediction\n"
    assert json.loads(pdadmm("predict", trained, "--data", "none.npz", "--json", "--proba").out) == {
        "predictions": [],
        "probabilities": [],
    }


MEASURED = """
import re, sys
from pdadmm.cli.main import main
from pdadmm.data import tables
tables.BLOCK_ELEMENTS = 1
code = main(sys.argv[1:])
print(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1], file=sys.stderr)
sys.exit(code)
"""


def peak(*arguments: str | Path) -> int:
    """The most memory in bytes that a command had, in a process of its own."""
    command = [sys.executable, "-c", MEASURED, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=540, check=False)
    assert done.returncode == 0, done.stderr
    return int(done.stderr.split()[-1]) * 1024


@pytest.mark.slow
@pytest.mark.parametrize("name", ["large.csv", "large.npz", "packed.npz", "large.parquet"])
def test_memory_does_not_grow_with_the_file(name: str, trained: Path, tmp_path: Path) -> None:
    """Eight times the samples, the same peak; the features alone would take more than twice what is allowed here."""
    peaks = []
    for rows in (200_000, 1_600_000):
        write(tmp_path, name, features(rows), group=50_000)
        arguments = ("--target", "other", "--out", tmp_path / "out")
        peaks.append(peak("predict", trained, "--data", tmp_path / name, *arguments))
    print(name, (tmp_path / name).stat().st_size, peaks)
    assert peaks[1] - peaks[0] < 15e6 < 1_400_000 * 3 * 8 / 2
