"""A resumed run is the run that was never cut off, bit for bit: W, b, p, z, q and every row of the history."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from commands import TINY, assert_refused, rows_of, typed
from pdadmm.checkpoint.folder import Folder
from pdadmm.config import Config
from pdadmm.data import Dataset, Part
from pdadmm.errors import UserError
from pdadmm.run import read_config as saved_config
from resume_cases import (
    assert_same_run,
    carried_out,
    content_of,
    copied,
    cut_back,
    newest_state,
    pdadmm,
    resume,
    started,
    timeless_rows,
    with_copies,
    write_samples,
)
from worker_cases import CASES, SOLVERS

# --- in one process: every solver, before, at and after growth

EPOCHS = 14
HIDDEN = (8, 8, 6, 6, 6, 5)
MORE_CASES: dict[str, dict[str, Any]] = {
    "float64": {"dtype": "float64"},
    "float64-linearized": {"dtype": "float64", "solver": "linearized", "nu": 0.1, "grow": "0:3,4:all"},
    "squared": {"loss": "squared"},
    "huber": {"loss": "huber", "solver": "backtracking", "nu": 0.1, "grow": "0:3,8:all"},
    "balanced": {"class_weight": "balanced"},
    "theory": {"nu": 0.1, "rho": 5.0, "l2": 0.01},
    "fista": {"output_solver": "fista", "activation": "tanh"},
    "one-by-one": {"solver": "linearized", "nu": 0.1, "grow": "3+1@2", "grow_output": "fresh"},
    "one-by-one-exact": {"grow": "3+1@2", "grow_output": "fresh", "init": "paper"},
    "rare-evaluations": {"evaluate_every": 3, "stationarity_every": 4},
}


def small_data(regression: bool) -> Dataset:
    """130 weighted samples of five features, some of them for testing."""
    rng = np.random.default_rng(0)
    X, weight = rng.normal(size=(130, 5)), 0.5 + rng.random(130)
    score = np.tanh(X @ rng.normal(size=(5, 3)))
    y = score[:, :2] if regression else np.array(["low", "middle", "high"])[score.argmax(1)]
    return Dataset("small", Part(X[:100], y[:100], weight[:100]), Part(X[100:], y[100:]), tuple("abcde"))


def options_of(case: str) -> dict[str, Any]:
    """A case's options."""
    if case in MORE_CASES:
        return MORE_CASES[case]
    solver, _, activation = case.rpartition("-")
    return {**SOLVERS[solver], "activation": activation}


def small_config(**options: Any) -> Config:
    """Six small layers, a checkpoint after every epoch."""
    shared = {"hidden": HIDDEN, "epochs": EPOCHS, "stationarity_every": 5, "threads": 1}
    return Config(**{**shared, "checkpoint_every": 1, "checkpoint_minutes": 0.0, **options})


@pytest.mark.parametrize("case", [*CASES, *MORE_CASES])
def test_a_run_that_died_goes_on_as_if_it_had_not(case: str, tmp_path: Path) -> None:
    config = small_config(**options_of(case))
    check_every_cut(config, small_data(config.loss != "cross_entropy"), tmp_path)


def check_every_cut(config: Config, data: Dataset, path: Path) -> None:
    """With a checkpoint each epoch, a run that dies at the end of an epoch has that of two epochs before."""
    reference, copies = with_copies(config, data, path / "run", set(range(3, EPOCHS + 1)))
    grown = [row["epoch"] for row in rows_of(reference.path) if "grown" in row]
    around = {epoch + offset for epoch in grown for offset in (-2, -1, 0)}  # before, at and after
    for epoch in sorted({1, 6, EPOCHS - 2} | around):
        done = carried_out(config, data, copies[epoch + 2], resumes=True)
        assert done.summary["resumed_from"] == epoch
        assert_same_run(done.path, reference.path)
        for key in ("status", "epochs", "scores", "objective", "residual", "uncertified_epochs"):
            assert done.summary[key] == reference.summary[key]
        assert not list(Folder(done.path).path.glob(".*"))
        assert len(Folder(done.path).epochs()) == 2


def test_a_run_that_started_from_a_model_goes_on_likewise(tmp_path: Path) -> None:
    data = small_data(regression=False)
    carried_out(small_config(hidden=(8, 6, 5)), data, tmp_path / "model")
    check_every_cut(small_config(init_from=str(tmp_path / "model")), data, tmp_path)


def test_the_model_that_a_run_started_from_may_be_elsewhere_but_not_be_another(tmp_path: Path) -> None:
    data = small_data(regression=False)
    carried_out(small_config(hidden=(8, 6, 5), scaling="minmax"), data, tmp_path / "model")
    config = small_config(init_from=str(tmp_path / "model"))
    reference, copies = with_copies(config, data, tmp_path / "run", {8})
    (tmp_path / "model").rename(tmp_path / "moved")
    moved = dataclasses.replace(config, init_from=str(tmp_path / "moved"))
    carried_out(small_config(hidden=(8, 6, 5), scaling="none"), data, tmp_path / "other")
    other = dataclasses.replace(config, init_from=str(tmp_path / "other"))
    with pytest.raises(UserError, match="the data was"):
        carried_out(other, data, copies[8], resumes=True)
    carried_out(moved, data, copies[8], resumes=True)
    assert_same_run(copies[8], reference.path)


def test_a_run_may_die_and_go_on_again_and_again(tmp_path: Path) -> None:
    """Each time it loses one or two epochs and gets one further than before."""

    def die(row: dict[str, Any]) -> None:
        if row["epoch"] == last:
            raise ZeroDivisionError  # nothing of ours catches it

    config, data = small_config(**options_of("one-by-one")), small_data(regression=False)
    reference = carried_out(config, data, tmp_path / "reference")
    for last in range(3, EPOCHS + 1):
        with pytest.raises(ZeroDivisionError):
            carried_out(config, data, tmp_path / "run", resumes=last > 3, on_row=die)
    done = carried_out(config, data, tmp_path / "run", resumes=True)
    assert done.summary["resumed_from"] == EPOCHS - 2
    assert_same_run(done.path, reference.path)


# --- on other workers and shards

MESH_EPOCHS = 12
BEFORE_GROWTH, AFTER_GROWTH = 4, 6
MESH_OPTIONS = ("--hidden", "30,30,22,22,22,14", "--grow", "0:3,5:all", "--set", f"ridge_epochs={MESH_EPOCHS}")
SAVES = ("--checkpoint-every", "4", "--set", "checkpoint_minutes=0", "--set", "stationarity_every=2")

Mesh = tuple[int, int]
RunOn = Callable[..., Path]


@pytest.fixture(scope="module")
def run_on(tmp_path_factory: pytest.TempPathFactory) -> RunOn:
    """Runs of seven layers, each once."""
    folder = tmp_path_factory.mktemp("meshes")

    def run_on(mesh: Mesh, *options: str, epochs: int = MESH_EPOCHS) -> Path:
        workers, shards = mesh
        out = folder / "-".join((f"{workers}x{shards}", f"{epochs}", *options))
        if not out.exists():
            command = pdadmm if workers * shards == 1 else started
            on_mesh = ("--workers", str(workers), "--shards", str(shards), "--threads", "1", "--quiet")
            how = (*MESH_OPTIONS, *SAVES, *on_mesh, "--epochs", str(epochs), *options)
            found = command("train", *how, "--out", out)
            assert found.code == 0, found.err
        return out

    return run_on


WORKERS = (1, 2, 3, 5)
Pair = tuple[Mesh, Mesh, int]
QUICK: list[Pair] = [((2, 1), (1, 2), AFTER_GROWTH), ((2, 1), (3, 1), BEFORE_GROWTH)]
REST: list[Pair] = [
    *(((one, 1), (other, 1), BEFORE_GROWTH) for one in WORKERS for other in WORKERS),
    ((2, 1), (1, 1), AFTER_GROWTH),
    ((1, 1), (1, 2), BEFORE_GROWTH),
    ((1, 1), (1, 2), AFTER_GROWTH),
    ((1, 2), (1, 1), AFTER_GROWTH),
    ((1, 2), (1, 4), AFTER_GROWTH),
    ((1, 4), (1, 1), AFTER_GROWTH),
    ((2, 2), (3, 1), AFTER_GROWTH),
    ((2, 2), (3, 1), BEFORE_GROWTH),
    ((3, 1), (7, 1), AFTER_GROWTH),
]


def named(pair: Pair, *marks: pytest.MarkDecorator) -> Any:
    (workers, shards), (other_workers, other_shards), epoch = pair
    return pytest.param(*pair, marks=marks, id=f"{workers}x{shards} to {other_workers}x{other_shards} at {epoch}")


@pytest.mark.parametrize(
    ("before", "after", "epoch"),
    [*map(named, QUICK), *(named(pair, pytest.mark.slow) for pair in REST if pair not in QUICK)],
)
def test_a_run_goes_on_with_the_same_bits_on_other_workers(
    before: Mesh, after: Mesh, epoch: int, run_on: RunOn, tmp_path: Path
) -> None:
    """Before growth some workers have no layer yet; the rows until epoch 6 are there and are not written twice."""
    run = cut_back(run_on(before, epochs=6), tmp_path / "run", epoch)
    more = ["--epochs", str(MESH_EPOCHS)] + (["--set", "placement=1,1,5"] if after == (3, 1) else [])
    assert resume(run, *more, workers=after[0], shards=after[1]).json()["resumed_from"] == epoch
    assert_same_run(run, run_on((1, 1)))


@pytest.mark.slow
def test_shards_with_another_order_of_sums_are_refused(run_on: RunOn, tmp_path: Path) -> None:
    run = cut_back(run_on((1, 1)), tmp_path / "run", 8)
    before = content_of(run)
    assert_refused(resume(run, "--quiet", shards=3), "shards was 1 and is now 3", "--allow-changes")
    assert content_of(run) == before


@pytest.mark.slow
def test_shards_with_another_order_of_sums_may_be_allowed(run_on: RunOn, tmp_path: Path) -> None:
    """Any change begins a new stage, with a new unit of the ridge; so it is compared with one that changes no sum."""
    run, twin = (cut_back(run_on((1, 1)), tmp_path / name, 8) for name in ("run", "twin"))
    found = resume(run, "--allow-changes", shards=3)
    assert found.json()["resumed_from"] == 8
    assert "shards was 1 and is now 3" in found.err
    assert resume(twin, "--allow-changes", "--set", "l2=1e-30").code == 0
    rows, expected = rows_of(run), rows_of(twin)
    assert all(row["certified"] for row in rows)
    assert rows[-1]["objective"] == pytest.approx(expected[-1]["objective"], rel=1e-3)


@pytest.mark.slow
def test_allowed_changes_have_the_same_bits_on_any_number_of_workers(run_on: RunOn, tmp_path: Path) -> None:
    """The new certificate is measured across the boundaries, and the messages under way are taken back."""
    changed = ("--nu", "0.02", "--allow-changes")
    runs = {workers: cut_back(run_on((1, 1)), tmp_path / f"{workers}", 8) for workers in (1, 2, 3)}
    for workers, run in runs.items():
        assert resume(run, *changed, workers=workers).code == 0
        assert_same_run(run, runs[1])


def test_rounded_messages_are_refused_on_other_workers(run_on: RunOn) -> None:
    """What is rounded depends on where the layers are; so it does if there is only one worker before."""
    run = run_on((1, 1), "--set", "messages=bfloat16", epochs=6)
    before = content_of(run)
    for name, now in [("workers", "2"), ("shards", "2"), ("placement", "7")]:
        found = pdadmm("train", "--resume", run, *typed(name, now))
        assert_refused(
            found, f"{name} was {'not set' if name == 'placement' else 1} and is now {now}", "--allow-changes"
        )
    assert content_of(run) == before


@pytest.mark.slow
@pytest.mark.parametrize(("mesh", "solver"), [((2, 1), "exact"), ((3, 1), "linearized"), ((2, 2), "backtracking")])
def test_rounded_messages_go_on_as_they_were_sent(mesh: Mesh, solver: str, run_on: RunOn, tmp_path: Path) -> None:
    """The last message is saved as it was rounded."""
    reference = run_on(mesh, "--set", "messages=bfloat16", "--solver", solver, "--nu", "0.1")
    run = cut_back(reference, tmp_path / "run", 8)
    assert resume(run, workers=mesh[0], shards=mesh[1]).json()["resumed_from"] == 8
    assert_same_run(run, reference)


# --- options on the command line

EVERY = ("--checkpoint-every", "2", "--set", "checkpoint_minutes=0", "--set", "stationarity_every=1")


@dataclasses.dataclass(frozen=True)
class Ground:
    """A finished run of 6 epochs with the checkpoints of 4 and 6, the same of 8 epochs, and their data."""

    data: Path
    run: Path
    longer: Path


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Ground:
    path = tmp_path_factory.mktemp("options")
    data = write_samples(path / "samples.npz")
    options = (
        "train",
        *TINY,
        "--hidden",
        "3x6",
        "--grow",
        "0:2,3:all",
        "--data",
        data,
        *EVERY,
        "--set",
        "ridge_epochs=6",
    )
    for name, epochs in [("run", "6"), ("longer", "8")]:
        assert pdadmm(*options, "--epochs", epochs, "--out", path / name).code == 0
    return Ground(data, path / "run", path / "longer")


@pytest.fixture
def run(ground: Ground, tmp_path: Path) -> Path:
    """A copy that may be changed."""
    return copied(ground.run, tmp_path / "run")


KEPT = {
    "target": "label",
    "weight": "w",
    "test_fraction": "0.3",
    "split_seed": "1",
    "scaling": "minmax",
    "class_weight": "balanced",
    "activation": "tanh",
    "huber_delta": "2.0",
    "step_size": "one",
    "nu": "0.02",
    "rho": "0.1",
    "nu_output": "0.05",
    "z_prox": "0.2",
    "p_relax": "1.1",
    "w_relax": "1.2",
    "z_relax": "1.1",
    "init_output": "random",
    "fit_output": "off",
    "damping": "0.05",
    "ridge": "0.05",
    "ridge_final": "0.0005",
    "ridge_epochs": "9",
    "ridge_samples": "10",
    "l2": "0.1",
    "init": "paper",
    "output_solver": "fista",
    "output_tolerance": "0.001",
    "output_steps": "40",
    "grow_output": "fresh",
    "messages": "bfloat16",
    "seed": "3",
    "batches": "2",
}
FIXED = {"hidden": "4x6", "loss": "squared", "solver": "linearized", "grow": "off", "dtype": "float64"}
OF_RIVALS = {"learning_rate", "batch_size"}  # kept; tests/test_rivals.py tries them, and "hand-over"
FREE = {
    "data": "copy.npz",
    "init_from": "model.safetensors",
    "workers": "1",
    "shards": "1",
    "placement": "4",
    "timeout": "100",
    "restarts": "1",
    "epochs": "8",
    "tolerance": "1e-9",
    "device": "cpu",
    "threads": "2",
    "storage": "disk",
    "storage_dir": ".",
    "evaluate_every": "2",
    "stationarity_every": "3",
    "checkpoint_every": "5",
    "checkpoint_minutes": "1",
    "tensorboard": "on",
}


def test_every_option_is_tried() -> None:
    """A new option must say what a resumed run may do with it, and be tried here."""
    tried = {"kept": {*KEPT, *OF_RIVALS}, "fixed": {*FIXED}, "free": {*FREE}, "hand-over": {"method"}}
    for field in dataclasses.fields(Config):
        tried[field.metadata["on_resume"]].remove(field.name)
    assert not any(tried.values())


@pytest.mark.parametrize("name", [*KEPT, *FIXED])
def test_an_option_that_changes_what_is_computed_is_refused_with_both_values(name: str, run: Path) -> None:
    before = content_of(run)
    now = {**KEPT, **FIXED}[name]
    old = saved_config(run).to_mapping().get(name)
    shown = "not set" if old is None else old
    expected = f"{name} was {shown} and is now {now}"
    change = ("train", "--resume", run, *typed(name, now))
    assert_refused(pdadmm(*change), expected)
    if name in FIXED:
        assert_refused(pdadmm(*change, "--allow-changes"), expected, "start a new run")
    assert content_of(run) == before


DATA_CHANGES = {"test_fraction": "training samples"}
NOT_HERE = ("target", "weight", "batches")  # the first two are for tables, the last for many samples


@pytest.mark.parametrize("name", sorted(set(KEPT) - set(NOT_HERE)))
def test_an_allowed_change_is_noted_and_begins_a_new_certificate(name: str, run: Path, ground: Ground) -> None:
    found = resume(run, *typed(name, KEPT[name]), "--allow-changes", "--epochs", "8")
    if name in DATA_CHANGES:
        assert found.code == 2
        assert DATA_CHANGES[name] in found.err
        return
    assert found.json()["resumed_from"] == 6
    assert f"note: {name} was " in found.err
    assert f"is now {KEPT[name]}; a new certificate begins" in found.err
    rows = rows_of(run)
    assert [row["epoch"] for row in rows] == list(range(1, 9))
    assert rows[6]["certified"]
    assert rows[:6] == rows_of(ground.run)
    assert saved_config(run) != saved_config(ground.run)


@pytest.mark.parametrize("name", sorted(set(FREE) - {"epochs"}))
def test_a_free_option_leaves_the_trajectory_as_it_was(
    name: str, run: Path, ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(run.parent)
    shutil.copy(ground.data, "copy.npz")
    shutil.copy(ground.run / "model.safetensors", ".")
    found = resume(cut_back(run, run.with_name("cut"), 4), "--epochs", "8", *typed(name, FREE[name]))
    assert found.json()["resumed_from"] == 4
    assert "a new certificate begins" not in found.err
    assert timeless_rows(run.with_name("cut"))[-1] == timeless_rows(ground.longer)[-1]
    model = (run.with_name("cut") / "model.safetensors").read_bytes()
    assert model == (ground.longer / "model.safetensors").read_bytes()


def test_after_an_allowed_change_the_run_goes_on_with_it(run: Path) -> None:
    """The change is the run's own from then on: one more cut and it need not be allowed again."""
    assert resume(run, "--nu", "0.02", "--allow-changes", "--epochs", "12").code == 0
    reference = copied(run, run.with_name("reference"))
    shutil.rmtree(Folder(run).directory(12))
    found = resume(run)
    assert found.code == 0, found.err
    assert "a new certificate begins" not in found.err
    assert_same_run(run, reference)


def test_after_an_allowed_change_the_checkpoint_before_it_is_not_in_the_way(run: Path) -> None:
    """Nobody goes on from it, so it need not fit the options."""
    assert resume(run, "--nu", "0.02", "--allow-changes", "--epochs", "8").code == 0
    assert Folder(run).epochs() == [8, 6]
    found = resume(run, "--epochs", "10")
    assert found.code == 0, found.err


def test_a_loss_with_other_outputs_is_refused_as_a_mistake(run: Path) -> None:
    found = resume(run, "--loss", "squared", "--allow-changes", "--epochs", "8")
    assert found.code == 2, found


def test_more_epochs_extend_a_finished_run(run: Path, ground: Ground) -> None:
    assert resume(run, "--epochs", "8").json()["resumed_from"] == 6
    assert_same_run(run, ground.longer)


@pytest.mark.parametrize("epochs", ["5", "3", "1"])
def test_fewer_epochs_are_refused(epochs: str, run: Path) -> None:
    before = content_of(run)
    found = resume(run, "--epochs", epochs, "--quiet")
    assert_refused(found, epochs)
    assert content_of(run) == before


def test_other_data_is_refused_by_its_numbers_and_not_by_its_name(run: Path, ground: Ground, tmp_path: Path) -> None:
    before = content_of(run)
    other = write_samples(tmp_path / "other.npz", seed=1)
    assert_refused(resume(run, "--data", other, "--quiet"), "the data was", "--allow-changes")
    more = write_samples(tmp_path / "more.npz", count=50)
    assert_refused(resume(run, "--data", more, "--quiet"), "32 training samples; the data now has 40")
    assert_refused(resume(run, "--data", more, "--quiet", "--allow-changes"), "32 training samples")
    assert_refused(resume(run, "--data", tmp_path / "absent.npz", "--quiet"), "absent.npz")
    assert content_of(run) == before
    (tmp_path / "elsewhere").mkdir()
    same = shutil.copy(ground.data, tmp_path / "elsewhere" / "renamed.npz")
    assert resume(run, "--data", same, "--epochs", "8").json()["resumed_from"] == 6
    assert_same_run(run, ground.longer)
    found = resume(run, "--data", other, "--epochs", "10", "--allow-changes")
    assert "the data was" in found.err
    assert found.code == 0


@pytest.mark.parametrize(
    "option", [("--out", "other"), ("--overwrite",), ("--config", "config.toml"), ("--preset", "paper")]
)
def test_options_that_do_not_go_with_resume(option: tuple[str, ...], run: Path) -> None:
    before = content_of(run)
    assert_refused(pdadmm("train", "--resume", run, *option), option[0], "--resume")
    assert content_of(run) == before


def test_allow_changes_is_for_resume(tmp_path: Path) -> None:
    assert_refused(pdadmm("train", "--allow-changes", "--out", tmp_path / "run"), "--allow-changes", "--resume")
    assert not (tmp_path / "run").exists()


def nothing(path: Path) -> None:
    """No directory at all."""


def empty(path: Path) -> None:
    path.mkdir()


def a_file(path: Path) -> None:
    path.touch()


def no_toml(path: Path) -> None:
    path.mkdir()
    (path / "config.toml").write_text("nu = = 3")


@pytest.mark.parametrize("make", [nothing, empty, a_file, no_toml])
def test_a_directory_that_holds_no_run_is_refused_and_left_alone(make: Callable[[Path], None], tmp_path: Path) -> None:
    make(tmp_path / "run")
    before = content_of(tmp_path)
    assert_refused(pdadmm("train", "--resume", tmp_path / "run"), str(tmp_path / "run"))
    assert content_of(tmp_path) == before


# --- runs without a checkpoint, runs that have ended


def without_checkpoints(run: Path) -> None:
    shutil.rmtree(run / "checkpoints")


def test_a_run_that_died_before_its_first_checkpoint_begins_anew(run: Path, ground: Ground) -> None:
    without_checkpoints(run)
    for name in ("model.safetensors", "summary.json"):
        (run / name).unlink()
    assert resume(run).json()["resumed_from"] is None
    assert_same_run(run, ground.run)


def test_a_run_that_ended_without_any_checkpoint_is_not_begun_anew(run: Path) -> None:
    without_checkpoints(run)
    before = content_of(run)
    assert_refused(resume(run, "--quiet", "--epochs", "8"), "no checkpoint to go on from")
    assert content_of(run) == before


def test_a_finished_run_prints_its_summary_and_stays_as_it_is(run: Path) -> None:
    before = content_of(run)
    result = resume(run).json()
    after = content_of(run)
    assert (result["status"], result["epochs"]) == ("completed", 6)
    assert {name for name in before if before[name] != after[name]} <= {"summary.json"}
    assert set(before) == set(after)


def test_a_converged_run_stays_as_it_is(ground: Ground, tmp_path: Path) -> None:
    options = ("train", *TINY, "--data", ground.data, *EVERY, "--epochs", "60", "--set", "tolerance=0.3", "--quiet")
    result = pdadmm(*options, "--json", "--out", tmp_path / "run").json()
    assert result["status"] == "converged"
    before = content_of(tmp_path / "run")
    again = resume(tmp_path / "run").json()
    assert (again["status"], again["epochs"]) == ("converged", result["epochs"])
    after = content_of(tmp_path / "run")
    assert {name for name in before if before[name] != after[name]} <= {"summary.json"}


def test_the_state_that_is_compared_is_all_of_it(ground: Ground) -> None:
    """Else equal states would show little."""
    state = newest_state(ground.run)
    for layer in range(1, 5):
        expected = {"W", "b", "z", "gram_scale"} | ({"p"} if layer > 1 else set()) | ({"q"} if layer < 4 else set())
        assert expected <= {name.split()[1] for name in state if name.startswith(f"layer-{layer:03d}")}
    assert all(bool(torch.isfinite(tensor).all()) for tensor in state.values())
