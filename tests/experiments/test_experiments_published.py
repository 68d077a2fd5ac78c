"""The paper's numbers are all there, and what is wrong with them is said wherever they are used."""

from __future__ import annotations

from pathlib import Path

import pytest

from pdadmm.experiments.experiment import SCALES, Settings
from pdadmm.experiments.published import DATA, METHODS, PAPER, published
from pdadmm.experiments.reproduce import EXPERIMENTS

EPOCHS = list(range(0, 100, 5))
SPEEDUP_SETS = [name for name in DATA if name != "svhn"]


def test_accuracy_curves() -> None:
    for kind in ("train_accuracy", "test_accuracy"):
        for data in DATA:
            for method in METHODS:
                curve = published(kind, data, method)
                assert list(curve) == EPOCHS
                assert all(0 <= value <= 1 for value in curve.values())


def test_objective_curves_fall() -> None:
    for data in DATA:
        values = list(published("objective", data, "pdADMM").values())
        assert len(values) == len(EPOCHS)
        assert values == sorted(values, reverse=True)


@pytest.mark.parametrize("data", SPEEDUP_SETS)
def test_speedups(data: str) -> None:
    assert list(published("speedup_layers", data, "speedup")) == PAPER["speedup-layers"]["values"]
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


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_note_and_defect_is_a_sentence(name: str, scale: str) -> None:
    experiment = EXPERIMENTS[name](Settings(Path("out"), SCALES[scale], "pdadmm reproduce x"), name)
    notes = experiment.made(["More."], [], []).notes
    assert notes[0] == f"Scale: {scale}. Made by `pdadmm reproduce x`."
    assert "More." in notes
    assert len(notes) > len(experiment.paper["defects"])
    assert all(note.endswith(".") and "{" not in note for note in notes)
