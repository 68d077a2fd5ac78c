"""Many processes: the same bits as one, errors on all of them, nothing left behind. Every process has a deadline."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import pdadmm
import worker_cases
from commands import assert_refused
from pdadmm.engine.comm import DistributedWorld
from pdadmm.engine.world import World
from pdadmm.errors import LostWorkerError
from processes import assert_gone, processes_of, rank_process
from resume_cases import pdadmm as run_command
from worker_cases import CASES, run_cases

SECONDS = 120
UNEVEN = "30,30,22,22,22,14"  # six hidden layers and the output: seven; widths repeat, so the network can grow


def train(out: Path, *options: str, code: int = 0, json_output: bool = True) -> subprocess.CompletedProcess[str]:
    """`pdadmm train` on uneven layers of digits, 25 epochs."""
    command = [sys.executable, "-m", "pdadmm", "train", "--hidden", UNEVEN, "--epochs", "25", "--quiet"]
    command += ["--json"] if json_output else []
    env = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    found = subprocess.run(
        [*command, "--out", str(out), *options], capture_output=True, text=True, timeout=SECONDS, env=env, check=False
    )
    assert found.returncode == code, found.stderr
    return found


def history(out: Path) -> list[dict[str, object]]:
    rows = [json.loads(line) for line in (out / "history.jsonl").read_text().splitlines()]
    return [{key: value for key, value in row.items() if key not in ("seconds", "workers")} for row in rows]


@pytest.fixture(scope="module")
def serial(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every case in one process."""
    out = tmp_path_factory.mktemp("serial")
    run_cases(World(), out, threads=1)
    return out


SOME = ["exact-relu", "one-step-hardtanh", "backtracking-relu"]
"""Cases for meshes that the machine has too few cores for."""


@pytest.mark.parametrize(
    ("workers", "shards", "cases"),
    [
        (2, 1, CASES),
        pytest.param(3, 1, CASES, marks=pytest.mark.slow),  # seven have workers in the middle too
        (7, 1, SOME),
        (1, 2, CASES),
        pytest.param(1, 4, SOME, marks=pytest.mark.slow),  # four processes of two cores; two shards have the same code
    ],
)
def test_workers_and_shards_give_the_bits_of_one_process(
    workers: int, shards: int, cases: list[str], serial: Path, tmp_path: Path
) -> None:
    """An uneven network of seven layers, each solver, two activations, growth: W, b, p, z, q, and every row."""
    run_distributed(workers, shards, tmp_path, cases)
    for case in cases:
        whole, compared = load_file(serial / f"{case}.0.0"), 0
        for path in sorted(tmp_path.glob(f"{case}.*")):
            part = load_file(path)
            first = int(part.pop("first row"))
            for name, tensor in part.items():
                expected = whole[name][first : first + len(tensor)] if name[0] in "pzq" else whole[name]
                assert torch.equal(tensor, expected), (path.name, name)
                compared += name != "history"
        assert compared == (7 * 5 - 1) * shards
    assert_gone(str(tmp_path))


@pytest.mark.slow
def test_three_shards_agree_within_rounding(serial: Path, tmp_path: Path) -> None:
    run_distributed(1, 3, tmp_path, SOME)
    for case in SOME:
        one, three = load_file(serial / f"{case}.0.0"), load_file(tmp_path / f"{case}.0.0")
        for name, tensor in one.items():
            if name.startswith("W"):
                assert float((tensor - three[name]).norm() / tensor.norm()) < 1e-2, (case, name)


def run_distributed(workers: int, shards: int, out: Path, cases: list[str]) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr", "localhost"]
    command += ["--nproc-per-node", str(workers * shards), worker_cases.__file__, str(workers), str(shards), str(out)]
    command += cases
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    subprocess.run(command, check=True, timeout=SECONDS, env=environment, stderr=subprocess.DEVNULL)


def test_messages_of_lower_precision(tmp_path: Path) -> None:
    """Fewer bytes, as on paper, for an objective a little off; the solvers that carry a keep it in step with p.

    Per boundary and iteration p goes to the left and m to the right, each once: 2 N n items, and the reports.
    """
    options = ["--workers", "2", "--grow", "off", "--set", "placement=3,4", "--hidden", "30,30,40,30,30,14"]
    exact = json.loads(train(tmp_path / "exact", *options).stdout)
    assert [worker["bytes_sent"] for worker in exact["workers"]] == [1437 * 40 * 4 * 25] * 2
    assert [worker["layers"] for worker in exact["workers"]] == [[1, 2, 3], [4, 5, 6, 7]]
    rounded = json.loads(train(tmp_path / "rounded", *options, "--set", "messages=bfloat16").stdout)
    assert rounded["workers"][0]["bytes_sent"] == 1437 * 40 * 2 * 25
    assert rounded["objective"] == pytest.approx(exact["objective"], rel=0.02)
    assert rounded["objective"] != exact["objective"]


def test_mistakes_are_found_before_any_process_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess.Popen, "__init__", None)  # by which they are started
    for options, found in (
        (["--workers", "8"], "layers, which are 7; got 8"),
        (["--shards", "2000"], "got 2000"),
        (["--workers", "2", "--set", "placement=3,3"], "placement"),
    ):
        out = tmp_path / "run"
        assert_refused(run_command("train", "--hidden", UNEVEN, "--quiet", "--out", out, *options), found)
        assert not out.exists()


def worker_environment(rank: int, size: int, port: int) -> dict[str, str]:
    return {
        **os.environ,
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(size),
        "LOCAL_WORLD_SIZE": str(size),
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": str(port),
        "GLOO_SOCKET_IFNAME": "lo",
    }


def start_ranks(port: int, out: Path, options: list[list[str]]) -> list[subprocess.Popen[str]]:
    """One process a rank, each with options of its own, as several torchrun agents would start them."""
    base = [sys.executable, "-m", "pdadmm", "train", "--hidden", UNEVEN, "--epochs", "5", "--quiet"]
    return [
        subprocess.Popen(
            [*base, "--out", str(out), *own],
            env=worker_environment(rank, len(options), port),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank, own in enumerate(options)
    ]


def free_port() -> int:
    import socket

    with socket.socket() as listener:
        listener.bind(("localhost", 0))
        return int(listener.getsockname()[1])


@pytest.mark.parametrize(
    ("difference", "named"),
    [(["--nu", "0.5"], "configuration"), (["--set", "split_seed=3", "--test-fraction", "0.3"], "")],
)
def test_programs_that_differ_end_on_all_ranks(difference: list[str], named: str, tmp_path: Path) -> None:
    same = ["--workers", "3", "--timeout", "20"]
    ranks = start_ranks(free_port(), tmp_path / "run", [same, same, [*same, *difference]])
    ends = [process.communicate(timeout=SECONDS) for process in ranks]
    assert [process.returncode for process in ranks] == [2, 2, 2], ends
    assert "on rank 2" in ends[0][1]
    assert "on rank 0" in ends[0][1]
    assert named in ends[0][1]


def test_another_version_on_one_rank_is_named(tmp_path: Path) -> None:
    """Rank 1 runs a copy of the package that says it is another version."""
    source = Path(pdadmm.__file__).parent
    shutil.copytree(source, tmp_path / "other" / "pdadmm", ignore=shutil.ignore_patterns("__pycache__"))
    version = tmp_path / "other" / "pdadmm" / "version.py"
    version.write_text(version.read_text().replace(pdadmm.__version__, "99.0"))
    port = free_port()
    command = [sys.executable, "-m", "pdadmm", "train", "--hidden", "2x8", "--epochs", "3", "--workers", "2"]
    ranks = []
    for rank in range(2):
        environment = worker_environment(rank, 2, port)
        if rank == 1:
            environment["PYTHONPATH"] = str(tmp_path / "other")
        ranks.append(
            subprocess.Popen(
                [*command, "--quiet", "--timeout", "20", "--out", str(tmp_path / "run")],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    ends = [process.communicate(timeout=SECONDS) for process in ranks]
    assert [process.returncode for process in ranks] == [2, 2], ends
    assert f"version is '99.0' on rank 1, '{pdadmm.__version__}' on rank 0" in ends[0][1]


@pytest.mark.slow
def test_the_report_names_the_worker_that_computed_longest(tmp_path: Path) -> None:
    """The line follows from the times in the summary, whatever those are on a busy machine."""
    out = train(
        tmp_path / "run", "--workers", "3", "--set", "placement=1,5,1", "--grow", "off", json_output=False
    ).stdout
    workers = json.loads((tmp_path / "run" / "summary.json").read_text())["workers"]
    slowest = max(workers, key=lambda worker: worker["compute_seconds"])
    first, last = slowest["layers"][0], slowest["layers"][-1]
    assert f"the others wait for worker {slowest['stage']} (layers {first} to {last}); " in out


def test_every_row_says_how_each_process_spent_its_iteration(tmp_path: Path) -> None:
    train(tmp_path / "run", "--workers", "2", "--shards", "2")
    rows = [json.loads(line) for line in (tmp_path / "run" / "history.jsonl").read_text().splitlines()]
    workers = json.loads((tmp_path / "run" / "summary.json").read_text())["workers"]
    for number, worker in enumerate(workers):
        for place, name in enumerate(("compute", "wait", "send")):
            times = [row["workers"][number][place] for row in rows]
            assert min(times) >= 0
            assert sum(times) == pytest.approx(worker[f"{name}_seconds"])
    for row in rows:
        assert len(row["workers"]) == 4
        assert sum(row["workers"][0]) <= row["seconds"]  # the process that measured both
        assert all(compute > 0 for compute, _, _ in row["workers"])


@pytest.mark.slow
@pytest.mark.parametrize("slowed", [1, 2])
def test_a_slowed_worker_is_the_one_that_everyone_waits_for(slowed: int, tmp_path: Path) -> None:
    """One of two equal workers is stopped nine tenths of the time; nothing else runs beside it."""
    out = tmp_path / "slow"
    command = [
        sys.executable,
        "-m",
        "pdadmm",
        "train",
        "--hidden",
        "6x60",
        "--epochs",
        "60",
        "--quiet",
        "--grow",
        "off",
    ]
    launcher = subprocess.Popen(
        [*command, "--workers", "2", "--out", str(out)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        deadline = time.monotonic() + SECONDS
        while not (out / "history.jsonl").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        process = rank_process(str(out), slowed - 1)
        while launcher.poll() is None and time.monotonic() < deadline:
            os.kill(process, signal.SIGSTOP)
            time.sleep(0.045)
            os.kill(process, signal.SIGCONT)
            time.sleep(0.005)
    except ProcessLookupError:
        pass
    finally:
        output, errors = launcher.communicate(timeout=SECONDS)
    assert launcher.returncode == 0, errors
    assert f"the others wait for worker {slowed}" in output


def test_other_data_on_one_rank_is_named(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    paths = []
    for count in (100, 90):
        paths.append(tmp_path / f"{count}" / "data.npz")
        paths[-1].parent.mkdir()
        np.savez(paths[-1], X=rng.normal(size=(count, 4)), y=rng.integers(2, size=count))
    ranks = []
    port = free_port()
    base = [sys.executable, "-m", "pdadmm", "train", "--hidden", "3x8", "--epochs", "3", "--quiet", "--workers", "2"]
    for rank, path in enumerate(paths):
        ranks.append(
            subprocess.Popen(
                [*base, "--data", "data.npz", "--out", str(tmp_path / "run"), "--timeout", "20"],
                env=worker_environment(rank, 2, port),
                cwd=path.parent,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    ends = [process.communicate(timeout=SECONDS) for process in ranks]
    assert [process.returncode for process in ranks] == [2, 2], ends
    assert "shape of the data" in ends[0][1]


@pytest.mark.parametrize("victim", ["worker", "launcher"])
def test_a_death_ends_the_run_and_leaves_nothing(victim: str, tmp_path: Path) -> None:
    out = tmp_path / "run"
    command = [sys.executable, "-m", "pdadmm", "train", "--hidden", UNEVEN, "--epochs", "100000", "--quiet"]
    launcher = subprocess.Popen(
        [*command, "--workers", "3", "--restarts", "0", "--out", str(out)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        deadline = time.monotonic() + SECONDS
        while not (out / "history.jsonl").exists() and time.monotonic() < deadline:
            time.sleep(0.1)
        workers = [pid for pid in processes_of(str(out)) if pid != launcher.pid]
        assert len(workers) == 3
        os.kill(workers[1] if victim == "worker" else launcher.pid, signal.SIGKILL)
        _, errors = launcher.communicate(timeout=SECONDS)
        if victim == "worker":
            assert launcher.returncode == 5
            assert "killed by SIGKILL" in errors or "lost another process" in errors
        assert_gone(str(out))
    finally:
        launcher.kill()


def test_a_process_that_says_nothing_is_given_up_after_the_timeout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "PDADMM_MEETING": str(tmp_path / "meeting")}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(LostWorkerError, match="meeting the other processes: it did not answer in time"):
        DistributedWorld(2, 1, timeout=0.5)


@pytest.mark.slow
def test_a_hang_ends_by_the_deadline(tmp_path: Path) -> None:
    """A worker that is stopped says nothing; the others give up after --timeout, and it is ended too."""
    out = tmp_path / "run"
    command = [sys.executable, "-m", "pdadmm", "train", "--hidden", UNEVEN, "--epochs", "100000", "--quiet"]
    launcher = subprocess.Popen(
        [*command, "--workers", "3", "--timeout", "5", "--restarts", "0", "--out", str(out)],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        deadline = time.monotonic() + SECONDS
        while not (out / "history.jsonl").exists() and time.monotonic() < deadline:
            time.sleep(0.1)
        os.kill(rank_process(str(out), 1), signal.SIGSTOP)
        _, errors = launcher.communicate(timeout=SECONDS)
        assert launcher.returncode == 5, errors
        assert "did not answer in time" in errors
        assert_gone(str(out))
    finally:
        launcher.kill()


def test_an_interrupt_finishes_the_iteration_on_all_workers(tmp_path: Path) -> None:
    out = tmp_path / "run"
    command = [sys.executable, "-m", "pdadmm", "train", "--hidden", UNEVEN, "--epochs", "100000", "--quiet"]
    launcher = subprocess.Popen(
        [*command, "--workers", "2", "--out", str(out)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        deadline = time.monotonic() + SECONDS
        while not (out / "history.jsonl").exists() and time.monotonic() < deadline:
            time.sleep(0.1)
        launcher.send_signal(signal.SIGINT)
        _, errors = launcher.communicate(timeout=SECONDS)
        assert launcher.returncode == 130, errors
        assert (out / "model.safetensors").exists()
        assert "test_accuracy" in history(out)[-1]
        assert_gone(str(out))
    finally:
        launcher.kill()
