"""A name or a file becomes a checked, split data set."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from pdadmm.data import Dataset, Part, load_data
from pdadmm.data.sources import SOURCES
from pdadmm.data.split import split_rows
from pdadmm.errors import UserError


@pytest.mark.parametrize(("fraction", "seed"), [(0.2, 0), (0.35, 7)])
def test_digits_are_split_as_sklearn_does(fraction: float, seed: int) -> None:
    X, y = load_digits(return_X_y=True)
    expected = train_test_split(X, y, test_size=fraction, random_state=seed, stratify=y)
    data = load_data("digits", test_fraction=fraction, split_seed=seed)
    assert data.test is not None
    for got, want in zip((data.train.X, data.test.X, data.train.y, data.test.y), expected, strict=True):
        assert np.array_equal(got, want)
        assert got.dtype == want.dtype
    assert data.name == "digits"
    assert len(data.feature_names) == 64
    assert data.feature_names[0] == "pixel_0_0"


@pytest.mark.parametrize("seed", [0, 1, 2**32 - 1])
@pytest.mark.parametrize("count", [2, 3, 10, 57, 1000])
def test_rows_are_split_as_sklearn_does(count: int, seed: int) -> None:
    random = np.random.default_rng(count)
    for fraction in (0.01, 0.2, 1 / 3, 0.5, 0.9, float(random.random())):
        for classes in (1, 2, 7):
            numbers = random.integers(0, classes, count)
            for labels in (None, numbers, np.array(list("gfedcba"))[numbers]):
                expected = got = None
                with contextlib.suppress(ValueError):
                    expected = train_test_split(
                        np.arange(count), test_size=fraction, random_state=seed, stratify=labels
                    )
                with contextlib.suppress(UserError):
                    got = split_rows(count, fraction, seed, labels)
                assert (got is None) == (expected is None)
                if got is not None and expected is not None:
                    assert all(np.array_equal(one, other) for one, other in zip(got, expected, strict=True))


def test_no_test_part() -> None:
    data = load_data("digits", test_fraction=0)
    assert data.test is None
    assert data.train.X.shape == (1797, 64)


def test_regression_is_split_without_strata() -> None:
    X, y = load_digits(return_X_y=True)
    expected = train_test_split(X, y, test_size=0.2, random_state=0)
    data = load_data("digits", regression=True)
    assert np.array_equal(data.train.X, expected[0])
    assert np.array_equal(data.train.y, expected[2])


def save(path: Path, **arrays: Any) -> str:
    np.savez(path, **arrays)
    return str(path)


def test_own_arrays_keep_rows_together(tmp_path: Path) -> None:
    numbers = np.arange(40)
    source = save(tmp_path / "d.npz", X=numbers[:, None], y=(numbers % 2).astype(float), w=numbers + 1.0)
    data = load_data(source, test_fraction=0.25)
    assert data.test is not None
    assert data.name == "d.npz"
    assert sorted([*data.train.X[:, 0], *data.test.X[:, 0]]) == numbers.tolist()
    for part in (data.train, data.test):
        assert part.X.dtype == np.float32
        assert part.y.dtype == np.int64
        assert part.weight is not None
        assert np.array_equal(part.X[:, 0] % 2, part.y)
        assert np.array_equal(part.X[:, 0] + 1, part.weight)
    assert data.test.y.tolist().count(0) == data.test.y.tolist().count(1) == 5


def test_own_test_part_is_kept(tmp_path: Path) -> None:
    X = np.arange(8.0).reshape(4, 2)
    source = save(tmp_path / "d.npz", X_train=X, y_train=[[0.0], [1], [0], [1]], X_test=X[:1], y_test=[[1.0]])
    data = load_data(source, test_fraction=0)
    assert data.test is not None
    assert data.train.y.tolist() == [0, 1, 0, 1]
    assert data.test.y.tolist() == [1]
    real = load_data(source, regression=True)
    assert real.train.y.shape == (4, 1)


def test_csv_with_options(tmp_path: Path) -> None:
    path = tmp_path / "d.csv"
    path.write_text("kind,a,w\n" + "".join(f"{'no' if i % 3 else 'yes'},{i},1\n" for i in range(12)))
    data = load_data(str(path), target="kind", weight="w", test_fraction=0.25)
    assert data.feature_names == ("a",)
    assert set(data.train.y.tolist()) == {"no", "yes"}


def test_sources_can_be_added(monkeypatch: pytest.MonkeyPatch) -> None:
    part = Part(np.eye(4), np.array([0, 1, 0, 1]))
    monkeypatch.setitem(SOURCES, "tiny", lambda: Dataset("tiny", part, part, ("a", "b", "c", "d")))
    assert load_data("tiny").test is part


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"source": "mnits"}, "data must be a known name (digits, mnist, mnist-corrected, mnist-full, fashion"),
        ({"source": "notes.txt"}, "or a file that ends in .npz, .csv, .parquet; got 'notes.txt'"),
        ({"source": "none.npz"}, "cannot read the data file 'none.npz': No such file or directory"),
        ({"source": "digits", "target": "y"}, "target must not be set for digits, only for a file; got 'y'"),
        ({"source": "digits", "weight": "w"}, "weight must not be set for digits, only for a file; got 'w'"),
        ({"source": "digits", "test_fraction": 1.0}, "test_fraction must be at least 0 and below 1; got 1.0"),
        ({"source": "digits", "test_fraction": float("nan")}, "test_fraction must be at least 0 and below 1; got nan"),
        ({"source": "digits", "split_seed": -1}, "split_seed must be from 0 to 4294967295; got -1"),
        (
            {"source": "digits", "test_fraction": 0.001},
            "must leave both parts at least 10 of the 1797 samples, as many as there are classes; got 0.001",
        ),
    ],
)
def test_mistakes(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=re.escape(message)):
        load_data(**options)


def test_checks_run_on_files(tmp_path: Path) -> None:
    X = np.zeros((4, 2))
    X[2, 1] = np.nan
    with pytest.raises(UserError, match=re.escape("X of d.npz must be finite; got 1 NaN or infinite, the first (nan)")):
        load_data(save(tmp_path / "d.npz", X=X, y=np.arange(4)))
    parts = {"X_train": np.zeros((2, 2)), "y_train": [0, 1], "X_test": X, "y_test": [0, 1, 0, 1]}
    with pytest.raises(UserError, match=re.escape("X of d.npz (test part) must be finite")):
        load_data(save(tmp_path / "d.npz", **parts))


def test_lonely_class_needs_no_test_part(tmp_path: Path) -> None:
    source = save(tmp_path / "d.npz", X=np.zeros((5, 1)), y=[0, 0, 1, 1, 2])
    with pytest.raises(
        UserError, match=r"at least 2 samples to hold out a test part; got 1 of 2\. Add samples, or use"
    ):
        load_data(source)
    assert load_data(source, test_fraction=0).test is None


@pytest.mark.parametrize("regression", [False, True])
def test_a_regression_on_classes_is_noted(regression: bool) -> None:
    notes = load_data("digits", regression=regression).notes
    assert notes == (("digits has classes; the regression is on their numbers",) if regression else ())
