"""Every mistake in a user's arrays is named, with the rule and the value."""

from __future__ import annotations

import re
import tracemalloc

import numpy as np
import pytest

from pdadmm.data import Dataset, Part, as_labels, balanced_weights, check_dataset
from pdadmm.data.arrays import CHUNK_ELEMENTS, Array, as_float, row_chunks
from pdadmm.data.checks import check_features, check_part
from pdadmm.errors import UserError


def good(**changes: Array) -> Part:
    rng = np.random.default_rng(0)
    arrays = {"X": rng.normal(size=(6, 3)), "y": np.array([0, 1, 2, 0, 1, 2])}
    return Part(**{**arrays, **changes})


def with_entry(value: float, *places: tuple[int, int]) -> Array:
    X = np.zeros((6, 3))
    for place in places:
        X[place] = value
    return X


@pytest.mark.parametrize(
    ("part", "message"),
    [
        (
            good(X=with_entry(np.nan, (4, 2), (5, 0))),
            "X of data must be finite; got 2 NaN or infinite, the first (nan) at row 4, column 2",
        ),
        (
            good(X=with_entry(-np.inf, (0, 1))),
            "X of data must be finite; got 1 NaN or infinite, the first (-inf) at row 0, column 1",
        ),
        (good(X=np.zeros(6)), "X of data must be 2-D, samples by features; got shape (6,)"),
        (good(X=np.zeros((0, 3))), "X of data must have at least one sample; got shape (0, 3)"),
        (good(X=np.zeros((6, 0))), "X of data must have at least one feature; got shape (6, 0)"),
        (good(y=np.array([0, 1])), "y of data must have one entry per sample of X; got 2 for 6 samples"),
        (good(y=np.array(1)), "y of data must be an array, one entry per sample; got a single value"),
        (good(weight=np.ones(5)), "weight of data must have one entry per sample of X; got 5 for 6 samples"),
        (good(X=np.zeros((6, 3), dtype=complex)), "X of data must be real numbers; got type complex128"),
        (good(X=np.zeros((6, 3), dtype=object)), "X of data must be real numbers; got type object"),
        (good(X=np.full((6, 3), "a")), "X of data must be real numbers; got type <U1"),
        (good(weight=np.array([1, 1, -2.0, 1, 1, 1])), "weight of data must not be negative; got -2.0 at row 2"),
        (good(weight=np.full(6, 1e300)), "the largest weight of data must be from 1e-30 to 1e+30; got 1e+300"),
        (good(weight=np.full(6, 1e-310)), "the largest weight of data must be from 1e-30 to 1e+30; got 1e-310"),
        (good(weight=np.zeros(6)), "weight of data must not be all zero; got 6 zeros"),
        (good(weight=np.full(6, "a")), "weight of data must be real numbers; got type <U1"),
        (good(weight=np.ones((6, 1))), "weight of data must be 1-D, one number per sample; got shape (6, 1)"),
        (
            good(weight=np.array([1, 1, 1, np.nan, 1, 1])),
            "weight of data must be finite; got 1 NaN or infinite, the first (nan) at row 3",
        ),
        (good(y=np.ones(6)), "y of data must have at least two classes; got only 1"),
        (good(y=np.full(6, "cat")), "y of data must have at least two classes; got only 'cat'"),
        (
            good(y=np.array([0, 1, 0.5, 0, 1, 2])),
            "y of data must be classes (whole numbers, texts or booleans); got 0.5 at row 2. "
            "For real-valued targets use --loss squared",
        ),
        (
            good(y=np.array([0, np.nan, 0.5, 0, np.inf, 2])),
            "y of data must be finite; got 2 NaN or infinite, the first (nan) at row 1",
        ),
        (
            good(y=np.eye(6)),
            "y of data must be 1-D, one class per sample; got shape (6, 6); for one-hot labels give y.argmax(axis=1)",
        ),
        (good(y=np.zeros(6, dtype=complex)), "whole numbers, texts or booleans; got type complex128"),
        (
            good(y=np.array([1, None, 1, 1, 1, 1], dtype=object)),
            "whole numbers, texts or booleans; got NoneType None at row 1",
        ),
        (good(y=np.array([1, "a", 1, 1, 1, 1], dtype=object)), "labels of one type; got int and str"),
    ],
)
def test_mistakes_in_classification(part: Part, message: str) -> None:
    with pytest.raises(UserError, match=re.escape(message)):
        check_part(part, "data", regression=False)


@pytest.mark.parametrize(
    ("part", "message"),
    [
        (
            good(y=np.full(6, "a")),
            "y of data must be real numbers in regression; got type <U1. For classes use --loss cross_entropy",
        ),
        (good(y=np.full(6, None)), "y of data must be real numbers in regression; got type object"),
        (good(y=np.zeros((6, 2, 2))), "y of data must be 1-D, or 2-D with a column per output; got shape (6, 2, 2)"),
        (good(y=np.zeros((6, 0))), "y of data must be 1-D, or 2-D with a column per output; got shape (6, 0)"),
        (
            good(y=with_entry(np.nan, (3, 1))),
            "y of data must be finite; got 1 NaN or infinite, the first (nan) at row 3, column 1",
        ),
    ],
)
def test_mistakes_in_regression(part: Part, message: str) -> None:
    with pytest.raises(UserError, match=re.escape(message)):
        check_part(part, "data", regression=True)


@pytest.mark.parametrize(
    "y",
    [
        np.array([0.0, 1, 2, 0, 1, 2], dtype=np.float32),
        np.array([True, False] * 3),
        np.array(["a", "b"] * 3),
        np.array(["a", "b"] * 3, dtype=object),
        np.array([3, 200] * 3, dtype=np.uint8),
        np.array([[0], [1]] * 3),
    ],
)
def test_labels_of_every_kind_pass(y: Array) -> None:
    check_part(good(y=y, weight=np.arange(6)), "data", regression=False)


def test_real_targets_pass() -> None:
    check_part(good(y=np.linspace(0, 1, 6)), "data", regression=True)
    check_part(good(y=np.ones((6, 2))), "data", regression=True)


def test_finite_check_names_the_feature_and_needs_little_memory() -> None:
    X = np.zeros((40 * CHUNK_ELEMENTS // 64, 64), dtype=np.float32)
    row = len(X) - 1
    X[row, 7] = np.nan
    tracemalloc.start()
    with pytest.raises(UserError, match=re.escape(f"(nan) at row {row}, column 7 ('x7')")):
        check_features(X, "data", tuple(f"x{i}" for i in range(64)))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < X.nbytes / 8


def test_test_part_must_have_the_training_features() -> None:
    dataset = Dataset("mine", good(), good(X=np.zeros((6, 4))), ("a", "b", "c"))
    with pytest.raises(UserError, match=re.escape("X of mine (test part) must have the training part's 3 features")):
        check_dataset(dataset, regression=False)


def test_test_part_must_not_have_unknown_classes() -> None:
    dataset = Dataset("mine", good(), good(y=np.array([0, 7, 1, 9, 9, 9])), ("a", "b", "c"))
    with pytest.raises(UserError, match=re.escape("classes of the training part; got unknown 7, 9")):
        check_dataset(dataset, regression=False)
    texts = Dataset("mine", good(), good(y=np.array(["0", "1", "2"] * 2)), ("a", "b", "c"))
    with pytest.raises(UserError, match="got unknown '0', '1', '2'"):
        check_dataset(texts, regression=False)


def test_test_part_must_have_as_many_outputs() -> None:
    dataset = Dataset("mine", good(y=np.zeros((6, 2))), good(y=np.zeros((6, 3))), ("a", "b", "c"))
    with pytest.raises(UserError, match=re.escape("got shapes (6, 3) and (6, 2)")):
        check_dataset(dataset, regression=True)


def test_test_part_may_have_one_class() -> None:
    check_dataset(Dataset("mine", good(), good(y=np.ones(6)), ("a", "b", "c")), regression=False)
    check_dataset(Dataset("mine", good(), None, ("a", "b", "c")), regression=False)


@pytest.mark.parametrize(
    ("y", "kind"),
    [
        (np.array([1.0, 2.0]), "int64"),
        (np.array([1, 2], dtype=np.uint8), "int64"),
        (np.array([1, 2.0], dtype=object), "int64"),
        (np.array([True, False]), "bool"),
        (np.array(["a", "bc"], dtype=object), "<U2"),
    ],
)
def test_labels_become_one_of_three_types(y: Array, kind: str) -> None:
    labels = as_labels(y, "data")
    assert labels.dtype == np.dtype(kind)
    assert labels.tolist() == y.tolist()


def test_labels_must_fit_64_bits() -> None:
    for y in (np.array([1, 2**64 - 1], dtype=np.uint64), np.array([1, 2**80], dtype=object)):
        with pytest.raises(UserError, match="must fit in 64-bit integers"):
            as_labels(y, "data")


def test_balanced_weights_give_every_class_the_same_total() -> None:
    indices = np.array([0, 0, 0, 1, 2, 2])
    weights = balanced_weights(indices, 3)
    np.testing.assert_allclose(np.bincount(indices, weights), 2.0)
    np.testing.assert_allclose(weights[0], 6 / (3 * 3))


@pytest.mark.parametrize(
    ("X", "dtype"),
    [
        (np.zeros((2, 2), dtype=np.float16), np.float32),
        (np.zeros((2, 2), dtype=np.float32), np.float32),
        (np.zeros((2, 2), dtype=">f4"), np.float32),
        (np.zeros((2, 2), dtype=np.float64), np.float64),
        (np.zeros((2, 2), dtype=np.uint8), np.float32),
        (np.array([[2**24, -(2**24)]]), np.float32),
        (np.array([[2**24 + 1, 0]]), np.float64),
        (np.array([[-(2**63), 0]]), np.float64),
        (np.zeros((2, 2), dtype=bool), np.float32),
    ],
)
def test_float_type_keeps_the_values(X: Array, dtype: type) -> None:
    converted = as_float(X)
    assert converted.dtype == dtype
    assert converted.dtype.isnative
    assert np.array_equal(converted, X)
    assert X.dtype != dtype or not X.dtype.isnative or np.shares_memory(X, converted)


def test_row_chunks_cover_every_row_once() -> None:
    X = np.zeros((3 * CHUNK_ELEMENTS // 10 + 1, 10), dtype=np.uint8)
    rows = [index for chunk in row_chunks(X) for index in range(chunk.start, chunk.stop)]
    assert rows == list(range(len(X)))
    assert len(list(row_chunks(X))) == 4


def test_what_was_checked_is_not_walked_again() -> None:
    checked = check_dataset(Dataset("mine", good(), None, ("a", "b", "c")), regression=False)
    assert check_dataset(checked, regression=False) is checked
    checked.train.X[0, 0] = np.nan
    assert check_dataset(checked, regression=False) is checked
    with pytest.raises(UserError, match="must be finite"):
        check_dataset(checked, regression=True)
