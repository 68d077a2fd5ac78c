"""`pdadmm evaluate` and `pdadmm predict`: what a trained model says, and what it refuses."""

from __future__ import annotations

import csv
import io
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

from commands import Command, assert_refused, rows_of, samples, write_csv

CLASSES = np.array(["ant", "bee, large", "cat"])


@pytest.fixture
def named(train: Command, tmp_path: Path) -> Path:
    """A run on a .csv with names for features and classes, which has learned."""
    X, y = samples()
    rows = ([*x, f'"{k}"'] for x, k in zip(X, CLASSES[y], strict=True))
    write_csv(tmp_path / "named.csv", ["a", "b", "c", "kind"], rows)
    assert train("--data", "named.csv", "--epochs", "30", "--out", "named").code == 0
    return tmp_path / "named"


# --- evaluate


def test_evaluate_repeats_the_last_row(pdadmm: Command, trained: Path) -> None:
    last = rows_of(trained)[-1]
    scores = pdadmm("evaluate", trained, "--json").json()
    assert scores == {
        "data": "samples.npz",
        "train_accuracy": last["train_accuracy"],
        "test_accuracy": last["test_accuracy"],
        "train_samples": 32,
        "test_samples": 8,
    }
    lines = pdadmm("evaluate", trained).out.splitlines()
    assert lines[0] == f"train_accuracy {last['train_accuracy']:.4f}  (32 samples of samples.npz)"
    assert len(lines) == 2


def test_evaluate_on_other_data_takes_all_of_it(pdadmm: Command, trained: Path, npz: Path, tmp_path: Path) -> None:
    scores = pdadmm("evaluate", trained, "--data", npz, "--json").json()
    assert (scores["data"], scores["data_samples"]) == ("samples.npz", 40)
    assert scores["data_accuracy"] > 0.9
    X, y = samples()
    np.savez(tmp_path / "two.npz", X_train=X, y_train=y, X_test=X[:5], y_test=y[:5])
    scores = pdadmm("evaluate", trained, "--data", "two.npz", "--json").json()
    assert (scores["train_samples"], scores["test_samples"]) == (40, 5)


def test_evaluate_on_samples_of_one_class(pdadmm: Command, trained: Path, tmp_path: Path) -> None:
    X, y = samples()
    np.savez(tmp_path / "one.npz", X=X[y == 1], y=y[y == 1])
    assert pdadmm("evaluate", trained, "--data", "one.npz", "--json").json()["data_accuracy"] > 0.8


def test_evaluate_a_model_file(pdadmm: Command, trained: Path, npz: Path) -> None:
    file = trained / "model.safetensors"
    assert pdadmm("evaluate", file, "--data", npz).code == 0
    assert_refused(pdadmm("evaluate", file), "--data is needed", "config.toml")


def test_evaluate_refuses_classes_it_does_not_know(pdadmm: Command, trained: Path, tmp_path: Path) -> None:
    X, y = samples()
    np.savez(tmp_path / "more.npz", X=X, y=y + 1)
    assert_refused(pdadmm("evaluate", trained, "--data", "more.npz"), "y must only have classes", "3")
    np.savez(tmp_path / "texts.npz", X=X, y=y.astype(str))
    assert_refused(pdadmm("evaluate", trained, "--data", "texts.npz"), "y must only have classes", "'0'")


# --- predict


def test_predict_gives_the_users_own_names(pdadmm: Command, named: Path) -> None:
    result = pdadmm("predict", named, "--data", "named.csv", "--proba")
    assert result.err == ""
    header, *lines = csv.reader(io.StringIO(result.out))
    assert header == ["prediction", *(f"probability_{name}" for name in CLASSES)]
    probabilities = np.array([[float(cell) for cell in line[1:]] for line in lines])
    assert np.allclose(probabilities.sum(1), 1, atol=1e-9)
    assert [line[0] for line in lines] == CLASSES[probabilities.argmax(1)].tolist()
    assert np.mean(CLASSES[samples()[1]] == [line[0] for line in lines]) > 0.9


def test_predict_into_a_directory(pdadmm: Command, trained: Path, npz: Path, tmp_path: Path) -> None:
    printed = pdadmm("predict", trained, "--data", npz)
    result = pdadmm("predict", trained, "--data", npz, "--out", "some/where")
    assert (result.code, result.out) == (0, "some/where/predictions.csv: 40 predictions\n")
    assert (tmp_path / "some/where/predictions.csv").read_text() == printed.out
    said = pdadmm("predict", trained, "--data", npz, "--out", "some/where", "--json", "--proba").json()
    assert said == {"file": "some/where/predictions.json", "predictions": 40}
    stored = json.loads((tmp_path / "some/where/predictions.json").read_text())
    assert [str(label) for label in stored["predictions"]] == printed.out.split()[1:]
    assert np.allclose(np.sum(stored["probabilities"], axis=1), 1)


def test_predict_from_every_format(pdadmm: Command, trained: Path, tmp_path: Path) -> None:
    X, _ = samples(5)
    np.savez(tmp_path / "a.npz", X=X)
    np.savez(tmp_path / "b.npz", X_test=X)
    write_csv(tmp_path / "c.csv", ["a", "b", "c"], X.tolist())
    write_csv(tmp_path / "d.csv", [str(cell) for cell in X[0]], X[1:].tolist())
    write_csv(tmp_path / "e.csv", ["y", "a", "b", "c"], ([0, *x] for x in X.tolist()))
    pl.DataFrame({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2]}).write_parquet(tmp_path / "f.parquet")
    outputs = [
        pdadmm("predict", trained, "--data", name, *extra).out
        for name, extra in (
            ("a.npz", ()),
            ("b.npz", ()),
            ("c.csv", ()),
            ("d.csv", ()),
            ("e.csv", ("--target", "y")),
            ("f.parquet", ()),
        )
    ]
    assert outputs[0].count("\n") == 6
    assert set(outputs) == {outputs[0]}


def test_columns_are_found_by_name(pdadmm: Command, named: Path, tmp_path: Path) -> None:
    X, y = samples()
    rows = ([x[2], f'"{k}"', 9, x[0], x[1]] for x, k in zip(X, CLASSES[y], strict=True))
    write_csv(tmp_path / "moved.csv", ["c", "kind", "other", "a", "b"], rows)
    assert pdadmm("predict", named, "--data", "moved.csv").out == pdadmm("predict", named, "--data", "named.csv").out
    scores = [
        pdadmm("evaluate", named, "--data", file, "--target", "kind", "--json").json()["data_accuracy"]
        for file in ("named.csv", "moved.csv")
    ]
    assert scores[0] == scores[1]


@pytest.mark.parametrize("command", ["predict", "evaluate"])
def test_a_missing_column_is_named(pdadmm: Command, named: Path, tmp_path: Path, command: str) -> None:
    X, y = samples()
    write_csv(tmp_path / "d.csv", ["a", "b", "d", "kind"], ([*x, k] for x, k in zip(X, CLASSES[y], strict=True)))
    (tmp_path / "d.csv").write_text((tmp_path / "d.csv").read_text().replace("bee, large", "ant"))
    assert_refused(pdadmm(command, named, "--data", "d.csv"), "d.csv", "lacks 'c'")


def test_predict_refuses(pdadmm: Command, trained: Path, npz: Path, tmp_path: Path) -> None:
    X, _ = samples(5)
    np.savez(tmp_path / "wide.npz", X=np.hstack([X, X]))
    np.savez(tmp_path / "flat.npz", X=X[0])
    hole = X.copy()
    hole[3, 2] = np.nan
    np.savez(tmp_path / "nan.npz", X=hole)
    write_csv(tmp_path / "narrow.csv", ["a", "b"], X[:, :2].tolist())
    for file, *fragments in (
        ("wide.npz", "3 features", "got 6"),
        ("flat.npz", "2-D", "(3,)"),
        ("nan.npz", "nan at row 3, column 2"),
        ("narrow.csv", "narrow.csv", "3 features", "2 columns"),
        ("missing.csv", "missing.csv", "No such file"),
        ("digits", "digits must have the 3 features of the model", "64"),
        ("digit", "data must be a known name (digits, mnist", "ends in .npz, .csv, .parquet", "'digit'"),
    ):
        assert_refused(pdadmm("predict", trained, "--data", file, "--out", "out"), *fragments)
    assert not (tmp_path / "out").exists()
    assert_refused(pdadmm("predict", trained, "--data", npz, "--out", npz), "--out must name a directory", npz.name)
    assert_refused(pdadmm("predict", trained, "--data", npz, "--out", npz / "sub"), "--out", "Not a directory")


def test_probabilities_need_a_classifier(train: Command, pdadmm: Command, tmp_path: Path) -> None:
    X, _ = samples()
    np.savez(tmp_path / "d.npz", X=X, y=X[:, 0])
    assert train("--data", "d.npz", "--loss", "squared", "--out", "run").code == 0
    assert_refused(pdadmm("predict", "run", "--data", "d.npz", "--proba"), "probabilities need a classifier")


# --- model files that are none


def stored(trained: Path) -> tuple[dict[str, Any], dict[str, str]]:
    with safe_open(trained / "model.safetensors", framework="np") as file:
        tensors, metadata = {name: file.get_tensor(name) for name in file.keys()}, dict(file.metadata())  # noqa: SIM118
    del metadata["sha256"]  # so that what is made of this is refused for what it is
    return tensors, metadata


def test_a_file_that_is_no_model(pdadmm: Command, trained: Path, npz: Path, tmp_path: Path) -> None:
    good = (trained / "model.safetensors").read_bytes()
    for index, content in enumerate((b"", b"hello", good[:100], good[:-5], good + b"x", b"\xff" * 200)):
        (tmp_path / f"{index}.safetensors").write_bytes(content)
        result = pdadmm("predict", f"{index}.safetensors", "--data", npz)
        assert_refused(result, f"{index}.safetensors is not a safetensors file")
    assert_refused(pdadmm("predict", "nowhere", "--data", npz), "no model at nowhere")
    (tmp_path / "empty").mkdir()
    assert_refused(pdadmm("evaluate", "empty"), "no model at empty/model.safetensors")


def test_a_flipped_bit_is_refused_wherever_the_model_is_loaded(pdadmm: Command, trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained, tmp_path / "run")
    file = tmp_path / "run" / "model.safetensors"
    content = file.read_bytes()
    data_begins = 8 + int.from_bytes(content[:8], "little")
    for place in (content.index(b"relu"), data_begins, len(content) - 1):
        damaged = bytearray(content)
        damaged[place] ^= 1
        file.write_bytes(damaged)
        for arguments in (("evaluate", "run"), ("predict", "run", "--data", trained.parent / "samples.npz")):
            outcome = pdadmm(*arguments)
            assert outcome.code == 6
            assert "model.safetensors is damaged" in outcome.err
        assert pdadmm("export", "run").code == 6
        assert pdadmm("inspect", "run").code == 6


def test_a_model_without_a_sum_is_read(pdadmm: Command, trained: Path, npz: Path, tmp_path: Path) -> None:
    tensors, metadata = stored(trained)
    save_file(tensors, tmp_path / "old.safetensors", metadata)
    assert pdadmm("predict", "old.safetensors", "--data", npz).out == pdadmm("predict", trained, "--data", npz).out


def test_a_model_of_another_program(pdadmm: Command, trained: Path, npz: Path, tmp_path: Path) -> None:
    tensors, metadata = stored(trained)
    for other in ({}, {"format": "pt"}, {**metadata, "version": "99"}):
        save_file(tensors, tmp_path / "m.safetensors", other)
        assert_refused(pdadmm("predict", "m.safetensors", "--data", npz), "not a model of this program", "format")


@pytest.mark.parametrize(
    "change",
    [
        {"layers.1.weight": None},
        {"layers.1.weight": np.zeros((8, 5), np.float32)},
        {"layers.1.bias": np.zeros((3, 3), np.float32)},
        {"layers.2.bias": np.array(0, np.float32)},
        {"layers.0.weight": np.zeros((8, 3), np.int64)},
        {"layers.0.weight": np.zeros((8, 3), np.float64)},
        {"preprocess.shift": None},
        {"preprocess.shift": np.zeros(2)},
        {"network": "[]"},
        {"network": "{"},
        {"network": '{"activation": "relu", "layers": 0}'},
        {"network": '{"activation": "relu", "layers": 2}'},
        {"network": '{"activation": "swish", "layers": 3}'},
        {"preprocess.classes": None},
        {"preprocess.classes": "[1]"},
        {"preprocess.feature_names": '["a"]'},
    ],
    ids=str,
)
def test_a_damaged_model(pdadmm: Command, trained: Path, npz: Path, tmp_path: Path, change: dict[str, Any]) -> None:
    tensors, metadata = stored(trained)
    for name, value in change.items():
        owner: dict[str, Any] = tensors if name in tensors else metadata
        owner[name] = value
        if value is None:
            del owner[name]
    save_file(tensors, tmp_path / "m.safetensors", metadata)
    assert_refused(pdadmm("predict", "m.safetensors", "--data", npz), "m.safetensors is damaged or incomplete: ")
