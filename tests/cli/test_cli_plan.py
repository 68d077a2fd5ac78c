"""`pdadmm plan`, and the help that comes before everything."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from commands import Command, assert_refused
from pdadmm.config import Config
from pdadmm.machine import available_memory
from pdadmm.plan import Shape, plan_memory
from pdadmm.version import __version__
from problems import ALL_SOLVERS, make_engine, make_problem, solver_id

TERMS = ["auxiliaries", "data", "weights", "work", "checkpoint", "program", "total"]
SHAPE = ("--samples", "1000", "--features", "20", "--classes", "3")


def test_plan_of_named_data(pdadmm: Command, tmp_path: Path) -> None:
    result = pdadmm("plan", "--hidden", "2x8")
    assert result.code == 0
    assert result.out.startswith("1437 samples of 64 features, hidden 2x8, 10 outputs\n")
    assert [line.split()[0] for line in result.out.splitlines()[1:8]] == TERMS
    assert "it fits; an epoch takes about" in result.out
    assert list(tmp_path.iterdir()) == []


def test_plan_as_json(pdadmm: Command, npz: Path) -> None:
    plan = pdadmm("plan", "--data", npz, "--hidden", "2x8", "--json").json()
    sizes = ["samples", "test_samples", "features", "outputs"]
    assert list(plan) == [*sizes, "memory", "available", "placement", "worker_memory", "epoch_seconds"]
    assert plan["placement"] == "3"
    assert plan["epoch_seconds"] > 0
    assert [plan[key] for key in list(plan)[:4]] == [32, 8, 3, 3]
    assert list(plan["memory"]) == [*TERMS, "disk"]
    assert plan["memory"]["disk"] == 0
    assert sum(plan["memory"][term] for term in TERMS[:-1]) == plan["memory"]["total"]


def test_plan_without_data(pdadmm: Command) -> None:
    one = pdadmm("plan", *SHAPE, "--hidden", "4x16", "--json").json()["memory"]
    two = pdadmm("plan", *SHAPE, "--hidden", "8x16", "--dtype", "float64", "--json").json()["memory"]
    # With what the output layer is fitted to.
    assert one["auxiliaries"] == 4 * 1000 * (3 * 64 + 3 + 16)
    assert two["auxiliaries"] == 8 * 1000 * (3 * 128 + 3 + 16)


@pytest.mark.parametrize("options", ALL_SOLVERS, ids=solver_id)
def test_arrays_of_samples_are_planned_to_the_byte(options: dict[str, str]) -> None:
    config = Config(**options, hidden=(30, 50, 40)).resolved()  # type: ignore[arg-type]
    problem = make_problem(config, samples=600, features=25)
    engine = make_engine(config, problem)
    states = [block.state for block in engine.blocks]
    arrays = {id(array): array for s in states for array in (s.p, s.z, s.q, s.a) if array is not None}
    del arrays[id(problem.train.x)]
    planned = plan_memory(config, Shape(600, 0, 25, problem.num_outputs))
    shared = engine._ws._scratch.nbytes + (4 * 600 * 40 if config.fit_output == "on" else 0)
    assert planned.auxiliaries == sum(array.nbytes for array in arrays.values()) + shared
    assert planned.weights == sum(s.W.nbytes + s.b.nbytes for s in states)


def test_plan_of_a_run_on_the_disk(pdadmm: Command, npz: Path, tmp_path: Path) -> None:
    memory, disk = (
        pdadmm("plan", "--data", npz, "--hidden", "2x8", "--storage", storage, "--json").json()
        for storage in ("memory", "disk")
    )
    assert [disk[key] for key in ("samples", "test_samples")] == [memory[key] for key in ("samples", "test_samples")]
    assert disk["memory"]["auxiliaries"] == 0
    arrays, scaled, split = 4 * 32 * (3 * 16 + 3), 4 * 40 * 3, 8 * 40 * 3
    arrays += 4 * 32 * 8  # what the output layer is fitted to
    assert disk["memory"]["disk"] == arrays + scaled + split
    assert list(tmp_path.iterdir()) == [npz]
    shown = pdadmm("plan", *SHAPE, "--hidden", "2x8", "--storage", "disk")
    assert [line.split()[0] for line in shown.out.splitlines()[1:9]] == [*TERMS, "disk"]


def test_a_run_that_would_fit_on_the_disk_is_told_so(pdadmm: Command) -> None:
    free = available_memory()
    assert free is not None
    if shutil.disk_usage(".").free < 2 * free:
        pytest.skip("the disk is hardly larger than the memory")
    samples = 6 * free // (5 * 4 * 3 * 16)  # whose auxiliary arrays alone need more than is free
    shape = ("--samples", str(samples), "--features", "1", "--classes", "2", "--hidden", "2x8")
    in_memory, on_disk = (pdadmm("plan", *shape, "--storage", storage) for storage in ("memory", "disk"))
    assert in_memory.code == 2
    assert "; or --storage disk, which keeps" in in_memory.err
    assert on_disk.code == 0


@pytest.mark.parametrize("hidden", ["1000x100000", "9" * 12])
@pytest.mark.parametrize("command", ["plan", "train"])
def test_what_cannot_fit_is_refused_with_the_numbers(
    pdadmm: Command, npz: Path, tmp_path: Path, command: str, hidden: str
) -> None:
    result = pdadmm(command, "--data", npz, "--hidden", hidden)
    assert result.code == 2
    assert result.err.startswith("pdadmm: error: the run needs ")
    assert result.err.count("\n") == 1
    assert "are free" in result.err
    assert list(tmp_path.iterdir()) == [npz]


@pytest.mark.parametrize(
    ("arguments", "fragments"),
    [
        (("--samples", "5"), ("--features is missing", "--classes")),
        ((*SHAPE, "--samples", "0"), ("--samples must be at least 1; got 0",)),
        ((*SHAPE, "--test-samples", "-1"), ("--test-samples must not be negative; got -1",)),
        (("--samples", "many"), ("--samples: must be a whole number; got 'many'",)),
        ((*SHAPE, "--activation", "swish"), ("activation must be one of relu", "'swish'")),
        ((*SHAPE, "--loss", "hinge"), ("loss must be one of cross_entropy", "'hinge'")),
        ((*SHAPE, "--grow", "often"), ("grow must be off, auto", "'often'")),
        ((*SHAPE, "--device", "cudda"), ("device", "'cudda'")),
    ],
)
def test_plan_refuses(pdadmm: Command, arguments: tuple[str, ...], fragments: tuple[str, ...]) -> None:
    assert_refused(pdadmm("plan", *arguments), *fragments)


# --- help


@pytest.mark.parametrize("command", [(), ("train",), ("evaluate",), ("predict",), ("plan",), ("inspect",)])
def test_help(pdadmm: Command, command: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        pdadmm(*command, "--help")
    assert end.value.code == 0
    assert capsys.readouterr().out.startswith(" ".join(["usage: pdadmm", *command]))


def test_version(pdadmm: Command, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        pdadmm("--version")
    assert end.value.code == 0
    assert capsys.readouterr().out.startswith(f"pdadmm {__version__} (torch ")


@pytest.mark.parametrize(
    ("arguments", "fragments"),
    [
        ((), ("COMMAND", "see pdadmm --help")),
        (("train", "--ephocs", "3"), ("--ephocs 3", "did you mean --epochs?", "see pdadmm train --help")),
        (("data", "fetch", "mnist", "--mirorr=x"), ("did you mean --mirror?", "see pdadmm data fetch --help")),
        (("trian",), ("invalid choice: 'trian'", "did you mean train?", "see pdadmm --help")),
        (("train", "--data", "minst"), ("data must be a known name", "got 'minst' (did you mean mnist?)")),
        (("data", "fetch", "mnits"), ("got 'mnits' (did you mean mnist?)",)),
        (("train", "--hidden", "0x10"), ("hidden must have each width at least once", "'0x10'")),
        (("evaluate", "."), ("no model at model.safetensors",)),
        (("fly",), ("'fly'", "train", "evaluate", "predict", "plan")),
        (("train", "--hiden", "2x8"), ("--hiden",)),
        (("train", "--preset", "papper"), ("--preset", "'papper'", "'paper'", "see pdadmm train --help")),
        (("train", "--rho"), ("--rho", "expected one argument")),
        (("predict", "run"), ("--data",)),
        (("evaluate",), ("RUN",)),
    ],
)
def test_mistaken_flags_end_in_one_line(
    pdadmm: Command, arguments: tuple[str, ...], fragments: tuple[str, ...]
) -> None:
    assert_refused(pdadmm(*arguments), *fragments)
