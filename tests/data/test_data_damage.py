"""Files of every format with bytes changed at random: a valid table or one clear line, whatever comes."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from pdadmm.data import load_data
from pdadmm.errors import UserError

CSV = ("a,b,y\n" + "".join(f'{i}.5,-{i}e-3,{"uv"[i % 2]}\n"{i}",{i},"u"\n' for i in range(20))).encode()
TRIES = {"d.csv": 600, "d.npz": 600, "packed.npz": 600, "d.parquet": 60}


def content(name: str) -> bytes:
    file, random = io.BytesIO(), np.random.default_rng(0)
    X, y = random.normal(size=(40, 2)), np.arange(40) % 2
    if name == "d.csv":
        return CSV
    if name == "d.parquet":
        frame = pl.DataFrame({"a": X[:, 0], "b": y > 0, "y": np.array(["u", "v"])[y]})
        frame.write_parquet(file, row_group_size=15)
    else:
        save = np.savez_compressed if name == "packed.npz" else np.savez
        save(file, X=X, y=np.array(["u", "v"])[y])
    return file.getvalue()


def damaged(good: bytes, random: np.random.Generator) -> bytes:
    """Some bytes changed, taken out, doubled or cut off."""
    bad = bytearray(good)
    for _ in range(random.integers(1, 4)):
        place, length = int(random.integers(len(bad))), int(random.integers(1, 9))
        match random.integers(5):
            case 0:
                bad[place : place + length] = random.bytes(length)
            case 1:
                del bad[place : place + length]
            case 2:
                bad[place:place] = bad[place : place + length]
            case 3:
                bad[place] ^= 1 << int(random.integers(8))
            case _:
                bad[place:place] = random.choice([b",", b'"', b"\n", b"\r", b"\0", b"nan", b"\xff", b"1e999", b" "])
    return bytes(bad[: random.integers(len(bad))] if random.random() < 0.1 else bad) or b"x"


@pytest.mark.slow
@pytest.mark.parametrize("name", TRIES)
def test_damaged_files_give_a_table_or_one_line(name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    good, random = content(name), np.random.default_rng(int(os.environ.get("PDADMM_FUZZ_SEED", "0")))
    path, refused = tmp_path / name, 0
    for _ in range(TRIES[name]):
        path.write_bytes(damaged(good, random))
        try:
            data = load_data(str(path))
        except UserError as error:
            refused += 1
            assert len(str(error).splitlines()) == 1  # noqa: PT017 -- some damage is harmless
        else:
            assert np.isfinite(data.train.X).all()
            assert len(data.train.X) == len(data.train.y) > 0
    assert refused > TRIES[name] / 10
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("name", TRIES)
def test_a_damaged_file_ends_a_command_with_one_line(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(content(name)[:-30] + b"\xff" * 30)
    command = [sys.executable, "-m", "pdadmm", "train", "--data", str(path), "--out", str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert str(path) in done.stderr
