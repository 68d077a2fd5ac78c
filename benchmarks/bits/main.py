"""Do two versions of the source train the same networks, bit for bit?

A fixed set of small runs is trained by each version through the command line, and what came out is compared: all
weights, every objective and every accuracy. A version is a commit of this repository, or the files as they are now.

    python -m benchmarks.bits.main --before HEAD~20

Both versions run in this Python environment, one after the other, on the same machine.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

LIMIT = 600  # seconds of one command
SCORES = re.compile("objective|accuracy|r2|certified|residuals")
Options = Mapping[str, str | int | float]
EXACT: Options = {"hidden": "5x40", "epochs": 24, "threads": 1}
PAPER: Options = {
    "nu": 1e-4,
    "rho": 1e-4,
    "solver": "backtracking",
    "init": "paper",
    "grow": "0:3,6:all",
    "grow_output": "fresh",
}


@dataclass(frozen=True)
class Case:
    """A run by its options; `then`: flags with which it is resumed; `kill`: the row after which a worker is killed."""

    options: Options = field(default_factory=dict)
    then: tuple[str, ...] = ()
    kill: int = 0


def cases(folder: Path) -> dict[str, Case]:
    """The runs, by name; those on tables use the files in `folder`."""
    numbers: Options = {
        "data": str(folder / "numbers.csv"),
        "target": "y",
        "hidden": "2x20",
        "epochs": 12,
        "threads": 1,
    }
    made = {
        "serial": Case(EXACT),
        "two threads": Case({**EXACT, "threads": 2}),
        "two workers": Case({**EXACT, "workers": 2}),
        "three workers": Case({**EXACT, "workers": 3}),
        "two shards": Case({**EXACT, "shards": 2}),
        "grown by one layer": Case({**EXACT, "grow": "1+1@3"}),
        "whole from the start": Case({**EXACT, "grow": "off"}),
        "resumed": Case({**EXACT, "epochs": 9, "ridge_epochs": 12, "grow": "0:2,6:all"}, ("--epochs", "20")),
        "resumed on two workers": Case(
            {**EXACT, "epochs": 9, "ridge_epochs": 12}, ("--epochs", "20", "--workers", "2")
        ),
        "killed": Case({**EXACT, "hidden": "5x150", "workers": 2, "checkpoint_every": 3}, kill=8),
        "linearized": Case({**EXACT, "solver": "linearized"}),
        "linearized, two workers": Case({**EXACT, "solver": "linearized", "workers": 2}),
        "linearized, one step size": Case({**EXACT, "solver": "linearized", "step_size": "one"}),
        "the paper's preset": Case({**EXACT, **PAPER, "grow_output": "fresh"}),
        "float64": Case({**EXACT, "dtype": "float64"}),
        "disk": Case({**EXACT, "storage": "disk"}),
        "tanh and leaky relu": Case({**EXACT, "activation": "tanh,sigmoid,leaky_relu,hardtanh,identity"}),
        "fista": Case({**EXACT, "output_solver": "fista", "epochs": 6}),
        "class weights": Case({**EXACT, "class_weight": "balanced"}),
        "wide, several tiles": Case({"hidden": "2x700", "epochs": 3, "threads": 1}),
        "csv, squared": Case({**numbers, "loss": "squared"}),
        "csv, huber": Case({**numbers, "loss": "huber"}),
        "csv, weights": Case({**numbers, "loss": "squared", "weight": "w"}),
        "csv of classes": Case({"data": str(folder / "classes.csv"), "hidden": "2x20", "epochs": 12, "threads": 1}),
        "parquet": Case({**numbers, "data": str(folder / "numbers.parquet"), "loss": "squared"}),
        "npz, images of bytes": Case({"data": str(folder / "bytes.npz"), "hidden": "2x20", "epochs": 12, "threads": 1}),
    }
    rivals = ("gd", "adadelta", "adagrad", "adam", "dladmm")
    made |= {name: Case({"method": name, "hidden": "3x30", "epochs": 6, "threads": 1}) for name in rivals}
    made["adam, mini-batches"] = Case({"method": "adam", "batch_size": 64, "hidden": "3x30", "epochs": 4, "threads": 1})
    return made


def write_data(folder: Path) -> None:
    """The files that some of the runs read."""
    random = np.random.default_rng(0)
    X = random.normal(size=(700, 6)) * [1, 10, 1e-3, 1e6, 1, 1]
    y, w = X @ random.normal(size=6), random.uniform(0.5, 2, len(X))
    table = np.column_stack([X, y, w])
    names = [*(f"x{column}" for column in range(6)), "y", "w"]
    np.savetxt(folder / "numbers.csv", table, delimiter=",", fmt="%.17g", header=",".join(names), comments="")
    labels = np.array(["low", "middle", "high"])[np.digitize(y, np.quantile(y, [0.3, 0.7]))]
    rows = (",".join([*(f"{value:.6g}" for value in row), label]) for row, label in zip(X, labels, strict=True))
    (folder / "classes.csv").write_text("\n".join([",".join([*names[:6], "size"]), *rows]) + "\n")
    pixels = random.integers(0, 256, size=(600, 8, 8), dtype=np.uint8)
    np.savez(folder / "bytes.npz", X=pixels, y=pixels.reshape(600, -1)[:, :3].argmax(axis=1))
    try:
        import polars
    except ImportError:
        return
    polars.DataFrame(dict(zip(names, table.T, strict=True))).write_parquet(folder / "numbers.parquet")


def train(source: Path, case: Case, out: Path) -> str:
    """Train by the version at `source`; returns a text that two runs share only if all their numbers are the same."""
    options = {"grow": "auto", **case.options}
    if options.get("method", "pdadmm") != "pdadmm" or options.get("solver", "exact") != "exact":
        options = {"grow": "off", **case.options}
    config = out.with_suffix(".toml")
    config.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in options.items()))
    command = [sys.executable, "-m", "pdadmm", "train", "--quiet", "--json"]
    env = {**os.environ, "PYTHONPATH": str(source / "src")}
    run([*command, "--config", str(config), "--out", str(out)], env, out if case.kill else None, case.kill)
    if case.then:
        run([*command, "--resume", str(out), *case.then], env)
    rows = [json.loads(line) for line in (out / "history.jsonl").read_text().splitlines()]
    kept = [{name: value for name, value in row.items() if SCORES.search(name)} for row in rows]
    digest = hashlib.sha256(json.dumps(kept, sort_keys=True).encode())
    for name, array in sorted(load_file(out / "model.safetensors").items()):
        digest.update(name.encode() + str(array.dtype).encode() + array.tobytes())
    return f"{digest.hexdigest()[:12]}, {len(rows)} epochs, objective {rows[-1]['objective']:.6g}"


def run(command: list[str], env: Mapping[str, str], directory: Path | None = None, after: int = 0) -> None:
    """Run a command to its end; kill one of the processes it started once `directory` has so many rows."""
    process = subprocess.Popen(command, env=dict(env), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    end = time.monotonic() + LIMIT
    while directory is not None and process.poll() is None and time.monotonic() < end:
        history = directory / "history.jsonl"
        if history.exists() and history.read_bytes().count(b"\n") >= after:
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            os.kill(int(children[-1]), signal.SIGKILL)
            break
        time.sleep(0.01)
    _, errors = process.communicate(timeout=LIMIT)
    if process.returncode:
        raise RuntimeError(f"exit code {process.returncode}: {' '.join(errors.split())[-300:]}")


@contextmanager
def checked_out(revision: str) -> Iterator[Path]:
    """The files of a commit, in a folder for a while."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", folder, revision], check=True)
        try:
            yield Path(folder)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", folder], check=True)


def attempt(source: Path, case: Case, out: Path) -> str:
    """What a run came to, or why it did not."""
    try:
        return train(source, case, out)
    except (RuntimeError, OSError, subprocess.TimeoutExpired) as error:
        return f"failed: {error}"


def main() -> int:
    """Train all, print a row a run; exit code 1 if one differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", default="HEAD", help="a commit; the files as they are now are compared with it")
    parser.add_argument("--only", default="", metavar="TEXT", help="only runs whose name contains this")
    given = parser.parse_args()
    differing = compared = 0
    with checked_out(given.before) as before, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_data(folder)
        for number, (title, case) in enumerate(cases(folder).items()):
            if given.only not in title:
                continue
            old = attempt(before, case, folder / f"{number}-before")
            new = attempt(Path.cwd(), case, folder / f"{number}-after")
            same = old == new and not old.startswith("failed")
            print(f"{'same  ' if same else 'DIFFER'}  {title}: {new}{'' if same else f' | before: {old}'}", flush=True)
            compared, differing = compared + 1, differing + (not same)
    print(f"{compared} runs, {differing} differ")
    return int(differing > 0)


if __name__ == "__main__":
    sys.exit(main())
