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
from pathlib import Path
from typing import IO

import numpy as np
import torch

from pdadmm.config import Config
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

_JOB_FILE = "job.json"
_CODE = f"import sys; from {__name__} import work; sys.exit(work(sys.argv[1]))"


def train_arrays(
    config: Config,
    data: Dataset,
    patience: Patience | None = None,
    on_row: Callable[[Row], None] = lambda row: None,
    on_note: Callable[[str], None] = lambda note: None,
) -> tuple[Model, list[Row]]:
    """Train on `config.workers` processes; the bits are the same on any number of them."""
    if config.workers == 1:
        threads = torch.get_num_threads()  # a run sets it; the caller's own is put back
        try:
            result = train(config, data, _observer(patience, on_row, on_note))
        finally:
            torch.set_num_threads(threads)
        return result.model, result.history
    check_run(config.resolved(), data, storage_of(config))  # mistakes are found before any process starts
    with private_folder() as folder:
        _write_job(folder, config, data, patience)
        history = _follow(folder, config, on_row, on_note)
        return load_model(folder / MODEL_FILE), history


def _observer(patience: Patience | None, on_row: Callable[[Row], None], on_note: Callable[[str], None]) -> Observer:
    def hear(row: Row) -> None:
        if patience is not None:
            patience.see(row)
        on_row(row)

    return Observer(on_row=hear, on_note=on_note, should_stop=lambda: patience is not None and patience.is_over)


# --- the caller's side


def _write_job(folder: Path, config: Config, data: Dataset, patience: Patience | None) -> None:
    for name, part in (("train", data.train), ("test", data.test)):
        for field, array in vars(part).items() if part else ():
            if array is not None:
                np.save(folder / f"{name}-{field}.npy", array, allow_pickle=False)
    job = {
        "config": config.to_mapping(),
        "name": data.name,
        "feature_names": data.feature_names,
        "patience": dataclasses.asdict(patience) if patience else None,
    }
    (folder / _JOB_FILE).write_text(json.dumps(job), encoding="utf-8")


def _follow(folder: Path, config: Config, on_row: Callable[[Row], None], on_note: Callable[[str], None]) -> list[Row]:
    """Start the workers and pass on what the first one tells until all have ended; raise what one of them ended of."""
    history: list[Row] = []
    (folder / HISTORY_FILE).touch()
    with (folder / HISTORY_FILE).open(encoding="utf-8") as file:
        unread = ""

        def read_on(_: object = None) -> None:
            nonlocal unread
            unread += file.read()
            *lines, unread = unread.split("\n")
            for news in map(json.loads, lines):
                if isinstance(news, str):
                    on_note(news)
                else:
                    history.append(news)
                    on_row(news)

        def output(rank: int) -> IO[bytes]:
            return (folder / f"output-{rank}").open("wb")

        command, config = ("-c", _CODE, str(folder)), dataclasses.replace(config, threads=config.threads or 1)
        with Workers(command, config, folder, output=output) as workers:
            outcome = workers.wait(read_on)
        read_on()
    if outcome.code:
        raise _reason(folder, outcome)
    return history


def _reason(folder: Path, outcome: Outcome) -> PdadmmError:
    """Why the workers ended, in the words of the one that ended first."""
    if (path := folder / f"error-{outcome.rank}.json").exists() and outcome.code != LostWorkerError.exit_code:
        return PdadmmError.from_json(path.read_text(encoding="utf-8"))
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
        (folder / f"error-{rank}.json").write_text(error.to_json(), encoding="utf-8")
        # Connections to processes that are ending too cannot be taken down in order; trying would abort.
        os._exit(error.exit_code)
    except Exception:
        traceback.print_exc()  # into the file of this worker's output
        os._exit(1)
    return 0


def _train_job(folder: Path, rank: int) -> None:
    from pdadmm.engine.comm import DistributedWorld

    job = json.loads((folder / _JOB_FILE).read_text(encoding="utf-8"))
    config = Config.from_mapping(job["config"])
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
    paths = folder.glob(f"{part}-*.npy")
    found = {path.stem.removeprefix(f"{part}-"): np.load(path, mmap_mode="r") for path in paths}
    return Part(**found) if found else None
