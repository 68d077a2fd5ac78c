"""The paper's numbers are all there, and what is wrong with them is said wherever they are used."""

from __future__ import annotations

import pytest

from pdadmm.experiments.published import DATA, DEFECTS, METHODS, defects, published

EPOCHS = list(range(0, 100, 5))
SPEEDUP_SETS = [name for name in DATA if name != "svhn"]


@pytest.mark.parametrize("kind", ["train_accuracy", "test_accuracy"])
@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("method", METHODS)
def test_accuracy_curves(kind: str, data: str, method: str) -> None:
    curve = published(kind, data, method)
    assert list(curve) == EPOCHS
    assert all(0 <= value <= 1 for value in curve.values())


@pytest.mark.parametrize("data", DATA)
def test_objective_curves_fall(data: str) -> None:
    values = list(published("objective", data, "pdADMM").values())
    assert len(values) == len(EPOCHS)
    assert values == sorted(values, reverse=True)


@pytest.mark.parametrize("data", SPEEDUP_SETS)
def test_speedups_by_layers(data: str) -> None:
    assert list(published("speedup_layers", data, "speedup")) == list(range(11, 20))


@pytest.mark.parametrize("data", SPEEDUP_SETS)
def test_table_1_divides(data: str) -> None:
    speedup, serial, parallel = (
        published("speedup_neurons", data, series) for series in ("speedup", "serial_seconds", "parallel_seconds")
    )
    last = 2200 if data in ("fashion", "kmnist") else 2400
    assert list(speedup) == list(serial) == list(parallel) == list(range(1500, last + 1, 100))
    assert all(speedup[x] == pytest.approx(serial[x] / parallel[x], abs=0.07) for x in speedup)


def test_known_values() -> None:
    assert published("test_accuracy", "mnist", "pdADMM")[95] == 0.9062
    assert published("train_accuracy", "cifar100", "pdADMM")[95] == 0.885
    assert published("speedup_layers", "mnist", "speedup")[19] == 10.38139
    assert published("speedup_neurons", "mnist", "speedup")[2400] == 12.27
    assert published("speedup_layers", "svhn", "speedup") == {}


def test_defects_are_sentences() -> None:
    assert defects("cifar100", "svhn") == [DEFECTS["cifar100"], DEFECTS["svhn"]]
    assert all(text.endswith(".") for text in DEFECTS.values())
