"""How many processes and threads a fit may use: `n_jobs`, and what an outer joblib has left of the cores.

Inside a worker of joblib only that worker's share counts, and `n_jobs` divides it: with two outer workers on two
cores each fit runs on one thread, whatever its own `n_jobs`. loky tells its workers their share through
OMP_NUM_THREADS, which torch follows; threads and forked workers are not told, so their share is one core.
"""

from __future__ import annotations

import multiprocessing
import threading

import torch
from joblib import effective_n_jobs
from joblib.parallel import get_active_backend

from pdadmm.machine import usable_cores


def divide(n_jobs: int | None, num_layers: int) -> tuple[int, int]:
    """Processes, at most one a layer, and threads of each; one process keeps torch's own number of threads."""
    share = _share_of_worker()
    processes = min(effective_n_jobs(n_jobs), num_layers)
    if share is not None:
        processes = min(processes, share)
    if processes == 1:
        return 1, torch.get_num_threads() if share is None else share
    return processes, max(1, (share or usable_cores()) // processes)


def _share_of_worker() -> int | None:
    """The cores that a worker of joblib has for itself; None where this is no such worker."""
    backend, _ = get_active_backend()
    if not backend.nesting_level and not multiprocessing.current_process().daemon:
        return None
    is_shared = multiprocessing.current_process().daemon or threading.current_thread() is not threading.main_thread()
    return 1 if is_shared else min(torch.get_num_threads(), usable_cores())
