"""docs/sklearn.md: its examples run, one after the other, and what it says of parameters is so."""

from __future__ import annotations

import re
from pathlib import Path

import torch

from pdadmm import PdADMMClassifier, PdADMMRegressor

PAGE = Path(__file__).resolve().parents[2] / "docs" / "sklearn.md"


def test_the_examples_run() -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    assert len(blocks) >= 4
    names: dict[str, object] = {}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    for number, block in enumerate(blocks):
        exec(compile(block, f"docs/sklearn.md, block {number + 1}", "exec"), names)
    torch.set_num_threads(threads)


def test_every_parameter_is_on_the_page() -> None:
    known = {*PdADMMClassifier().get_params(), *PdADMMRegressor().get_params()}
    text = PAGE.read_text(encoding="utf-8")
    assert [name for name in sorted(known) if f"`{name}`" not in text] == []
