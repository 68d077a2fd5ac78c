"""Files are written here and read back; a broken one is named, never a traceback from below."""

from __future__ import annotations

import gzip
import os
import re
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from pdadmm.data import Dataset, csv_file, stream_samples, tables
from pdadmm.data.arrays import Array, generated_names
from pdadmm.data.sources import read_data
from pdadmm.errors import UserError

PNG = bytes.fromhex("89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c489")


@pytest.fixture
def X() -> Array:
    return np.random.default_rng(0).normal(size=(5, 3))


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def write_parquet(path: Path, **columns: Any) -> Path:
    pl.DataFrame(columns).write_parquet(path, row_group_size=2)
    return path


def read(path: Path, target: str | None = None, weight: str | None = None, mapped: bool = False) -> Dataset:
    return read_data(str(path), target, weight, mapped)


def read_features(path: Path, features: Sequence[str] | int, target: str | None = None) -> Array:
    names = generated_names(features) if isinstance(features, int) else tuple(features)
    return np.concatenate(list(stream_samples(str(path), names, target).blocks))


def refused(message: str) -> Any:
    return pytest.raises(UserError, match=re.escape(message))


# --- .npz


def test_npz_with_one_part(tmp_path: Path, X: Array) -> None:
    y, w = np.array(["a", "b", "a", "b", "a"]), np.arange(5.0)
    np.savez(tmp_path / "d.npz", X=X, y=y, w=w)
    data = read(tmp_path / "d.npz")
    train, test = data.train, data.test
    assert test is None
    assert np.array_equal(train.X, X)
    assert train.y.tolist() == y.tolist()
    assert train.weight is not None
    assert train.weight.tolist() == w.tolist()
    assert data.feature_names == ("x0", "x1", "x2")


def test_npz_with_two_parts_and_images(tmp_path: Path) -> None:
    images = np.arange(2 * 4 * 4, dtype=np.uint8).reshape(2, 4, 4)
    y = np.array([0, 1])
    np.savez_compressed(tmp_path / "d.npz", X_train=images, y_train=y, X_test=images[:1], y_test=y[:1])
    data = read(tmp_path / "d.npz")
    train, test = data.train, data.test
    assert test is not None
    assert train.X.shape == (2, 16)
    assert train.X.dtype == np.float32
    assert test.X.tolist() == [list(range(16))]
    assert train.weight is None


def test_npz_without_samples_is_left_to_the_checks(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", X=np.zeros((0, 4, 4)), y=np.zeros(0))
    assert read(tmp_path / "d.npz").train.X.shape == (0, 16)


@pytest.mark.parametrize(
    ("keys", "lacking"),
    [
        (("X", "labels"), "it lacks 'y', keys: 'X', 'labels'"),
        (("data",), "it lacks 'X', keys: 'data'"),
        (("X_train",), "it lacks 'y_train', keys: 'X_train'"),
        (("X_train", "y_train", "X_test"), "it lacks 'y_test', keys: 'X_test', 'X_train', 'y_train'"),
    ],
)
def test_npz_missing_key_lists_the_keys(tmp_path: Path, keys: tuple[str, ...], lacking: str) -> None:
    arrays: dict[str, Any] = dict.fromkeys(keys, np.zeros((2, 2)))
    np.savez(tmp_path / "d.npz", **arrays)
    with refused(lacking):
        read(tmp_path / "d.npz")


def test_npz_refuses_pickles(tmp_path: Path, X: Array) -> None:
    np.savez(tmp_path / "d.npz", X=X, y=np.array(["a", 1, None, "b", "c"], dtype=object))
    with refused("y must be an array of numbers or texts; got Python objects (save y.astype(str)"):
        read(tmp_path / "d.npz")


def test_npz_has_no_columns(tmp_path: Path, X: Array) -> None:
    np.savez(tmp_path / "d.npz", X=X, y=np.arange(5))
    for options in ({"target": "label"}, {"weight": "label"}):
        with refused(f"{next(iter(options))} must not be set for a .npz file"):
            read(tmp_path / "d.npz", options.get("target"), options.get("weight"))


def test_npz_features(tmp_path: Path, X: Array) -> None:
    np.savez(tmp_path / "x.npz", X=X)
    np.savez(tmp_path / "both.npz", X_train=X, X_test=X[:2])
    np.savez(tmp_path / "none.npz", Z=X)
    assert np.array_equal(read_features(tmp_path / "x.npz", 3, target="ignored"), X)
    assert np.array_equal(read_features(tmp_path / "both.npz", ("a", "b", "c")), X[:2])
    with refused("it lacks 'X', keys: 'Z'"):
        read_features(tmp_path / "none.npz", 3)
    with refused("must have the 4 features of the model; got 3"):
        read_features(tmp_path / "x.npz", 4)


# --- .csv


def test_csv_with_header_and_text_labels(tmp_path: Path) -> None:
    path = write(tmp_path / "d.csv", '\ufeffage,"a, b",kind\n1,2.5,cat\n\n-3e2, 4 ,"dog"\r\n5,6,cat\n')
    table = read(path)
    assert table.train.X.tolist() == [[1, 2.5], [-300, 4], [5, 6]]
    assert table.train.X.dtype == np.float64
    assert table.train.y.tolist() == ["cat", "dog", "cat"]
    assert table.feature_names == ("age", "a, b")


def test_csv_with_target_and_weight_by_name(tmp_path: Path) -> None:
    path = write(tmp_path / "d.csv", "a,y,w,b\n1,0.5,2,3\n4,1,1,6\n")
    table = read(path, target="y", weight="w")
    assert table.train.X.tolist() == [[1, 3], [4, 6]]
    assert table.train.y.tolist() == [0.5, 1.0]
    assert table.train.weight is not None
    assert table.train.weight.tolist() == [2, 1]
    assert table.feature_names == ("a", "b")


def test_csv_without_header(tmp_path: Path) -> None:
    path = write(tmp_path / "d.csv", "7,1,2\n8,3,4\n")
    last = read(path)
    assert last.train.y.tolist() == [2, 4]
    assert last.train.y.dtype == np.int64
    first = read(path, target="0")
    assert first.train.y.tolist() == [7, 8]
    assert first.train.X.tolist() == [[1, 2], [3, 4]]
    assert first.feature_names == ("x0", "x1")


@pytest.mark.parametrize(
    ("text", "target", "samples"),
    [
        ("5.1,3.5,setosa\n4.9,3.0,setosa\n", None, 2),
        ("cat,7,7\ndog,8,8\n", "0", 2),
        ("1,2,cat\n3,4,dog\n", None, 2),
        ("0,1,2,label\n5,6,7,cat\n", None, 1),
        ("label,1,2,3\ncat,5,6,7\n", "label", 1),
        ("7,8,label\n5,6,1\n", None, 1),
        (",a\n5,1\n", None, 1),
        ("a,b\n5,cat\n", None, 1),
    ],
)
def test_csv_header_or_first_sample(tmp_path: Path, text: str, target: str | None, samples: int) -> None:
    assert len(read(write(tmp_path / "d.csv", text), target=target).train.X) == samples


def test_csv_default_target_is_the_last_but_the_weight(tmp_path: Path) -> None:
    table = read(write(tmp_path / "d.csv", "a,y,w\n1,2,3\n4,5,6\n"), weight="w")
    assert table.train.y.tolist() == [2, 5]


NUMBERS = [
    *("1", "+1", "-1", "-0", "007", "1.", ".5", "-.5", "0.1", "0.30000000000000004", "1E5", "1e+5", "-3e2", "1e-310"),
    *("4.9e-324", "1e-400", "2.2250738585072011e-308", "1.7976931348623157e308", "9007199254740993", "1" * 30),
]
SPELLINGS = [*NUMBERS, *(f'"{text}"' for text in NUMBERS), " 1", "1 ", "\t1", " +1 ", '" 1 "', "１"]


@pytest.mark.parametrize("fields", [*([text] for text in SPELLINGS), NUMBERS, SPELLINGS], ids=str)
def test_csv_numbers_are_read_as_python_reads_them(tmp_path: Path, fields: list[str]) -> None:
    lines = [f"{field},{index},{field}" for index, field in enumerate(fields)]
    table = read(write(tmp_path / "d.csv", "\n".join(["a,y,b", *lines])), target="y")
    expected = np.array([[float(field.strip('"'))] * 2 for field in fields])
    assert table.train.X.tobytes() == expected.tobytes()


def test_csv_random_numbers_keep_their_bits(tmp_path: Path) -> None:
    X = np.random.default_rng(0).integers(0, 2**63, (3000, 4), dtype=np.uint64).view(np.float64)
    X = np.where(np.isfinite(X), X, 1.0)
    lines = [
        ",".join(f"{value:.{digits}{kind}}" for value, digits, kind in zip(row, (16, 17, 9, 25), "eege", strict=True))
        for row in X.tolist()
    ]
    found = read_features(write(tmp_path / "d.csv", "\n".join(lines)), 4)
    assert found.tobytes() == np.array([[float(field) for field in line.split(",")] for line in lines]).tobytes()


@pytest.mark.parametrize("columns", [2, 5000])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"], ids=repr)
def test_csv_of_many_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: int, end: str) -> None:
    """Quoted line breaks and blank lines at any place; labels that come late; tables as wide as you like."""
    monkeypatch.setattr(csv_file, "_PIECE", 1000)
    rows = max(60, 12_000 // columns)
    X = np.arange(1.0 * rows * columns).reshape(rows, columns)
    broken = '"two\nlines"' if "\n" in end else "one line"
    labels = ["plain", broken, '"a ""b"" c"', "late"] * (rows // 4)
    lines = [
        f"{label},{','.join(map(str, row))}{end * (index % 3 + 1)}"
        for index, (label, row) in enumerate(zip(labels, X.tolist(), strict=True))
    ]
    path = tmp_path / "d.csv"
    names = ",".join(["y", *(f"c{index}" for index in range(columns))])
    path.write_bytes((names + end + "".join(lines)).encode())
    table = read(path, target="y")
    assert np.array_equal(table.train.X, X)
    assert table.train.y.tolist() == [label.strip('"').replace('""', '"') for label in labels]


def test_csv_long_numbers_stay_apart_as_texts(tmp_path: Path) -> None:
    table = read(write(tmp_path / "d.csv", f"a,y\n1,{10**30}\n2,{10**30 + 1}\n"))
    assert table.train.y.tolist() == [str(10**30), str(10**30 + 1)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b,y\n1,2,0\n1,2\n", "d.csv, line 3: every line must have the first line's 3 fields; got 2"),
        ("a,b,y\n1,2,0\n\n1,2,3,4\n", "d.csv, line 4: every line must have the first line's 3 fields; got 4"),
        ("a,y\n0,1,2\n1,3,4\n", "d.csv, line 2: every line must have the first line's 2 fields; got 3"),
        ("a,b,y\n1,,0\n", "d.csv, line 2, column 'b': must not be empty; got ''"),
        ("a,b,y\n1,2,0\n1,2, \n", "d.csv, line 3, column 'y': must not be empty; got ' '"),
        ("1,,0\n1,2,0\n", "d.csv, line 1, column 1 (counted from 0): must not be empty; got ''"),
        ("a,b,y\n1,2,0\nred,2,1\n", "d.csv, line 3, column 'a': must be a number; got 'red'"),
        ("a,b,y\n1,2,0\n1e400,1,1\n", "d.csv, line 3, column 'a': must be finite; got 1e400"),
        ("a,b,y\n1,2,0\n1,1_0,1\n", "d.csv, line 3, column 'b': must be a number; got '1_0'"),
        ("1,2,0\n1,x,1\n", "d.csv, line 2, column 1 (counted from 0): must be a number; got 'x'"),
        ("a,b,y\n1,2,0\n\n1,nan,1\n", "d.csv, line 4, column 'b': must be finite; got nan; leave such lines out"),
        ("1,2,0\n-inf,2,1\n", "d.csv, line 2, column 0 (counted from 0): must be finite; got -inf"),
        ("a,a,y\n1,2,0\n", "column names must be unique; got 'a' twice"),
        ("a,b,y\n", "must have at least one line of data after its header; got none"),
        ("a;b;y\n1;2;3\n", "in columns separated by commas; its number of columns is 1"),
        ("", "d.csv is not a CSV file: it is empty"),
        ("\n \n", "d.csv is not a CSV file: it is empty"),
    ],
)
def test_csv_mistakes_are_placed(tmp_path: Path, text: str, message: str) -> None:
    with refused(message):
        read(write(tmp_path / "d.csv", text))


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("a,b\n1,2\n", {"target": "z"}, "target must be a column of"),
        ("a,b\n1,2\n", {"target": "z"}, "got 'z', columns: 'a', 'b'"),
        ("a,b\n1,2\n", {"target": "0"}, "got '0', columns: 'a', 'b'"),
        ("a,b,c\n1,2,3\n", {"target": "a", "weight": "a"}, "target and weight must be different columns; both are 'a'"),
        ("1,2\n", {"target": "2"}, "target must be a column number from 0 to 1, because"),
        ("1,2\n", {"target": "a"}, "has no header line; got 'a'"),
        ("1,2,3\n", {"weight": "-1"}, "weight must be a column number from 0 to 2"),
        ("a,w,y\n1,heavy,2\n", {"weight": "w"}, "line 2, column 'w': must be a number; got 'heavy'"),
    ],
)
def test_csv_wrong_columns(tmp_path: Path, text: str, options: dict[str, str], message: str) -> None:
    with refused(message):
        read(write(tmp_path / "d.csv", text), options.get("target"), options.get("weight"))


def test_csv_features_by_name(tmp_path: Path) -> None:
    path = write(tmp_path / "d.csv", "id,b,y,a\nfirst,2,cat,1\nsecond,4,dog,3\n")
    assert read_features(path, ("a", "b"), target="y").tolist() == [[1, 2], [3, 4]]
    with refused("must have the 3 features of the model; it lacks 'c'"):
        read_features(path, ("a", "b", "c"))


@pytest.mark.parametrize(
    ("text", "features", "target"),
    [
        ("1,2\n3,4\n", 2, None),
        ("1,2\n3,4\n", ("a", "b"), "y"),
        ("1,2,9\n3,4,9\n", 2, None),
        ("9,1,2\n9,3,4\n", 2, "0"),
        ("a,b\n1,2\n3,4\n", ("x0", "x1"), "y"),
        ("a,b,c\n1,2,cat\n3,4,dog\n", 2, None),
    ],
)
def test_csv_features_by_position(
    tmp_path: Path, text: str, features: tuple[str, ...] | int, target: str | None
) -> None:
    assert read_features(write(tmp_path / "d.csv", text), features, target=target).tolist() == [[1, 2], [3, 4]]


def test_csv_features_by_position_need_the_number(tmp_path: Path) -> None:
    for text in ("1,2,3,4,5\n", "1,2\n", "a,b,c,d,e\n1,2,3,4,5\n"):
        with refused("must have the 3 features of the model; got"):
            read_features(write(tmp_path / "d.csv", text), 3)


# --- .parquet


def test_parquet_of_several_types_and_batches(tmp_path: Path, X: Array) -> None:
    labels = ["a", "b", "a", "bb", "a"]
    path = write_parquet(tmp_path / "d.parquet", f=X[:, 0], i=np.arange(5), b=[True, False] * 2 + [True], y=labels)
    table = read(path)
    assert table.train.X.dtype == np.float64
    assert np.array_equal(table.train.X, np.column_stack([X[:, 0], np.arange(5), [1, 0, 1, 0, 1]]))
    assert table.train.y.tolist() == labels
    assert table.feature_names == ("f", "i", "b")


def test_parquet_weight_target_and_float32(tmp_path: Path) -> None:
    columns = {"y": [1, 2], "a": np.array([1, 2], dtype=np.float32), "w": [1, 3], "b": np.array([3, 4], dtype=np.int8)}
    table = read(write_parquet(tmp_path / "d.parquet", **columns), target="y", weight="w")
    assert table.train.X.dtype == np.float32
    assert table.train.X.tolist() == [[1, 3], [2, 4]]
    assert table.train.weight is not None
    assert table.train.weight.tolist() == [1, 3]


def test_parquet_decimals_and_categories(tmp_path: Path) -> None:
    price, y = pl.Series([1, 2], dtype=pl.Decimal(9, 2)), pl.Series(["u", "v"], dtype=pl.Categorical)
    path = write_parquet(tmp_path / "d.parquet", price=price, y=y)
    table = read(path)
    assert table.train.X.tolist() == [[1], [2]]
    assert table.train.y.tolist() == ["u", "v"]


def test_parquet_leaves_out_the_index_of_pandas(tmp_path: Path) -> None:
    table = read(write_parquet(tmp_path / "d.parquet", a=[1.0], y=[2], __index_level_0__=[7]))
    assert table.feature_names == ("a",)
    assert table.train.y.tolist() == [2]


def test_parquet_features_by_name(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "d.parquet", id=["p", "q"], b=[2.0, 4.0], a=[1.0, 3.0], y=["u", None])
    assert read_features(path, ("a", "b"), target="y").tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"a": ["x", "z"], "y": [0, 1]}, "column 'a': must be numbers; got type String"),
        ({"a": [[1], [2]], "y": [0, 1]}, "column 'a': must be numbers; got type List(Int64)"),
        ({"a": [1, 2, 3, None], "y": [0, 1, 0, 1]}, "column 'a': must not be empty; got null at row 3"),
        ({"a": [1.0, 2.0], "y": ["u", None]}, "column 'y': must not be empty; got null at row 1"),
        (
            {"a": [1.0, 2.0], "y": [[1], [2]]},
            "column 'y': a target must be numbers, texts or booleans; got type List(Int64)",
        ),
    ],
)
def test_parquet_mistakes_name_the_column(tmp_path: Path, columns: dict[str, Any], message: str) -> None:
    with refused(message):
        read(write_parquet(tmp_path / "d.parquet", **columns))


# --- files that are not what their name says


CONTENTS = [b"", PNG, b"PK\x03\x04 cut short", gzip.compress(b"1,2\n", mtime=0), b"a,b\n1,2\n"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (name, content)
        for name in ("d.npz", "d.parquet", "d.csv")
        for content in CONTENTS[: -1 if name == "d.csv" else None]
    ],
)
def test_content_of_another_kind(tmp_path: Path, name: str, content: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    kind = {"d.npz": ".npz", "d.csv": "CSV", "d.parquet": "Parquet"}[name]
    for attempt in (lambda: read(path), lambda: read_features(path, 1)):
        with pytest.raises(UserError, match=re.escape(f"{path} is not a {kind} file: ")):
            attempt()


@pytest.mark.parametrize("name", ["d.npz", "d.parquet"])
@pytest.mark.parametrize("kept", [0.5, 0.99])
def test_truncated(tmp_path: Path, X: Array, name: str, kept: float) -> None:
    path = tmp_path / name
    if name == "d.npz":
        np.savez(path, X=X, y=np.arange(5))
    else:
        write_parquet(path, a=X[:, 0], y=[0, 1, 0, 1, 0])
    content = path.read_bytes()
    path.write_bytes(content[: int(kept * len(content))])
    with pytest.raises(UserError, match=re.escape(f"{path} is not a ")):
        read(path)


@pytest.mark.parametrize("name", ["d.npz", "d.parquet"])
def test_flipped_bits_never_give_a_traceback(tmp_path: Path, X: Array, name: str) -> None:
    path = tmp_path / name
    if name == "d.npz":
        np.savez_compressed(path, X=X, y=np.arange(5))
    else:
        write_parquet(path, a=X[:, 0], y=[0, 1, 0, 1, 0])
    content = path.read_bytes()
    # Each reading of Parquet starts processes; `test_data_damage` tries more.
    for place in range(0, len(content), 7 if name == "d.npz" else len(content) // 12):
        path.write_bytes(content[:place] + bytes([content[place] ^ 0xFF]) + content[place + 1 :])
        try:
            read(path)
        except UserError as error:
            assert str(path) in str(error)  # noqa: PT017 -- many flips are harmless and raise nothing


def test_array_file_named_npz(tmp_path: Path, X: Array) -> None:
    np.save(tmp_path / "d.npy", X)
    path = (tmp_path / "d.npy").rename(tmp_path / "d.npz")
    with refused("d.npz is not a .npz file: it is not a zip archive"):
        read(path)


def test_latin_1_text_beyond_the_start(tmp_path: Path) -> None:
    path = tmp_path / "d.csv"
    path.write_bytes(b"a,y\n" + b"1,cat\n" * 20000 + "2,käse\n".encode("latin-1"))
    with refused("d.csv is not a CSV file in UTF-8: line 20002 is not; save it as UTF-8"):
        read(path)


def saved(path: Path, header: str, numbers: bytes = b"", method: int = zipfile.ZIP_STORED) -> Path:
    """A .npz whose X has this header, whatever it says."""
    text = header.encode("latin-1") + b" " * (-(10 + len(header) + 1) % 64) + b"\n"
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("X.npy", b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + numbers)
        archive.writestr("y.npy", b"")
    return path


GOOD = "{'descr': '<f8', 'fortran_order': False, 'shape': (%s,), }"


@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize(
    ("header", "message"),
    [
        (
            GOOD % "2, 1000000000000",
            "X says that it has shape (2, 1000000000000), 16000000000000 bytes, but 16 are there",
        ),
        (GOOD % "3, 1", "X says that it has shape (3, 1), 24 bytes, but 16 are there"),
        (GOOD % "-1, -2", "X says that it has shape (-1, -2), 16 bytes, but 16 are there"),
        (GOOD % "1, 2" + "}", "X is not an array, or its header is malformed"),
        ("{'descr': '|O', 'fortran_order'", "X is not an array, or its header is malformed"),
        ("(" * 9000, "X is not an array, or its header is malformed"),
    ],
    ids=range(6),
)
def test_npz_that_lies(tmp_path: Path, header: str, message: str, mapped: bool) -> None:
    path = saved(tmp_path / "d.npz", header, bytes(16))
    with refused(f"d.npz is not a .npz file: {message}"):
        read(path, mapped=mapped)
    with refused(f"d.npz is not a .npz file: {message}"):
        read_features(path, 1)


def test_npz_larger_than_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez_compressed(tmp_path / "d.npz", X=np.zeros((2**16, 2)), y=np.arange(2**16))
    monkeypatch.setattr(tables, "available_memory", lambda: 2**19)
    with refused("d.npz: X needs 1.0 MiB of memory, but only 512.0 KiB are free"):
        read(tmp_path / "d.npz")


def test_npz_with_more_than_arrays(tmp_path: Path, X: Array) -> None:
    path = tmp_path / "d.npz"
    np.savez(path, X=X, y=np.arange(5))
    content = path.read_bytes()
    path.write_bytes(content + b"more")
    with refused("d.npz is not a .npz file: there is something after its end"):
        read(path)
    path.write_bytes(content)
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate name"):
        archive.writestr("y.npy", b"other")
    with refused("d.npz is not a .npz file: it has 'y' twice"):
        read(path)


def test_npz_texts_that_are_none(tmp_path: Path, X: Array) -> None:
    np.savez(tmp_path / "d.npz", X=X, y=np.full(5, 0x110000, np.uint32).view("<U1"))
    with refused("d.npz is not a .npz file: y holds texts that are not Unicode"):
        read(tmp_path / "d.npz")


def test_csv_with_a_null_byte_and_with_many_columns(tmp_path: Path) -> None:
    path = tmp_path / "d.csv"
    path.write_bytes(b"a,y\n" + b"1,cat\n" * 20000 + b"2,c\0t\n")
    with refused("d.csv is not a CSV file: line 20002 holds a null byte"):
        read(path)
    path.write_text(f"{'1,' * 1_000_000}0\n{'2,' * 1_000_000}1\n")
    assert read(path).train.X.shape == (2, 1_000_000)


@pytest.mark.parametrize("name", ["d.npz", "d.csv", "d.parquet"])
def test_a_pipe_is_refused_at_once(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    with refused(f"{name}' is a pipe, a socket or a device"):
        read(tmp_path / name)


def test_paths(tmp_path: Path) -> None:
    (tmp_path / "folder.csv").mkdir()
    with refused("none.csv': No such file or directory"):
        read(tmp_path / "none.csv")
    with refused("folder.csv' is a directory"):
        read_features(tmp_path / "folder.csv", 1)


def test_extension_in_capitals(tmp_path: Path) -> None:
    assert read(write(tmp_path / "D.CSV", "1,2\n3,4\n")).train.X.tolist() == [[1], [3]]
