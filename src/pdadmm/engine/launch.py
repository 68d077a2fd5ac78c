"""Start the processes of a run on this machine, through torchelastic, and tell how they ended.

Each process is this same program with the same arguments; it finds its rank in the environment, as under torchrun.
torchelastic is imported here and only when a run has more than one process.

When a process is lost, torchelastic ends the others, and the run starts again with all of them, from its last
checkpoint. The loop is ours, because only we can tell a lost process from a mistake that would happen again.
"""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import sys
import tempfile
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pdadmm.errors import LostWorkerError
from pdadmm.machine import usable_cores

_PR_SET_PDEATHSIG = 1
_ATTEMPT = "PDADMM_ATTEMPT"


@dataclass(frozen=True)
class Launch:
    """How the processes of a run are started."""

    arguments: Sequence[str]
    processes: int
    threads: int | None
    timeout: float
    restarts: int
    directory: Path


def launch(run: Launch) -> int:
    """Run `python -m pdadmm ARGUMENTS` in all processes, again if one is lost; returns the run's exit code."""
    from torch.distributed.elastic.multiprocessing.api import SignalException

    _set_environment(run)
    try:
        for attempt in range(run.restarts + 1):
            os.environ[_ATTEMPT] = str(attempt)
            code, event = _start(run)
            if code != LostWorkerError.exit_code:
                break
            print(f"pdadmm: {event}; {_what_now(attempt, run)}", file=sys.stderr, flush=True)
    except SignalException:  # torchelastic's handler stays in place between two attempts
        return 128 + signal.SIGINT
    return code


def _what_now(attempt: int, run: Launch) -> str:
    if attempt < run.restarts:
        return f"starting again, from the last checkpoint if there is one (restart {attempt + 1} of {run.restarts})"
    return f"no restart is left (--restarts {run.restarts}); go on with pdadmm train --resume {run.directory}"


def _start(run: Launch) -> tuple[int, str]:
    """One attempt: its exit code and, where a process was lost, which and how."""
    from torch.distributed.elastic.multiprocessing.api import DefaultLogsSpecs
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    _silence()
    with tempfile.TemporaryDirectory(prefix="pdadmm-") as logs:
        config = LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=run.processes,
            run_id=uuid.uuid4().hex,
            rdzv_backend="c10d",
            rdzv_endpoint="localhost:0",
            local_addr="localhost",
            max_restarts=0,
            logs_specs=DefaultLogsSpecs(log_dir=logs),  # torchelastic would leave a folder of its own behind
            # After Ctrl-C or SIGTERM the processes finish an iteration and save; one that hangs is lost by then.
            shutdown_timeout=int(2 * run.timeout) + 60,
        )
        try:
            elastic_launch(config, sys.executable)("-m", "pdadmm", *run.arguments)
        except ChildFailedError as error:
            return _explain(error)
    return 0, ""


def _silence() -> None:
    """torchelastic's reports repeat in many lines what we say in one; each of its loggers has a level of its own."""
    for name in list(logging.root.manager.loggerDict):
        if name.startswith("torch.distributed"):
            logging.getLogger(name).setLevel(logging.CRITICAL)


def _set_environment(run: Launch) -> None:
    cores = max(1, usable_cores() // run.processes)
    os.environ["OMP_NUM_THREADS"] = str(run.threads or cores)
    # Without this, processes of a restarted run dial the addresses of the dead ones.
    os.environ.setdefault("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")
    # All processes are on this machine; its host name may resolve to an address that is not.
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")


def _explain(error: Exception) -> tuple[int, str]:
    """What the processes ended of: one's own reason comes before the loss that the others felt."""
    codes = {rank: int(failure.exitcode) for rank, failure in error.failures.items()}  # type: ignore[attr-defined]
    # torchelastic ends the survivors with SIGTERM, or SIGKILL where they do not hear; whatever else came first.
    own = [code for code in codes.values() if code > 0 and code != LostWorkerError.exit_code]
    if own:
        return own[0], ""
    first = int(error.get_first_failure()[0])  # type: ignore[attr-defined]
    killed = [rank for rank, code in codes.items() if code < 0 and code != -signal.SIGTERM]
    rank = first if codes[first] < 0 or not killed else killed[0]
    if codes[rank] < 0:
        return LostWorkerError.exit_code, f"the process of rank {rank} was killed by {_signal_name(-codes[rank])}"
    return LostWorkerError.exit_code, f"the process of rank {rank} lost touch with another"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"


def restarts() -> int:
    """How often the processes of this run were lost and started again, by our launcher or torchrun's --max-restarts."""
    return sum(int(os.environ.get(name, "0")) for name in (_ATTEMPT, "TORCHELASTIC_RESTART_COUNT"))


def is_launched() -> bool:
    """True in a process that our own launcher started, and will start again."""
    return is_worker() and _ATTEMPT in os.environ


def is_worker() -> bool:
    """True in a process that torchrun or our own launcher started."""
    return all(name in os.environ for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR"))


def own_rank() -> int:
    """This process's rank; 0 where there is only one process."""
    return int(os.environ["RANK"]) if is_worker() else 0


def die_with_launcher() -> None:
    """Ask the system to end this process when the one that started it dies, where the system can (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
