"""Start the processes of a run on this machine, through torchelastic, and tell how they ended.

Each process is this same program with the same arguments; it finds its rank in the environment, as under torchrun.
torchelastic is imported here and only when a run has more than one process.
"""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import sys
import uuid
from collections.abc import Sequence
from typing import Any

from pdadmm.machine import usable_cores

_PR_SET_PDEATHSIG = 1
_SHUTDOWN_SECONDS = 30


def launch(arguments: Sequence[str], processes: int, threads: int | None) -> int:
    """Run `python -m pdadmm ARGUMENTS` in `processes` processes; returns the exit code of the first that failed."""
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    # Its reports repeat in many lines what we say in one.
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)
    _set_environment(processes, threads)
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=processes,
        run_id=uuid.uuid4().hex,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        local_addr="localhost",
        max_restarts=0,
        shutdown_timeout=_SHUTDOWN_SECONDS,
    )
    try:
        elastic_launch(config, sys.executable)("-m", "pdadmm", *arguments)
    except ChildFailedError as error:
        return _explain(error)
    except SignalException:
        return 128 + signal.SIGINT
    return 0


def _set_environment(processes: int, threads: int | None) -> None:
    cores = max(1, usable_cores() // processes)
    os.environ["OMP_NUM_THREADS"] = str(threads or cores)
    # Without this, processes of a restarted run dial the addresses of the dead ones.
    os.environ.setdefault("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")
    # All processes are on this machine; its host name may resolve to an address that is not.
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")


def _explain(error: Exception) -> int:
    """One line where a process was killed; the others have said for themselves what was wrong."""
    failures: dict[int, Any] = error.failures  # type: ignore[attr-defined]
    # torchelastic ends the survivors with SIGTERM; whatever was killed otherwise came first.
    killed = [
        rank for rank, failure in failures.items() if failure.exitcode < 0 and failure.exitcode != -signal.SIGTERM
    ]
    rank = killed[0] if killed else error.get_first_failure()[0]  # type: ignore[attr-defined]
    code = int(failures[rank].exitcode)
    if code < 0:
        name = signal.Signals(-code).name
        print(f"pdadmm: error: the process of rank {rank} was killed by {name}", file=sys.stderr)
        return 5
    return code


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
