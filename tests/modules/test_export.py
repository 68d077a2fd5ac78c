"""From a module or a run to files that others serve, and back: equal outputs everywhere."""

from __future__ import annotations

import dataclasses
import io
import json
import sys
import warnings
import zipfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import pdadmm
from pdadmm.cli.main import main
from pdadmm.data import Preprocessor
from pdadmm.errors import DamageError, UserError
from pdadmm.export.check import FORMATS, check, random_features
from pdadmm.export.onnx_file import run_all_onnx
from pdadmm.math.activations import Activations, activation_names, get_activations
from pdadmm.model import Model
from pdadmm.modules import as_module
from pdadmm.network import Network

LABELS: dict[str, NDArray[Any]] = {
    "int": np.array([3, 5, 9]),
    "text": np.array(["ant", "bee, large", "größe"]),
    "bool": np.array([False, True]),
}
ALL = ",".join(activation_names())


def make(kind: str, dtype: torch.dtype = torch.float32, activation: str = ALL) -> Model:
    """Random weights for 5 features of very unequal size; outputs of mean 0 and spread 1, so that all classes occur."""
    generator = torch.Generator().manual_seed(0)
    hidden = (11, 8, 8, 9, 7, 6)
    classes = LABELS.get(kind)
    outputs = {"one value": 1, "values": 2}.get(kind, 0 if classes is None else len(classes))
    widths = (5, *hidden, outputs)
    weights = [
        torch.randn(width, before, generator=generator, dtype=torch.float64) * (2 / before) ** 0.5
        for before, width in pairwise(widths)
    ]
    biases = [torch.randn(width, generator=generator, dtype=torch.float64) for width in widths[1:]]
    scaling = (np.array([1e3, -2, 0, 5, 1e-3]), np.array([10, 0.1, 1, 1e-5, 2]), tuple("abcde"))
    low, unit = (None, None) if classes is not None else (np.linspace(100, 200, outputs), np.linspace(1, 50, outputs))
    preprocessor = Preprocessor(*scaling, classes, low, unit, kind != "values")
    network = Network(weights, biases, get_activations(activation, len(hidden)))
    outputs_now = network.forward(torch.randn(1000, 5, generator=generator, dtype=torch.float64))
    weights[-1] /= outputs_now.std(0)[:, None]
    biases[-1] = (biases[-1] - outputs_now.mean(0)) / outputs_now.std(0)
    return Model(network.to(dtype, torch.device("cpu")), preprocessor)


KINDS = [*LABELS, "one value", "values"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", KINDS)
def test_a_module_gives_what_the_model_gives(kind: str, dtype: torch.dtype) -> None:
    model = make(kind, dtype)
    X = random_features(model)
    module, within = as_module(model), 5e-5 if dtype == torch.float32 else 1e-11
    found = module(torch.from_numpy(X)).detach().numpy()
    if model.preprocessor.regression:
        np.testing.assert_allclose(found, model.predict(X).astype(np.float64), rtol=within, atol=10 * within)
        assert found.shape == model.predict(X).shape
    else:
        np.testing.assert_allclose(found, model.outputs(X).numpy(), rtol=within, atol=within)
    next(iter(module.parameters())).data.zero_()  # the module has weights of its own
    assert not np.allclose(model.network.weights[0].numpy(), 0)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", KINDS)
def test_every_format_predicts_what_the_model_predicts(kind: str, dtype: torch.dtype, format: str) -> None:
    if format == "onnx":
        pytest.importorskip("onnxruntime")
    model = make(kind, dtype)
    X = random_features(model).astype(str(dtype).removeprefix("torch."))
    content = FORMATS[format][0](model)
    found = check(model, format, content, X)
    assert found.equal + found.ties == found.samples == len(X)
    assert found.largest_difference < (1e-2 if model.preprocessor.regression else 1e-4)
    assert check(model, format, content, X[:1]).equal == 1


def test_nothing_in_a_pt2_file_is_pickled() -> None:
    with zipfile.ZipFile(io.BytesIO(FORMATS["pt2"][0](make("text")))) as archive:
        contents = {entry.filename: archive.read(entry) for entry in archive.infolist()}
    described = next(content for name, content in contents.items() if name.endswith("metadata.json"))
    assert json.loads(described) == {"classes": LABELS["text"].tolist(), "feature_names": list("abcde")}
    weights = make("text").network.weights
    assert sum(W.numpy().tobytes() in contents.values() for W in weights) == len(weights)
    pickled = (b"PK", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")  # as files of torch.save and of pickle begin
    for name, content in contents.items():
        assert not content.startswith(pickled), name


@pytest.mark.parametrize("kind", LABELS)
def test_onnx_serves_labels_by_name_with_probabilities(kind: str) -> None:
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    model = make(kind, torch.float64)
    X = random_features(model)
    content = FORMATS["onnx"][0](model)
    found = run_all_onnx(content, X)
    assert list(found) == ["label", "probabilities", "logits"]
    assert found["label"].tolist() == model.predict(X).tolist()
    assert set(found["label"].tolist()) == set(LABELS[kind].tolist())
    assert type(found["label"].tolist()[0]) is type(LABELS[kind].tolist()[0])
    np.testing.assert_allclose(found["probabilities"], model.predict_proba(X), rtol=1e-9, atol=1e-12)
    described = {entry.key: json.loads(entry.value) for entry in onnx.load_from_string(content).metadata_props}
    assert described == {"classes": LABELS[kind].tolist(), "feature_names": list("abcde")}


@pytest.mark.parametrize("format", FORMATS)
def test_the_check_finds_a_file_of_another_model(format: str) -> None:
    if format == "onnx":
        pytest.importorskip("onnxruntime")
    model = make("int")
    other = dataclasses.replace(model, network=model.network.to(torch.float32, torch.device("cpu")))
    other.network.biases[-1] = other.network.biases[-1] + torch.tensor([0.5, 0, 0])
    with pytest.raises(DamageError, match=r"would not predict what the model predicts, and is not written: [1-9]"):
        check(model, format, FORMATS[format][0](other), random_features(model))


def test_an_activation_that_others_do_not_have_is_named() -> None:
    model = make("int")
    other = type("Swish", (type(model.network.activations[0]),), {"name": "swish"})()
    model.network.activations = Activations((other,) * 6)
    with pytest.raises(UserError, match="got swish"):
        as_module(model)
    pytest.importorskip("onnx")
    with pytest.raises(UserError, match="got swish"):
        FORMATS["onnx"][0](model)


def command(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    capsys.readouterr()
    code = main([str(argument) for argument in arguments])
    return code, *capsys.readouterr()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with three activations on a .csv with names for features and classes."""
    folder = tmp_path_factory.mktemp("exported")
    generator = np.random.default_rng(0)
    y = np.arange(90) % 3
    X = generator.standard_normal((90, 4)) + 3 * y[:, None]
    lines = [",".join([*map(str, x), LABELS["text"][k].replace(",", "")]) for x, k in zip(X, y, strict=True)]
    (folder / "some.csv").write_text("\n".join(["a,b,c,d,kind", *lines]) + "\n")
    options = ["--hidden", "8,7,7", "--activation", "tanh,2xleaky_relu", "--epochs", "10", "--threads", "1", "--quiet"]
    assert main(["train", "--data", str(folder / "some.csv"), *options, "--out", str(folder / "run")]) == 0
    return folder / "run"


def test_a_run_with_mixed_activations_is_stored_and_read_back(run: Path) -> None:
    model = pdadmm.load_model(run)
    assert model.network.activations.names == ("tanh", "leaky_relu", "leaky_relu")
    assert json.loads((run / "summary.json").read_text())["network"]["activation"] == "tanh,2xleaky_relu"
    X = np.random.default_rng(1).standard_normal((50, 4))
    module = pdadmm.load_module(run)
    found = model.preprocessor.decode(module(torch.from_numpy(X)).argmax(1).numpy())
    assert model.predict(X).tolist() == found.tolist()


@pytest.mark.parametrize("format", FORMATS)
def test_export_writes_checks_and_says_so(
    run: Path, format: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if format == "onnx":
        pytest.importorskip("onnxruntime")
    code, out, err = command(capsys, "export", run, "--format", format, "--out", tmp_path, "--json")
    assert (code, err) == (0, "")
    told = json.loads(out)
    path = tmp_path / f"model.{format}"
    assert told["file"] == str(path)
    assert told["bytes"] == path.stat().st_size
    assert told["checked_on"] == "test part of some.csv"
    assert told["samples"] == told["equal"] + told["ties"] == 18
    code, out, _ = command(capsys, "export", run / "model.safetensors", "--format", format, "--out", tmp_path)
    assert code == 0
    assert "run on 1000 samples (random features, because" in out
    assert "1000 equal predictions" in out


def test_export_beside_the_run_is_onnx_unless_said(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnxruntime")
    assert command(capsys, "export", run)[0] == 0
    assert (run / "model.onnx").is_file()
    code, _, err = command(capsys, "export", run, "--format", "torchscript")
    assert (code, "invalid choice: 'torchscript' (choose from" in err, err.count("\n")) == (2, True, 1)


def test_a_file_that_fails_its_check_takes_no_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnxruntime")
    model = make("int")
    model.network.weights[-1].mul_(1e38)  # outputs are infinite, so there is nothing to compare
    model.save(tmp_path / "model.safetensors")
    (tmp_path / "model.onnx").write_text("the one before")
    code, _, err = command(capsys, "export", tmp_path)
    assert (code, "would not predict what the model predicts" in err) == (6, True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.onnx", "model.safetensors"]
    assert (tmp_path / "model.onnx").read_text() == "the one before"


def test_without_the_extra_onnx_is_refused(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    code, _, err = command(capsys, "export", run, "--format", "onnx", "--out", tmp_path / "out")
    assert code == 2
    assert err.strip().endswith("onnxruntime is not installed: pip install 'pdadmm[onnx]'")
    assert not (tmp_path / "out").exists()


def test_a_trained_module_goes_all_the_way(tmp_path: Path) -> None:
    """Mixed widths, tanh and leaky ReLU: trained, saved, loaded, exported, served: equal outputs."""
    onnxruntime = pytest.importorskip("onnxruntime")
    torch.manual_seed(0)
    X = torch.randn(200, 5)
    y = (X[:, :3] * torch.tensor([1.0, 2, 3])).argmax(1)
    module = torch.nn.Sequential(
        torch.nn.Linear(5, 16), torch.nn.Tanh(), torch.nn.Linear(16, 9), torch.nn.LeakyReLU(), torch.nn.Linear(9, 3)
    )
    with warnings.catch_warnings(action="ignore"):
        pdadmm.fit(module, X, y, epochs=20, threads=1)
    names = np.array(["red", "green", "blue"])
    model = pdadmm.from_module(module, classes=names.tolist())
    right = float((module(X).argmax(1) == y).double().mean())
    assert model.evaluate(pdadmm.Part(X.numpy(), names[y])) == {"accuracy": right}
    model.save(tmp_path / "model.safetensors")
    loaded = pdadmm.load_module(tmp_path / "model.safetensors")
    torch.testing.assert_close(loaded(X), module(X), rtol=1e-6, atol=1e-6)
    assert main(["export", str(tmp_path / "model.safetensors")]) == 0
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    label, _, logits = session.run(None, {"X": X.numpy()})
    np.testing.assert_allclose(logits, module(X).detach().numpy(), rtol=1e-4, atol=1e-5)
    assert label.tolist() == names[module(X).argmax(1).numpy()].tolist()


def test_a_module_as_a_model_needs_a_label_for_each_output() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.ReLU(), torch.nn.Linear(4, 3))
    for classes in ([1, 2], [1, 2, 2], [0.5, 1, 2]):
        with pytest.raises(UserError, match="classes"):
            pdadmm.from_module(module, classes=classes)
    with pytest.raises(UserError, match="feature_names must name the 5 features of the module; got 1"):
        pdadmm.from_module(module, feature_names=["a"])
    values = pdadmm.from_module(module.double())
    X = np.random.default_rng(0).standard_normal((7, 5))
    np.testing.assert_allclose(
        values.predict(X).astype(np.float64), module(torch.from_numpy(X)).detach().numpy(), rtol=1e-12
    )
