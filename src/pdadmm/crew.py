"""Train data that is in memory, on one process or on several, and come back with the model: for callers in Python.

With `workers` above 1 each worker is a fresh Python process that calls `work`, so it does not matter
whether the caller is a script, a notebook or a thread, and no `__main__` is imported. A temporary folder holds the
data, which the workers map; the first worker writes the rows there as they come and, at the end, the model. However the
call ends, the processes are ended and the folder is deleted; if the caller itself is killed, the system ends them
(Linux), and the next call deletes the folder.
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
import torch

from pdadmm import errors
from pdadmm.config import Config, read_toml, to_toml
from pdadmm.data import Dataset, Part
from pdadmm.engine.launch import Outcome, Workers, die_with_launcher, own_rank, private_folder
from pdadmm.errors import LostWorkerError, PdadmmError
from pdadmm.history import Row
from pdadmm.machine import keep_freed_memory
from pdadmm.model import Model, load_model
from pdadmm.observer import Observer, silent
from pdadmm.patience import Patience
from pdadmm.prepare import check_run, holds_data
from pdadmm.rundir import HISTORY_FILE, MODEL_FILE
from pdadmm.storage import storage_of
from pdadmm.trainer import train, train_in

_ARRAYS = ("X", "y", "weight")
_JOB_FILE, _CONFIG_FILE = "job.json", "config.toml"
_CODE = f"import sys; from {__name__} import work; sys.exit(work(sys.argv[1]))"


@dataclass(frozen=True)
class Trained:
    """What a call comes back with."""

    model: Model
    history: list[Row]


def train_arrays(
    config: Config,
    data: Dataset,
    patience: Patience | None = None,
    on_row: Callable[[Row], None] = lambda row: None,
    on_note: Callable[[str], None] = lambda note: None,
) -> Trained:
    """Train on `config.workers` processes; the bits are the same on any number of them."""
    if config.workers == 1:
        threads = torch.get_num_threads()  # a run sets it; the caller's own is put back
        try:
            result = train(config, data, _observer(patience, on_row, on_note))
        finally:
            torch.set_num_threads(threads)
        return Trained(result.model, result.history)
    check_run(config.resolved(), data, storage_of(config))  # mistakes are found before any process starts
    with private_folder() as folder:
        _write_job(folder, config, data, patience)
        history = _follow(folder, config, on_row, on_note)
        return Trained(load_model(folder / MODEL_FILE), history)


def _observer(patience: Patience | None, on_row: Callable[[Row], None], on_note: Callable[[str], None]) -> Observer:
    def hear(row: Row) -> None:
        if patience is not None:
            patience.see(row)
        on_row(row)

    return Observer(on_row=hear, on_note=on_note, should_stop=lambda: patience is not None and patience.is_over)


# --- the caller's side


def _write_job(folder: Path, config: Config, data: Dataset, patience: Patience | None) -> None:
    for part_name, part in (("train", data.train), ("test", data.test)):
        for name in _ARRAYS:
            array = None if part is None else getattr(part, name)
            if array is not None:
                np.save(_array_path(folder, part_name, name), array, allow_pickle=False)
    (folder / _CONFIG_FILE).write_text(to_toml(config), encoding="utf-8")
    rule = None if patience is None else dataclasses.asdict(patience)
    job = {"name": data.name, "feature_names": data.feature_names, "patience": rule}
    (folder / _JOB_FILE).write_text(json.dumps(job), encoding="utf-8")


def _array_path(folder: Path, part: str, name: str) -> Path:
    return folder / f"{part}-{name}.npy"


def _follow(folder: Path, config: Config, on_row: Callable[[Row], None], on_note: Callable[[str], None]) -> list[Row]:
    """Start the workers and pass on what the first one tells until all have ended; raise what one of them ended of."""
    history: list[Row] = []
    (folder / HISTORY_FILE).touch()
    with (folder / HISTORY_FILE).open(encoding="utf-8") as file:
        unread = ""

        def read_on() -> None:
            nonlocal unread
            unread += file.read()
            *lines, unread = unread.split("\n")
            for told in map(json.loads, lines):
                if isinstance(told, str):
                    on_note(told)
                else:
                    history.append(told)
                    on_row(told)

        def output(rank: int) -> IO[bytes]:
            return (folder / f"output-{rank}").open("wb")

        command = ("-c", _CODE, str(folder))
        threads = config.threads or 1
        with Workers(command, config.workers, threads, config.timeout, folder, output=output) as workers:
            outcome = workers.wait(read_on)
        read_on()
    if outcome.code:
        raise _reason(folder, outcome)
    return history


def _reason(folder: Path, outcome: Outcome) -> PdadmmError:
    """Why the workers ended, in the words of the one that ended first."""
    if (path := folder / f"error-{outcome.rank}.json").exists() and outcome.code != LostWorkerError.exit_code:
        name, message = json.loads(path.read_text(encoding="utf-8"))
        reason: PdadmmError = getattr(errors, name)(message)
        return reason
    output = (folder / f"output-{outcome.rank}").read_text(encoding="utf-8", errors="replace")
    event = outcome.event or f"the process of rank {outcome.rank} ended with code {outcome.code}"
    return LostWorkerError(": ".join([event, *output.strip().splitlines()[-1:]]))


# --- a worker's side


def work(name: str) -> int:
    """Be one worker of a job; returns the exit code."""
    die_with_launcher()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    keep_freed_memory()
    folder, rank = Path(name), own_rank()
    try:
        _train_job(folder, rank)
    except PdadmmError as error:
        told = json.dumps([type(error).__name__, str(error)])
        (folder / f"error-{rank}.json").write_text(told, encoding="utf-8")
        # Connections to processes that are ending too cannot be taken down in order; trying would abort.
        os._exit(error.exit_code)
    except Exception:
        traceback.print_exc()  # into the file of this worker's output
        os._exit(1)
    return 0


def _train_job(folder: Path, rank: int) -> None:
    from pdadmm.engine.comm import DistributedWorld

    config = Config.from_mapping(read_toml(folder / _CONFIG_FILE))
    job = json.loads((folder / _JOB_FILE).read_text(encoding="utf-8"))
    patience = Patience(**job["patience"]) if job["patience"] else None
    world = DistributedWorld(config.workers, 1, config.timeout)
    data, train_part = None, _read_part(folder, "train")
    if holds_data(world) and train_part is not None:
        data = Dataset(job["name"], train_part, _read_part(folder, "test"), tuple(job["feature_names"]))
    with (folder / HISTORY_FILE).open("a", encoding="utf-8") as file:

        def tell(what: object) -> None:
            file.write(json.dumps(what) + "\n")
            file.flush()

        observer = _observer(patience, tell, tell) if rank == 0 else silent()
        result = train_in(world, config, data, observer, storage_of(config))
    if result is not None:
        result.model.save(folder / MODEL_FILE)
    world.close()


def _read_part(folder: Path, part: str) -> Part | None:
    paths = {name: _array_path(folder, part, name) for name in _ARRAYS}
    found = {name: np.load(path, mmap_mode="r") for name, path in paths.items() if path.exists()}
    return Part(found["X"], found["y"], found.get("weight")) if found else None
