"""`pdadmm train` on what a user may have, and what it leaves in the run directory."""

from __future__ import annotations

import errno
import io
import json
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from commands import TINY, Command, rows_of, samples, write_csv
from pdadmm.config import Config, read_toml
from pdadmm.history import KEYS
from pdadmm.model import load_model

FILES = ["checkpoints", "config.toml", "history.jsonl", "model.safetensors", "summary.json"]


def listed(run: Path) -> list[str]:
    return sorted(path.name for path in run.iterdir())


def config_of(run: Path) -> Config:
    return Config.from_mapping(read_toml(run / "config.toml"))


# --- data


def test_digits_without_a_word_about_data_or_place(pdadmm: Command, tmp_path: Path) -> None:
    result = pdadmm("train", *TINY)
    assert result.code == 0
    [run] = (tmp_path / "runs").iterdir()
    assert run.name.startswith("digits-")
    assert listed(run) == FILES
    assert f"run directory: runs/{run.name}" in result.out
    assert "completed after 3 epochs: train_accuracy 0." in result.out
    assert "epoch 3/3" in result.err
    assert "note: no plot.png" in result.err


def test_json_has_the_result_and_nothing_else(train: Command, npz: Path, tmp_path: Path) -> None:
    result = train("--data", npz, "--out", "run", "--json")
    summary = result.json()
    assert result.err == ""
    assert {"status", "advice", "epochs", "seconds", "scores", "objective", "residual", "out"} <= set(summary)
    assert {"data", "network", "environment", "uncertified_epochs"} <= set(summary)
    assert summary["out"] == "run"
    assert summary["status"] == "completed"
    assert summary["data"] == {"name": "samples.npz", "train_samples": 32, "test_samples": 8, "features": 3}
    assert summary["network"]["hidden"] == "2x8"
    del summary["out"]
    assert summary == json.loads((tmp_path / "run/summary.json").read_text())


def test_npz_with_its_own_test_part(train: Command, tmp_path: Path) -> None:
    X, y = samples()
    np.savez(tmp_path / "d.npz", X_train=X, y_train=y, X_test=X[:5], y_test=y[:5])
    summary = train("--data", "d.npz", "--out", "run", "--json").json()
    assert (summary["data"]["train_samples"], summary["data"]["test_samples"]) == (40, 5)


@pytest.mark.parametrize("weight", [None, "w"])
def test_csv_with_texts_as_classes(train: Command, tmp_path: Path, weight: str | None) -> None:
    X, y = samples()
    names = np.array(["ant", "bee", "cat"])[y]
    write_csv(tmp_path / "d.csv", ["kind", "a", "b", "c", "w"], ([k, *x, 2] for k, x in zip(names, X, strict=True)))
    extra = () if weight is None else ("--weight", weight)
    summary = train("--data", "d.csv", "--target", "kind", "--out", "run", "--json", *extra).json()
    assert summary["data"]["features"] == (4 if weight is None else 3)
    classes = load_model(tmp_path / "run").preprocessor.classes
    assert classes is not None
    assert classes.tolist() == ["ant", "bee", "cat"]


def test_parquet(train: Command, tmp_path: Path) -> None:
    X, y = samples()
    columns = {"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "kind": np.array(["x", "y", "z"])[y]}
    pl.DataFrame(columns).write_parquet(tmp_path / "d.parquet")
    assert train("--data", "d.parquet", "--out", "run", "--json").json()["network"]["outputs"] == 3


def test_no_test_part(train: Command, npz: Path, tmp_path: Path) -> None:
    summary = train("--data", npz, "--test-fraction", "0", "--out", "run", "--json").json()
    assert list(summary["scores"]) == ["train_accuracy"]
    assert summary["data"]["test_samples"] == 0
    assert "test_accuracy" not in rows_of(tmp_path / "run")[-1]


@pytest.mark.parametrize("loss", ["squared", "huber"])
def test_regression(train: Command, pdadmm: Command, tmp_path: Path, loss: str) -> None:
    X, _ = samples()
    np.savez(tmp_path / "d.npz", X=X, y=1000 + 50 * X[:, 0])
    scores = train("--data", "d.npz", "--loss", loss, "--epochs", "30", "--out", "run", "--json").json()["scores"]
    assert list(scores) == ["train_r2", "test_r2"]
    assert scores["train_r2"] > 0.8
    assert {"train_r2", "test_r2"} <= set(rows_of(tmp_path / "run")[-1])
    evaluated = pdadmm("evaluate", "run", "--json").json()
    assert evaluated["train_r2"] == pytest.approx(scores["train_r2"], abs=1e-6)
    predictions = pdadmm("predict", "run", "--data", "d.npz", "--json").json()["predictions"]
    assert 800 < min(predictions) < max(predictions) < 1200


def test_regression_with_two_targets(train: Command, pdadmm: Command, tmp_path: Path) -> None:
    X, _ = samples()
    np.savez(tmp_path / "d.npz", X=X, y=X[:, :2])
    assert train("--data", "d.npz", "--loss", "squared", "--out", "run").code == 0
    lines = pdadmm("predict", "run", "--data", "d.npz").out.splitlines()
    assert lines[0] == "prediction_0,prediction_1"
    assert len(lines) == 41


def test_weights_of_samples_and_of_classes_change_the_result(train: Command, tmp_path: Path) -> None:
    X, y = samples()
    y = np.minimum(y, 1)
    np.savez(tmp_path / "plain.npz", X=X, y=y)
    np.savez(tmp_path / "weighted.npz", X=X, y=y, w=np.where(y == 0, 10.0, 1.0))
    models = []
    for name, extra in (("plain", ()), ("weighted", ()), ("plain", ("--class-weight", "balanced"))):
        assert train("--data", f"{name}.npz", "--out", "run", "--overwrite", *extra).code == 0
        models.append((tmp_path / "run/model.safetensors").read_bytes())
    assert len(set(models)) == 3


# --- history


@pytest.mark.parametrize("every", ["1", "2"])
def test_history(train: Command, npz: Path, tmp_path: Path, every: str) -> None:
    summary = train("--data", npz, "--set", f"evaluate_every={every}", "--out", "run", "--json").json()
    rows = rows_of(tmp_path / "run")
    assert [row["epoch"] for row in rows] == [1, 2, 3]
    for row in rows:
        assert {"objective", "seconds"} <= set(row) <= set(KEYS)
        assert row["seconds"] > 0
        assert isinstance(row["certified"], bool)
    assert ["train_accuracy" in row for row in rows] == [every == "1", True, True]
    assert {name: rows[-1][name] for name in ("train_accuracy", "test_accuracy")} == summary["scores"]
    assert rows[-1]["stationarity"] >= 0


def test_growth_is_in_the_history(train: Command, npz: Path, tmp_path: Path) -> None:
    assert train("--data", npz, "--hidden", "3x8", "--grow", "1+1@1", "--out", "run").code == 0
    rows = rows_of(tmp_path / "run")
    assert [row["layers"] for row in rows] == [1, 2, 3]
    assert [row.get("grown", 0) for row in rows] == [0, 1, 1]


# --- options


@pytest.mark.parametrize("extra", [(), ("--dtype", "float64", "--grow", "1+1@1", "--solver", "backtracking")])
def test_config_file_runs_again_to_the_same_bits(
    train: Command, pdadmm: Command, npz: Path, tmp_path: Path, extra: tuple[str, ...]
) -> None:
    assert train("--data", npz, "--seed", "7", *extra, "--out", "one").code == 0
    assert pdadmm("train", "--config", "one/config.toml", "--quiet", "--out", "two").code == 0
    for name in ("model.safetensors", "config.toml"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_flags_override_the_file_and_the_file_the_preset(train: Command, npz: Path, tmp_path: Path) -> None:
    (tmp_path / "my.toml").write_text('rho = 0.5\nnu = 0.25\nhidden = [5, 5]\nloss = "cross_entropy"\n')
    options = ("--preset", "paper", "--config", "my.toml", "--rho", "0.125")
    assert train("--data", npz, *options, "--out", "run").code == 0
    config = config_of(tmp_path / "run")
    assert (config.rho, config.nu, config.solver, config.hidden) == (0.125, 0.25, "backtracking", (8, 8))


def test_a_file_may_hold_options_of_every_type(pdadmm: Command, npz: Path, tmp_path: Path) -> None:
    (tmp_path / "my.toml").write_text(f'data = "{npz}"\nhidden = [5, 5]\nepochs = 2\nrho = 1\nthreads = 1\n')
    assert pdadmm("train", "--config", "my.toml", "--out", "run", "--json").json()["network"]["hidden"] == "2x5"


def test_the_preset_of_the_paper(train: Command, npz: Path, tmp_path: Path) -> None:
    options = ("--hidden", "6x4", "--epochs", "21", "--preset", "paper")
    assert train("--data", npz, *options, "--out", "run").code == 0
    config = config_of(tmp_path / "run")
    assert (config.rho, config.nu, config.solver, config.init) == (1e-4, 1e-4, "backtracking", "paper")
    assert [row["layers"] for row in rows_of(tmp_path / "run")] == [5] * 20 + [6]


def test_the_preset_takes_a_network_that_is_whole_from_the_start(train: Command, npz: Path, tmp_path: Path) -> None:
    assert train("--data", npz, "--preset", "paper", "--out", "run").code == 0
    assert [row["layers"] for row in rows_of(tmp_path / "run")] == [2, 2, 2]


def test_linearized_is_the_plain_method(train: Command, npz: Path, tmp_path: Path) -> None:
    assert train("--data", npz, "--hidden", "4x8", "--solver", "linearized", "--out", "run").code == 0
    config = config_of(tmp_path / "run")
    assert (config.grow, config.ridge, config.nu_output, config.z_prox) == ("off", 0, config.nu, 1)
    assert [row["layers"] for row in rows_of(tmp_path / "run")] == [4, 4, 4]


@pytest.mark.parametrize("solver", ["exact", "linearized"])
def test_bare_grow_is_auto(train: Command, npz: Path, tmp_path: Path, solver: str) -> None:
    options = ("--hidden", "4x8", "--epochs", "10", "--solver", solver)
    assert train("--data", npz, "--grow", *options, "--out", "run").code == 0
    assert config_of(tmp_path / "run").grow == "auto"
    assert [row["layers"] for row in rows_of(tmp_path / "run")] == [2] * 5 + [4] * 5


def test_a_network_that_cannot_grow_starts_whole_and_says_so(pdadmm: Command, npz: Path, tmp_path: Path) -> None:
    result = pdadmm("train", *TINY, "--data", npz, "--hidden", "6,5", "--grow", "1+1@1", "--out", "run")
    assert result.code == 0
    assert "starts whole instead of growing: no width repeats" in result.err
    assert rows_of(tmp_path / "run")[0]["layers"] == 2


def test_deeper_from_a_shallower_run(train: Command, trained: Path) -> None:
    data, before = trained.parent / "samples.npz", rows_of(trained)[-1]["train_accuracy"]
    options = ("--data", data, "--hidden", "4x8", "--epochs", "1", "--set", "fit_output=off", "--json")
    after = train(*options, "--init-from", trained, "--out", "deep").json()
    fresh = train(*options, "--out", "fresh").json()
    assert after["network"]["hidden"] == "4x8"
    assert after["scores"]["train_accuracy"] >= before - 0.07 > fresh["scores"]["train_accuracy"] + 0.3


# --- the run directory


def test_overwrite_replaces_the_run(train: Command, npz: Path, tmp_path: Path) -> None:
    assert train("--data", npz, "--out", "run").code == 0
    (tmp_path / "run/mine.txt").write_text("kept")
    assert train("--data", npz, "--out", "run", "--overwrite", "--epochs", "1").code == 0
    assert len(rows_of(tmp_path / "run")) == 1
    assert listed(tmp_path / "run") == sorted([*FILES, "mine.txt"])


def test_overwrite_may_start_from_the_run_it_replaces(train: Command, npz: Path, tmp_path: Path) -> None:
    assert train("--data", npz, "--out", "run").code == 0
    result = train("--data", npz, "--hidden", "3x8", "--out", "run", "--overwrite", "--init-from", "run")
    assert result.code == 0
    assert load_model(tmp_path / "run").network.hidden == (8, 8, 8)


def test_overwrite_keeps_the_old_run_where_the_new_one_is_refused(train: Command, npz: Path, tmp_path: Path) -> None:
    assert train("--data", npz, "--out", "run").code == 0
    before = (tmp_path / "run/model.safetensors").read_bytes()
    for mistake in (("--init-from", "nowhere"), ("--hidden", "9" * 9), ("--grow", "0:1")):
        assert train("--data", npz, "--out", "run", "--overwrite", *mistake).code == 2
    assert (tmp_path / "run/model.safetensors").read_bytes() == before
    assert listed(tmp_path / "run") == FILES


def test_plot(trained: Path) -> None:
    pytest.importorskip("altair")
    assert (trained / "plot.png").read_bytes().startswith(b"\x89PNG")
    assert listed(trained) == sorted([*FILES, "plot.png"])


# --- what is shown


def test_quiet(train: Command, npz: Path) -> None:
    result = train("--data", npz, "--out", "run")
    assert result.err == ""
    assert result.out.count("\n") == 3


def test_bar_on_a_terminal(pdadmm: Command, npz: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    assert pdadmm("train", *TINY, "--data", npz, "--out", "run").code == 0
    assert "3/3" in screen.getvalue()
    assert "note: rho = " in screen.getvalue()


@pytest.mark.parametrize("where", ["closed", "full"])
def test_a_run_ends_well_where_nobody_can_read_its_progress(
    pdadmm: Command, npz: Path, monkeypatch: pytest.MonkeyPatch, where: str, tmp_path: Path
) -> None:
    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", None if where == "closed" else Full())
        assert pdadmm("train", *TINY, "--data", npz, "--out", "run", "--json").json()["status"] == "completed"
    assert listed(tmp_path / "run") == FILES
