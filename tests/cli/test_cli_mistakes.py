"""Whatever is wrong with what a user gives to `pdadmm train`: one line that names it, and nothing left behind."""

from __future__ import annotations

import fcntl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commands import Command, assert_refused, samples, typed

Refused = Callable[..., None]


@pytest.fixture
def refused(train: Command, tmp_path: Path) -> Refused:
    """Trains with these arguments, expects these words, and looks for what was left."""

    def check(arguments: tuple[Any, ...], *fragments: str) -> None:
        before = sorted(tmp_path.rglob("*"))
        assert_refused(train("--out", "some/new/run", *arguments), *fragments)
        assert sorted(tmp_path.rglob("*")) == before

    return check


# --- data


def broken_arrays() -> dict[str, tuple[dict[str, Any], tuple[str, ...], tuple[str, ...]]]:
    """Name: arrays of a .npz, further arguments, words of the message."""
    X, y = samples()
    hole, far, real = X.copy(), X.copy(), X[:, 0].copy()
    hole[26, 1], far[3, 0], real[7] = np.nan, np.inf, np.nan
    squared = ("--loss", "squared")
    objects = np.array([{}] * 40, dtype=object)
    return {
        "nan in X": ({"X": hole, "y": y}, (), ("X of d.npz must be finite", "row 26, column 1")),
        "inf in X": ({"X": far, "y": y}, (), ("X of d.npz must be finite", "(inf)", "row 3, column 0")),
        "nan in y": ({"X": X, "y": real}, squared, ("y of d.npz must be finite", "row 7")),
        "nan in classes": ({"X": X, "y": np.where(y == 1, np.nan, y)}, (), ("y of d.npz must be finite",)),
        "unequal lengths": ({"X": X, "y": y[:-1]}, (), ("y of d.npz", "39 for 40 samples")),
        "unequal weights": ({"X": X, "y": y, "w": [1.0]}, (), ("weight of d.npz", "1 for 40 samples")),
        "negative weight": ({"X": X, "y": y, "w": -(X[:, 0] ** 2)}, (), ("weight of d.npz must not be negative",)),
        "no samples": ({"X": X[:0], "y": y[:0]}, (), ("at least one sample", "(0, 3)")),
        "no features": ({"X": X[:, :0], "y": y}, (), ("at least one feature", "(40, 0)")),
        "no classes": ({"X": X, "y": X[:, 0]}, (), ("must be classes", "row 0", "--loss squared")),
        "one class": ({"X": X, "y": y * 0}, (), ("at least two classes", "only 0")),
        "one-hot": ({"X": X, "y": np.eye(3)[y]}, (), ("must be 1-D", "argmax")),
        "texts as numbers": ({"X": X, "y": y.astype(str)}, squared, ("must be real numbers", "--loss cross_entropy")),
        "objects": ({"X": X, "y": objects}, (), ("d.npz: y must be an array of numbers", "Python objects")),
        "texts in X": ({"X": X.astype(str), "y": y}, (), ("X of d.npz must be real numbers",)),
        "no y": ({"X": X}, (), ("it lacks 'y'", "keys: 'X'")),
        "unknown in test": (
            {"X_train": X, "y_train": y, "X_test": X, "y_test": y + 1},
            (),
            ("d.npz (test part)", "unknown 3"),
        ),
        "narrow test": (
            {"X_train": X, "y_train": y, "X_test": X[:, :2], "y_test": y},
            (),
            ("d.npz (test part)", "3 features; got 2"),
        ),
        "lonely class": ({"X": X, "y": np.where(np.arange(40) == 5, 9, y)}, (), ("at least 2 samples", "9")),
        "balanced reals": ({"X": X, "y": X[:, 0]}, (*squared, "--class-weight", "balanced"), ("class_weight",)),
        "unknown loss": ({"X": X, "y": y.astype(str)}, ("--loss", "hinge"), ("loss must be one of", "'hinge'")),
    }


@pytest.mark.parametrize("name", broken_arrays())
def test_arrays(refused: Refused, tmp_path: Path, name: str) -> None:
    arrays, arguments, fragments = broken_arrays()[name]
    np.savez(tmp_path / "d.npz", **arrays)
    refused(("--data", "d.npz", *arguments), *fragments)


@pytest.mark.parametrize(
    ("name", "content", "fragments"),
    [
        ("d.npz", b"hello", ("d.npz is not a .npz file",)),
        ("d.npz", b"PK\x05\x06" + b"\0" * 18, ("d.npz must have X and y", "keys: none")),
        ("d.csv", b"\x89PNG\r\n\x1a\n\0\0", ("d.csv is not a CSV file",)),
        ("d.csv", b"", ("d.csv is not a CSV file: it is empty",)),
        ("d.csv", b"a,b,c\n", ("d.csv must have at least one line of data",)),
        ("d.csv", b"a,b,c\n1,2,x\n1,,y\n", ("d.csv, line 3, column 'b'", "empty")),
        ("d.csv", b"a,b,c\n1,2,x\n1,two,y\n", ("d.csv, line 3, column 'b'", "'two'")),
        ("d.csv", b"a,b,c\n1,2,x\n1,y\n", ("d.csv, line 3", "3 fields; got 2")),
        ("d.csv", b"a,b,c\n1,nan,x\n1,2,y\n", ("d.csv, line 2, column 'b': must be finite",)),
        ("d.parquet", b"hello, this is no parquet", ("d.parquet is not a Parquet file",)),
        ("d.txt", b"1 2 3", ("data must be a known name (digits, mnist, ", ".csv", "'d.txt'")),
    ],
)
def test_files_that_are_not_what_their_name_says(
    refused: Refused, tmp_path: Path, name: str, content: bytes, fragments: tuple[str, ...]
) -> None:
    (tmp_path / name).write_bytes(content)
    refused(("--data", name), *fragments)


@pytest.mark.parametrize(
    ("arguments", "fragments"),
    [
        (("--data", "mnst"), ("data must be a known name (digits, mnist, ", "'mnst'")),
        (("--data", "gone.csv"), ("'gone.csv'", "No such file")),
        (("--data", "~nobody-here/d.csv"), ("~nobody-here/d.csv",)),
        (("--data", "d" * 300 + ".csv"), ("File name too long",)),
        (("--data", "caf\udce9.csv"), ("data must be UTF-8", "'caf\\udce9.csv'")),
        (("--data", "digits", "--target", "y"), ("target must not be set for digits", "'y'")),
        (("--data", "folder.csv"), ("'folder.csv' is a directory",)),
    ],
)
def test_names_of_data(
    refused: Refused, tmp_path: Path, arguments: tuple[str, ...], fragments: tuple[str, ...]
) -> None:
    (tmp_path / "folder.csv").mkdir()
    refused(arguments, *fragments)


@pytest.mark.parametrize("option", ["target", "weight"])
def test_unknown_columns(refused: Refused, tmp_path: Path, option: str) -> None:
    (tmp_path / "d.csv").write_text("a,b,c\n1,2,x\n1,3,y\n")
    refused(("--data", "d.csv", f"--{option}", "z"), f"{option} must be a column of d.csv", "'z'", "'a', 'b', 'c'")


# --- options


@pytest.mark.parametrize(
    ("option", "value", "fragments"),
    [
        ("solver", "sgd", ("must be one of exact, linearized, backtracking", "'sgd'")),
        ("activation", "swish", ("must be one of relu", "'swish'")),
        ("loss", "hinge", ("must be one of cross_entropy, squared, huber", "'hinge'")),
        ("dtype", "float16", ("must be one of float32, float64", "'float16'")),
        ("scaling", "log", ("must be one of standard, global, minmax, none", "'log'")),
        ("device", "cudda", ("torch", "'cudda'")),
        ("device", "meta", ("torch", "'meta'")),
        ("device", "", ("torch", "''")),
        *(
            (name, value, fragments)
            for name in ("rho", "nu")
            for value, fragments in (
                ("0", ("must be above 0", "0.0")),
                ("-1", ("must be above 0", "-1.0")),
                ("nan", ("must be a finite number", "nan")),
                ("inf", ("must be a finite number", "inf")),
                ("much", ("must be a number", "'much'")),
                ("", ("must be a number", "''")),
            )
        ),
        ("hidden", "", ("9x500", "''")),
        ("hidden", "8,0", ("at least 1", "8,0")),
        ("hidden", "-8", ("at least 1", "-8")),
        ("hidden", "0x8", ("each width at least once", "'0x8'")),
        ("hidden", "8,,8", ("9x500", "'8,,8'")),
        ("hidden", "wide", ("9x500", "'wide'")),
        ("hidden", "2x8.5", ("9x500", "'2x8.5'")),
        ("hidden", "9999999999x8", ("at most 10000 layers", "'9999999999x8'")),
        ("hidden", "9" * 30, ("at most 1000000000000", "9" * 30)),
        ("epochs", "0", ("at least 1", "got 0")),
        ("epochs", "9" * 20, ("at most 1000000000000", "9" * 20)),
        ("shards", "9" * 20, ("at most 10000", "9" * 20)),
        ("epochs", "1e3", ("a whole number", "'1e3'")),
        ("threads", "0", ("at least 1", "got 0")),
        ("threads", "100000", ("at most 1024", "got 100000")),
        ("test_fraction", "1", ("below 1", "1.0")),
        ("test_fraction", "nan", ("must be a finite number", "nan")),
        ("test_fraction", "0.999", ("0.999", "--test-fraction 0")),
        ("seed", "-1", ("must be at least 0", "-1")),
        ("split_seed", "9" * 20, ("at most 4294967295", "9" * 20)),
        ("damping", "-1", ("must be at least 0", "-1.0")),
        ("ridge_final", "1e9", ("ridge", "1000000000.0")),
        ("grow", "often", ("off, auto, a rule such as 1+1@2", "'often'")),
        ("grow", "0+1@2", ("at least 1", "'0+1@2'")),
        ("grow", "1+1@0", ("at least 1", "'1+1@0'")),
        ("grow", "1+1@3", ("at epoch 3", "only 3 epochs")),
        ("grow", "0:1,3:2", ("at epoch 3", "only 3 epochs")),
        ("grow", "0:1", ("all 2 hidden layers", "'0:1'")),
        ("grow", "1:2", ("begin at epoch 0", "'1:2'")),
        ("grow", "0:0,1:2", ("at least one layer", "'0:0,1:2'")),
        ("grow", "0:2,1:1", ("rising epochs and depths", "'0:2,1:1'")),
        ("grow", "0:1,1:2,1:2", ("rising epochs", "'0:1,1:2,1:2'")),
        ("grow", "0:1,", ("off, auto", "'0:1,'")),
        ("messages", "int8", ("messages int8 was removed",)),
    ],
)
def test_values(refused: Refused, option: str, value: str, fragments: tuple[str, ...]) -> None:
    extra = ("--set", "ridge=1") if option == "ridge_final" else ()
    refused((*typed(option, value), *extra), option.split("_")[0], *fragments)


def test_other_devices_need_one_process(refused: Refused) -> None:
    for option in ("--workers", "--shards"):
        refused(("--device", "cuda", option, "2"), "device cuda works in one process", "need device cpu")


def test_cuda_where_there_is_none(refused: Refused) -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("this machine has CUDA")
    refused(("--device", "cuda"), "device", "'cuda'")


@pytest.mark.parametrize(
    ("text", "fragments"),
    [
        ("epochs = \n", ("is not a TOML file", "line 1")),
        ("epocs = 3\n", ("unknown option 'epocs'", "epochs")),
        ("[network]\nhidden = '2x8'\n", ("unknown option 'network'",)),
        ("hiden = '2x8'\n", ("unknown option 'hiden' (did you mean hidden?)",)),
        ('epochs = "3"\n', ("epochs must be a whole number", "'3'")),
        ("epochs = 3.0\n", ("epochs must be a whole number", "3.0")),
        ("epochs = true\n", ("epochs must be a whole number", "True")),
        ("rho = '1'\n", ("rho must be a number", "'1'")),
        ("rho = -1\n", ("rho must be above 0", "-1")),
        ("nu = nan\n", ("nu must be a finite number", "nan")),
        ("data = 3\n", ("data must be a text", "3")),
        ("solver = 'sgd'\n", ("solver must be one of", "'sgd'")),
        ("hidden = []\n", ("hidden must have at least one layer",)),
        ("hidden = [8, 0]\n", ("hidden widths must be at least 1", "8,0")),
        ("hidden = [8, 'x']\n", ("hidden must be a text", "'x'")),
        ("hidden = 'x'\n", ("hidden must look like 9x500", "'x'")),
        ("[method]\nrho = -1\n", ("rho must be above 0", "-1")),
        ("[method]\nrow = 1\n", ("unknown option 'row'",)),
        ("rho = 1\n[method]\nrho = 1\n", ("rho is given twice",)),
        ("\0", ("is not a TOML file",)),
    ],
)
def test_configuration_files(refused: Refused, tmp_path: Path, text: str, fragments: tuple[str, ...]) -> None:
    (tmp_path / "my.toml").write_text(text)
    # Flags would override some of these; a mistake in the file is a mistake all the same.
    refused(("--config", "my.toml"), "my.toml", *fragments)


def test_configuration_files_that_cannot_be_read(refused: Refused, tmp_path: Path) -> None:
    refused(("--config", "gone.toml"), "gone.toml", "No such file")
    refused(("--config", "."), "configuration .", "Is a directory")
    (tmp_path / "my.toml").write_bytes(b"data = '\xff'\n")
    refused(("--config", "my.toml"), "my.toml is not a TOML file")
    (tmp_path / "my.toml").write_text('data = "a\\u0000.csv"\n')
    refused(("--config", "my.toml"), "null byte")


# --- the run directory


def contents(run: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}


def test_a_directory_that_holds_a_run(train: Command, npz: Path, tmp_path: Path) -> None:
    assert train("--data", npz, "--out", "run").code == 0
    before = contents(tmp_path / "run")
    assert_refused(train("--data", npz, "--out", "run"), "run already holds a run", "--overwrite")
    assert contents(tmp_path / "run") == before


def test_a_directory_that_another_run_uses(train: Command, npz: Path, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    with (tmp_path / "run/.lock").open("w") as lock:
        # A lock belongs to the open file, so this is as good as another process.
        fcntl.flock(lock, fcntl.LOCK_EX)
        for extra in ((), ("--overwrite",)):
            assert_refused(train("--data", npz, "--out", "run", *extra), "run is in use by another run")
    assert [path.name for path in (tmp_path / "run").iterdir()] == [".lock"]
    assert train("--data", npz, "--out", "run").code == 0
    assert not (tmp_path / "run/.lock").exists()


def test_places_where_no_directory_can_be(train: Command, npz: Path, tmp_path: Path) -> None:
    for out, fragment in (
        (npz, "must name a directory"),
        (npz / "sub", "Not a directory"),
        (Path("/proc/nowhere/run"), "No such file"),
        (tmp_path / ("n" * 300), "File name too long"),
    ):
        assert_refused(train("--data", npz, "--out", out), "--out", str(out), fragment)
    assert_refused(train("--data", npz, "--out", ""), "--out", "must name a directory; got ''")
    assert list(tmp_path.iterdir()) == [npz]


# --- a model to start from


@pytest.mark.parametrize(
    ("arguments", "fragments"),
    [
        (("--hidden", "1x8"), ("hidden 8 cannot be reached from 2x8",)),
        (("--hidden", "8,9,8"), ("hidden 8,9,8 cannot be reached from 2x8", "keep 2x8")),
        (("--activation", "tanh"), ("activation", "relu", "tanh")),
        (("--loss", "squared"), ("loss squared",)),
        (("--data", "digits"), ("3 features", "64")),
    ],
)
def test_models_that_do_not_fit(
    refused: Refused, npz: Path, trained: Path, arguments: tuple[str, ...], fragments: tuple[str, ...]
) -> None:
    refused(("--data", npz, "--init-from", trained, *arguments), *fragments)


def test_models_that_are_none(refused: Refused, npz: Path, tmp_path: Path) -> None:
    refused(("--data", npz, "--init-from", "nowhere"), "no model at nowhere")
    refused(("--data", npz, "--init-from", npz), f"{npz} is not a safetensors file")
