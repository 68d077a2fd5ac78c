"""The examples of docs/pytorch.md and docs/export.md run, one after the other, and come to what they say."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pdadmm
from pdadmm.cli.main import main

DOCS = Path(__file__).resolve().parents[2] / "docs"


def examples(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (DOCS / page).read_text(encoding="utf-8"), re.M | re.S)


def execute(page: str, names: dict[str, Any]) -> None:
    for block in examples(page):
        with warnings.catch_warnings(action="ignore"):
            exec(compile(block, page, "exec"), names)


def test_the_examples_with_modules_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    execute("pytorch.md", names)
    assert float((names["labels"].numpy() == names["data"].test.y).mean()) > 0.9
    first, second = capsys.readouterr().out.splitlines()
    assert first.split()[0] == "completed"
    assert second.split()[0] == "interrupted"


def test_the_examples_that_serve_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxruntime")
    monkeypatch.chdir(tmp_path)
    data = pdadmm.load_data("digits")
    assert data.test is not None
    with warnings.catch_warnings(action="ignore"):
        model = pdadmm.train(pdadmm.Config(hidden=(30, 20), epochs=5, threads=1), data).model
    model.save("model.safetensors")
    for format in ("onnx", "pt2"):
        assert main(["export", "model.safetensors", "--format", format]) == 0
    names: dict[str, Any] = {"X": data.test.X, "np": np}
    execute("export.md", names)
    classes = model.preprocessor.decode
    for outputs in (names["logits"].detach().numpy(), names["h"]):
        assert classes(outputs.argmax(1)).tolist() == names["label"].tolist() == model.predict(data.test.X).tolist()
