"""Mini-batches: every visit lowers L_rho, and the sums that are carried along stay true."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import torch

import pdadmm
from pdadmm.config import Config
from pdadmm.engine.batches import windows
from pdadmm.engine.problem import method_weights
from pdadmm.errors import UserError
from pdadmm.math.lagrangian import TOLERANCE, certain_drop, objective
from pdadmm.math.tiles import Tiling
from problems import make_engine, make_problem
from resume_cases import pdadmm as run_pdadmm


@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("loss", ["cross_entropy", "squared"])
@pytest.mark.parametrize("batches", [2, 3, 8])
def test_the_certificate_holds_in_every_epoch(batches: int, activation: str, loss: str) -> None:
    config = Config(
        hidden=(12, 12, 9), batches=batches, activation=activation, loss=loss, dtype="float64", grow="off", l2=0.01
    ).resolved()
    engine, weights = make_engine(config, make_problem(config, samples=2100)), method_weights(config)
    value = objective(engine.begin_stage(0.02), weights)
    for _ in range(8):
        reports = engine.iterate(0.02)
        drop, value = value - objective(reports, weights), objective(reports, weights)
        assert drop >= certain_drop(reports, weights) - TOLERANCE * (1 + abs(value))
        assert certain_drop(reports, weights) != 0


def test_what_is_carried_along_is_what_is_there() -> None:
    config = Config(hidden=(7, 7), batches=4, dtype="float64", grow="off").resolved()
    engine = make_engine(config, make_problem(config, samples=1500))
    engine.begin_stage(0.02)
    for _ in range(3):
        engine.iterate(0.02)
    for block in engine.blocks:
        s = block.state
        cross, z_sum = (sum(parts) for parts in list(zip(*s.carried.values(), strict=True))[:2])
        torch.testing.assert_close(cross, s.z.t() @ s.p)
        torch.testing.assert_close(z_sum, s.z.sum(0))


def test_a_run_in_batches_learns() -> None:
    data = pdadmm.load_data("digits")
    result = pdadmm.train(Config(hidden=(30, 30), epochs=25, batches=4), data)
    assert result.history[-1]["test_accuracy"] > 0.9


def test_windows_cover_all_chunks_and_no_more_than_there_are() -> None:
    tiling = Tiling(60_000, 256, width=500)
    found = windows(tiling, 3)
    assert [found[0][0], found[-1][1]] == [0, tiling.num_chunks]
    assert all(left[1] == right[0] for left, right in itertools.pairwise(found))
    with pytest.raises(UserError, match="batches must be at most 16"):
        windows(tiling, 17)


@pytest.mark.parametrize("options", [{"solver": "linearized"}, {"workers": 2}, {"shards": 2}])
def test_what_batches_do_not_go_with_is_refused(options: dict[str, object]) -> None:
    with pytest.raises(UserError, match="batches need"):
        Config(batches=2, **options)  # type: ignore[arg-type]


def test_a_run_in_batches_resumes_with_the_same_bits(tmp_path: Path) -> None:
    options = ["--hidden", "2x12", "--set", "batches=3", "--threads", "1", "--grow", "off", "--set", "ridge_epochs=6"]
    whole = run_pdadmm("train", *options, "--epochs", "6", "--out", tmp_path / "whole")
    half = run_pdadmm("train", *options, "--epochs", "3", "--checkpoint-every", "1", "--out", tmp_path / "half")
    rest = run_pdadmm("train", "--resume", tmp_path / "half", "--epochs", "6")
    assert (whole.code, half.code, rest.code) == (0, 0, 0), rest.err
    models = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "half")]
    assert models[0] == models[1]
