"""The preprocessing can be undone, stored and trusted with large offsets."""

from __future__ import annotations

import json
import re
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from pdadmm.data import Part, Preprocessor
from pdadmm.data.arrays import CHUNK_ELEMENTS, Array
from pdadmm.data.transforms import SCALINGS, column_statistics
from pdadmm.errors import UserError

labels = st.one_of(
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=2, max_size=8, unique=True),
    st.lists(st.text(st.characters(exclude_characters="\0"), max_size=5), min_size=2, max_size=8, unique=True),
    st.just([False, True]),
)
shapes: st.SearchStrategy[tuple[int, ...]] = st.sampled_from([(9,), (9, 1), (9, 3)])
real = st.floats(-1e6, 1e6).map(lambda value: value if abs(value) > 1e-30 else 0.0)


def part(X: Array | None = None, y: Array | None = None) -> Part:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(50, 4)) * [1, 10, 0, 0.1] + [0, 5, 3, 0] if X is None else X
    return Part(X, np.arange(len(X)) % 3 if y is None else y)


def test_standard_scaling() -> None:
    train = part()
    fitted = Preprocessor.fit(train, "standard", regression=False)
    scaled = fitted.features(train.X, np.float64)
    np.testing.assert_allclose(scaled.mean(axis=0), 0, atol=1e-14)
    np.testing.assert_allclose(scaled.std(axis=0), [1, 1, 0, 1], rtol=1e-13)
    assert fitted.scale[2] == 1
    assert fitted.shift[2] == 3
    assert fitted.num_features == 4


def test_global_scaling_centres_each_feature_and_keeps_their_proportions() -> None:
    X = np.array([[0.0, 10.0], [2.0, 10.5], [4.0, 11.0]])
    fitted = Preprocessor.fit(part(X), "global", regression=False)
    scaled = fitted.features(X, np.dtype(np.float64))
    np.testing.assert_allclose(scaled.mean(axis=0), 0, atol=1e-12)
    assert scaled.std() == pytest.approx(1)
    assert scaled[:, 0].std() / scaled[:, 1].std() == pytest.approx(4)


def test_minmax_scaling() -> None:
    train = part()
    scaled = Preprocessor.fit(train, "minmax", regression=False).features(train.X, np.float32)
    assert scaled.min(axis=0).tolist() == [0, 0, 0, 0]
    assert scaled.max(axis=0).tolist() == [1, 1, 0, 1]


def test_no_scaling_is_exact_and_copies() -> None:
    X = np.asfortranarray(part().X.astype(np.float32))
    scaled = Preprocessor.fit(part(X), "none", regression=False).features(X, np.float32)
    assert np.array_equal(scaled, X)
    assert not np.shares_memory(scaled, X)
    assert scaled.flags.c_contiguous


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("source", [np.uint8, np.int64, np.float32, np.float64, np.bool_])
def test_features_of_any_number_type(source: type[np.generic], dtype: type[np.floating[Any]]) -> None:
    X = (np.arange(60).reshape(20, 3) % 7).astype(source)
    scaled = Preprocessor.fit(part(X), "standard", regression=False).features(X, dtype)
    assert scaled.dtype == dtype
    assert scaled.flags.c_contiguous
    np.testing.assert_allclose(scaled, (X.astype(float) - X.mean(axis=0)) / X.std(axis=0), atol=1e-6)


def test_only_the_result_is_of_the_size_of_the_data() -> None:
    X = np.random.default_rng(0).random((40 * CHUNK_ELEMENTS // 64, 64), dtype=np.float32)
    tracemalloc.start()
    fitted = Preprocessor.fit(part(X), "standard", regression=False)
    _, peak_of_fit = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    scaled = fitted.features(X, np.float32)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_of_fit < X.nbytes / 4
    assert peak < scaled.nbytes + X.nbytes / 4


@pytest.mark.parametrize("offset", [1e3, 1e6, 1e9, -1e12])
def test_statistics_survive_a_large_offset(offset: float) -> None:
    # Multiples of 2^-6 up to 2, which every offset here holds exactly.
    steps = np.random.default_rng(0).integers(0, 128, size=(20000, 20)) / 64
    minimum, maximum, mean, deviation = column_statistics(steps + offset)
    np.testing.assert_allclose(mean - offset, steps.mean(axis=0), atol=abs(offset) * 2e-16)
    np.testing.assert_allclose(deviation, steps.std(axis=0), rtol=1e-9)
    assert np.array_equal(minimum, steps.min(axis=0) + offset)
    assert np.array_equal(maximum, steps.max(axis=0) + offset)


def test_constant_feature_with_rounding() -> None:
    X = np.full((1000, 2), [0.1, 1e9 / 3])
    fitted = Preprocessor.fit(part(X), "standard", regression=False)
    assert fitted.scale.tolist() == [1, 1]
    assert not fitted.features(X, np.float64).any()


@pytest.mark.parametrize("scaling", ["standard", "global", "minmax"])
def test_tiny_features_keep_what_they_tell(scaling: str) -> None:
    X = np.array([[1.0], [2], [3], [5]])
    fitted = [Preprocessor.fit(part(X * size), scaling, regression=False) for size in (1e-310, 1.0)]
    tiny, usual = (one.features(X * size, np.float32)[:, 0] for one, size in zip(fitted, (1e-310, 1.0), strict=True))
    assert np.corrcoef(tiny, usual)[0, 1] > 1 - 1e-6
    assert np.ptp(tiny) >= 1


def test_tiny_features_without_scaling_are_refused() -> None:
    with pytest.raises(UserError, match=r"features must be larger than 1\.2e-38 without a scaling, .* is 1e-310;"):
        Preprocessor.fit(part(np.full((4, 1), 1e-310)), "none", regression=False)


def test_spread_beyond_float64() -> None:
    X = np.array([[1.0, -1e308], [2.0, 1e308], [3.0, 1e308]])
    for scaling in ("standard", "minmax"):
        with pytest.raises(
            UserError, match=re.escape("spread of 'x1' must fit in float64; its values go from -1e+308")
        ):
            Preprocessor.fit(part(X), scaling, regression=False)


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.zeros((3, 5)), "X must be 2-D with the model's 4 features; got 5 features"),
        (np.zeros(4), "X must be 2-D with the model's 4 features; got shape (4,)"),
        (np.full((3, 4), "a"), "X must be real numbers; got type <U1"),
        (
            np.array([[0, 0, np.nan, 0]]),
            "X must be finite, also when scaled to float32; got nan at row 0, column 2 ('c')",
        ),
        (np.array([[0, 0, 0, 0], [1e300, 0, 0, 0]]), "got 1e+300 at row 1, column 0 ('a')"),
    ],
)
def test_features_that_do_not_fit(X: Array, message: str) -> None:
    fitted = Preprocessor.fit(part(), "standard", regression=False, feature_names=tuple("abcd"))
    with pytest.raises(UserError, match=re.escape(message)):
        fitted.features(X, np.float32)


def test_mistakes_in_fit() -> None:
    with pytest.raises(UserError, match="scaling must be one of standard, global, minmax, none; got 'log'"):
        Preprocessor.fit(part(), "log", regression=False)
    with pytest.raises(UserError, match="feature_names must name every feature; got 1 for 4 features"):
        Preprocessor.fit(part(), "none", regression=False, feature_names=("a",))


@pytest.mark.parametrize(
    ("known", "y", "message"),
    [
        ([1, 2, 4], [1, 3, 9], "y must only have classes of the training data (1, 2, 4); got 3, 9"),
        ([1, 2, 4], ["1", "2"], "got '1', '2'"),
        (["a", "b"], [0, 1], "('a', 'b'); got 0, 1"),
        ([1, 2, 4], [1.5], "y of the data must be classes"),
    ],
)
def test_unknown_classes(known: list[Any], y: list[Any], message: str) -> None:
    fitted = Preprocessor.fit(part(np.eye(len(known)), np.array(known)), "none", regression=False)
    with pytest.raises(UserError, match=re.escape(message)):
        fitted.targets(np.array(y))


@settings(deadline=None, max_examples=50)
@given(labels, st.data())
def test_class_round_trip(classes: list[Any], data: st.DataObject) -> None:
    y = np.array(classes + data.draw(st.lists(st.sampled_from(classes), max_size=20)))
    train = part(np.zeros((len(y), 2)), y)
    fitted = Preprocessor.fit(train, data.draw(st.sampled_from(SCALINGS)), regression=False)
    indices = fitted.targets(y)
    assert fitted.num_outputs == len(classes)
    assert indices.dtype == np.int64
    assert fitted.decode(indices).tolist() == y.tolist()
    assert type(fitted.decode(indices).tolist()[0]) is type(classes[0])
    assert_stored_whole(fitted)


@settings(deadline=None, max_examples=50)
@given(arrays.arrays(np.float64, shapes, elements=real))
def test_regression_round_trip(y: Array) -> None:
    fitted = Preprocessor.fit(part(np.zeros((9, 2)), y), "standard", regression=True)
    z = fitted.targets(y)
    assert z.shape == (9, fitted.num_outputs)
    assert z.dtype == np.float64
    assert fitted.restore(z).shape == y.shape
    np.testing.assert_allclose(fitted.restore(z), y, rtol=1e-12, atol=1e-9)
    assert_stored_whole(fitted)


@settings(deadline=None, max_examples=50)
@given(
    arrays.arrays(np.float64, st.tuples(st.integers(2, 9), st.integers(1, 4)), elements=real), st.sampled_from(SCALINGS)
)
def test_scaled_features_can_be_undone(X: Array, scaling: str) -> None:
    assume(scaling != "none" or not 0 < np.abs(X).max() < 1e-37)  # which is refused without a scaling
    fitted = Preprocessor.fit(part(X, np.arange(len(X))), scaling, regression=False)
    np.testing.assert_allclose(fitted.features(X, np.float64) * fitted.scale + fitted.shift, X, rtol=1e-12, atol=1e-9)
    assert_stored_whole(fitted)


def stored_and_read(fitted: Preprocessor) -> Preprocessor:
    tensors, metadata = fitted.to_tensors(), fitted.to_metadata()
    assert all(tensor.dtype == np.float64 and tensor.flags.c_contiguous for tensor in tensors.values())
    for text in metadata.values():
        json.loads(text)
    return Preprocessor.from_stored({**tensors, "layer.1.W": np.zeros(3)}, {**metadata, "other": "not JSON"})


def assert_stored_whole(fitted: Preprocessor) -> None:
    read = stored_and_read(fitted)
    for name, value in vars(fitted).items():
        if isinstance(value, np.ndarray):
            assert getattr(read, name).dtype.kind == value.dtype.kind
            assert np.array_equal(getattr(read, name), value)
        else:
            assert getattr(read, name) == value
            assert type(getattr(read, name)) is type(value)


def test_stored_names_and_keys() -> None:
    fitted = Preprocessor.fit(part(), "standard", regression=False, feature_names=("a", "b", "c", "ü"))
    assert set(fitted.to_tensors()) == {"preprocess.shift", "preprocess.scale"}
    assert json.loads(fitted.to_metadata()["preprocess.classes"]) == [0, 1, 2]
    assert stored_and_read(fitted).feature_names == ("a", "b", "c", "ü")
    assert not stored_and_read(fitted).regression


def test_regression_targets_that_do_not_fit() -> None:
    fitted = Preprocessor.fit(part(y=np.zeros((50, 2))), "standard", regression=True)
    with pytest.raises(UserError, match=re.escape("y must have the model's 2 outputs; got shape (50,)")):
        fitted.targets(np.zeros(50))
    with pytest.raises(UserError, match="y must be real numbers in regression; got type <U1"):
        fitted.targets(np.full((50, 2), "a"))


def test_damaged_storage() -> None:
    fitted = Preprocessor.fit(part(), "standard", regression=False)
    tensors, metadata = fitted.to_tensors(), fitted.to_metadata()
    with pytest.raises(UserError, match=r"it lacks 'preprocess\.shift'"):
        Preprocessor.from_stored({}, metadata)
    with pytest.raises(UserError, match="stored preprocessing is damaged"):
        Preprocessor.from_stored(tensors, {**metadata, "preprocess.classes": "[1,"})
    with pytest.raises(UserError, match="must be of equal length; got 3, 4 and 4"):
        Preprocessor.from_stored({**tensors, "preprocess.shift": np.zeros(3)}, metadata)
