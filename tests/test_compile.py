"""Compiled element-wise work: the same mathematics, and a way out where there is no compiler."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from pdadmm.config import Config
from pdadmm.engine.problem import method_weights
from pdadmm.math.activations import get_activation
from pdadmm.math.hidden import MEASURED, FusedStep, HiddenStep
from resume_cases import started

has_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler here")


@has_compiler
@pytest.mark.parametrize("z_prox", [0.1, 0.01])  # other weights in the same process once gave a wrong kernel
def test_the_fused_step_is_the_plain_one_to_rounding(z_prox: float) -> None:
    weights = method_weights(Config(z_prox=z_prox, z_relax=1.5).resolved())
    results = []
    for make in (HiddenStep, FusedStep):
        step = make(get_activation("relu"), weights)
        generator = torch.Generator().manual_seed(0)
        for rows, width in ((64, 40), (33, 17)):  # compiled for any shape
            z, q, a, p, *work = (torch.randn(rows, width, generator=generator) for _ in range(7))
            v = torch.randn(rows, width, generator=generator) if rows == 33 else None
            measured = torch.zeros(len(MEASURED), rows)
            step(z, q, a, p, v, (work[0], work[1], work[2]), measured)
            results.append((make, z, q, measured))
    plain, fused = (results[:2], results[2:])
    for (_, *expected), (_, *found) in zip(plain, fused, strict=True):
        for one, other in zip(expected, found, strict=True):
            torch.testing.assert_close(other, one, rtol=1e-5, atol=1e-6)


def test_without_a_compiler_the_run_goes_on_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    run = ["--hidden", "2x20", "--epochs", "2", "--threads", "1", "--grow", "off"]
    found = started("train", *run, "--compile", "on", "--out", tmp_path / "run")
    assert found.code == 0, found.err
    assert "runs uncompiled" in found.err
