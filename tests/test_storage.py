"""Arrays on the disk: the same bits as in memory, nothing left behind, and data larger than the memory it needs."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from pdadmm.config import Config
from pdadmm.data.arrays import is_mapped
from pdadmm.data.sources import read_data
from pdadmm.errors import StorageError, UserError
from pdadmm.storage import Disk, storage_of
from pdadmm.trainer import load_for
from resume_cases import assert_same_run, carried_out, pdadmm, resume, started, write_samples

SHAPE = ("--hidden", "3x8", "--epochs", "5", "--grow", "0:1,2:all", "--threads", "1", "--quiet")


def data(folder: Path) -> Path:
    """Whole numbers, which are turned into floats where they are read, but not where they are mapped."""
    X = np.random.default_rng(0).integers(-100, 100, size=(90, 3), dtype=np.int32)
    np.savez(folder / "data.npz", X=X, y=X.argmax(axis=1))
    return folder / "data.npz"


@pytest.mark.parametrize("solver", ["exact", "linearized", "backtracking"])
def test_the_disk_has_the_bits_of_memory(tmp_path: Path, solver: str) -> None:
    options = ("--data", data(tmp_path), "--solver", solver, "--checkpoint-every", "2", *SHAPE)
    for storage in ("memory", "disk"):
        found = pdadmm("train", *options, "--storage", storage, "--out", tmp_path / storage)
        assert found.code == 0, found.err
    assert_same_run(tmp_path / "disk", tmp_path / "memory")
    names = {path.name for path in (tmp_path / "disk").iterdir()}
    assert names == {path.name for path in (tmp_path / "memory").iterdir()}


def test_two_workers_on_the_disk_have_the_bits_of_memory(tmp_path: Path) -> None:
    options = ("--data", data(tmp_path), *SHAPE, "--checkpoint-every", "2")
    assert pdadmm("train", *options, "--out", tmp_path / "memory").code == 0
    found = started("train", *options, "--workers", "2", "--storage", "disk", "--out", tmp_path / "disk")
    assert found.code == 0, found.err
    assert_same_run(tmp_path / "disk", tmp_path / "memory")


@pytest.mark.parametrize(("before", "after"), [("memory", "disk"), ("disk", "memory")])
def test_a_run_is_resumed_on_other_storage(tmp_path: Path, before: str, after: str) -> None:
    file = write_samples(tmp_path / "samples.npz")
    whole = Config(data=str(file), hidden=(8, 8), epochs=6, grow="off", stationarity_every=0, storage=before)
    carried_out(whole, load_for(whole), tmp_path / "whole")
    part = dataclasses.replace(whole, epochs=3, ridge_epochs=3)  # as that of the whole
    carried_out(part, load_for(part), tmp_path / "part")
    found = resume(tmp_path / "part", "--storage", after, "--epochs", "6")
    assert found.code == 0, found.err
    assert_same_run(tmp_path / "part", tmp_path / "whole")


# --- the files


def test_arrays_are_nameless_files_that_keep_no_handle(tmp_path: Path) -> None:
    handles = len(list(Path("/dev/fd").iterdir()))
    storage = Disk(tmp_path / "not" / "there" / "yet")
    tensor = storage.empty(5, 3, dtype=torch.float64)
    assert len(list(Path("/dev/fd").iterdir())) == handles
    array = storage.array((4, 2), np.dtype(np.int16))
    tensor.fill_(2.0)
    array[:] = 7
    assert float(tensor.sum()) == 30
    assert array.sum() == 56
    assert tensor.data_ptr() % 4096 == 0
    assert is_mapped(array)
    assert list(tmp_path.iterdir()) == []
    assert storage.empty(0, 3, dtype=torch.float32).shape == (0, 3)


def test_a_full_disk_is_an_error_and_no_signal(tmp_path: Path) -> None:
    storage = Disk(tmp_path)
    with pytest.raises(StorageError, match=r"cannot put an array of 1048576.0 TiB on the disk in"):
        storage.empty(2**60, dtype=torch.uint8)
    with pytest.raises(
        UserError,
        match=r"storage disk needs 1048576.0 TiB for the data and keeps 64.0 MiB unused, but only .* are free in",
    ):
        storage.check_room(2**60, "the data")


def test_what_the_disk_cannot_hold_is_refused_before_any_work(tmp_path: Path) -> None:
    file = write_samples(tmp_path / "samples.npz")
    found = pdadmm(
        "train", "--data", file, "--hidden", "100x1000000000", "--storage", "disk", "--out", tmp_path / "run"
    )
    assert found.code == 2
    assert "storage disk needs" in found.err
    assert "storage_dir=" in found.err
    assert list(tmp_path.iterdir()) == [file]


def test_where_the_files_may_be() -> None:
    with pytest.raises(UserError, match=r"storage_dir must be a directory that can be written to; got 'nowhere'"):
        storage_of(Config(storage="disk", storage_dir="nowhere"))
    with pytest.raises(UserError, match=r"storage disk needs device cpu"):
        storage_of(Config(storage="disk", device="meta"))


# --- data in files


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.uint8, np.int64, ">f4"])
def test_an_uncompressed_npz_is_mapped(tmp_path: Path, dtype: str) -> None:
    X = np.random.default_rng(0).integers(0, 200, size=(30, 2, 3)).astype(dtype)
    np.savez(tmp_path / "d.npz", a_long_name_before=np.zeros(3), X=X, y=np.arange(30))
    mapped = read_data(str(tmp_path / "d.npz"), mapped=True).train
    read = read_data(str(tmp_path / "d.npz")).train
    assert is_mapped(mapped.X)
    assert not is_mapped(read.X)
    np.testing.assert_array_equal(mapped.X, read.X)


def test_what_cannot_be_mapped_is_read(tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(30, 4))
    np.savez_compressed(tmp_path / "packed.npz", X=X, y=np.arange(30))
    np.savez(tmp_path / "fortran.npz", X=np.asfortranarray(X), y=np.array(["a", "b"] * 15))
    for name in ("packed", "fortran"):
        table = read_data(str(tmp_path / f"{name}.npz"), mapped=True).train
        assert not is_mapped(table.X)
        np.testing.assert_array_equal(table.X, X)


def test_a_damaged_array_is_found_though_it_is_mapped(tmp_path: Path) -> None:
    path = tmp_path / "d.npz"
    np.savez(path, X=np.ones((100, 10)), y=np.arange(100))
    content = bytearray(path.read_bytes())
    content[4000] ^= 1
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"X cannot be read: Bad CRC-32"):
        read_data(str(path), mapped=True)


STREAMED = """
import resource, sys, warnings
import sklearn.model_selection
from pdadmm import Config, train
from pdadmm.trainer import load_for
warnings.simplefilter("ignore")

def rows(path):
    config = Config(data=path, storage="disk", storage_dir=sys.argv[3], hidden=(4,), epochs=1, threads=1)
    return len(train(config, load_for(config)).history)

rows(sys.argv[1])
held = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmData")) * 1024
limit = held + int(sys.argv[4])
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
print(rows(sys.argv[2]))
"""


def test_the_data_may_be_several_times_the_memory(tmp_path: Path) -> None:
    """A run on a file of four times the anonymous memory that is left.

    A run on a few of its samples goes first: what modules and the matrix library take once is not the data's.
    """
    X = np.random.default_rng(0).standard_normal((200_000, 300), dtype=np.float32)
    small, large = tmp_path / "small.npz", tmp_path / "large.npz"
    for path, count in ((small, 4000), (large, len(X))):
        np.savez(path, X=X[:count], y=np.arange(count) % 2)
    left = large.stat().st_size // 4
    command = [sys.executable, "-c", STREAMED, str(small), str(large), str(tmp_path), str(left)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    found = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment)
    assert found.returncode == 0, found.stderr
    assert found.stdout == "1\n"
    assert {path.name for path in tmp_path.iterdir()} == {"small.npz", "large.npz"}
