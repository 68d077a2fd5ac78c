"""Start the processes of a run on this machine, watch them, and tell how they ended.

Both the command line and the estimators start their workers here. No port of the network is needed: the workers find
one another through a file in a folder that only this user can enter, and gloo's connections between them stay on the
loopback interface. Runs on several hosts are started by torchrun instead.

When a process is lost, the others are ended, because the run cannot go on without it. `launch` then starts all of them
again, from the last checkpoint.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO, Self

from pdadmm import openmp
from pdadmm.config import Config
from pdadmm.errors import LostWorkerError
from pdadmm.machine import usable_cores
from pdadmm.shell import say

GRACE = 5.0
"""Seconds that the other processes have to end by themselves, once one was lost or a second signal came."""

_PR_SET_PDEATHSIG = 1
_LOOK_EVERY = 0.05  # seconds
_FOLDER, _OWNER = "pdadmm-", "owner"
_HALF_MADE = 3600.0  # seconds after which a folder without an owner was left by a start that was killed
_MEETING, _ATTEMPT, _LAUNCHER, _LOCK = "PDADMM_MEETING", "PDADMM_ATTEMPT", "PDADMM_LAUNCHER", "PDADMM_LOCK"
_OF_TORCHRUN = ("LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT")


@dataclass(frozen=True)
class Outcome:
    """How the processes of one attempt ended."""

    code: int
    """The exit code of the run."""
    rank: int = 0
    """The process whose end decided it."""
    event: str = ""
    """Where a process was lost: which, and how."""


class Workers:
    """The processes of one attempt at a run, each with its rank in the environment; a context manager that ends them.

    `lock` is the file by which the run directory is held; the processes keep it open, so that the directory is held
    until the last of them has ended. `output` says where what a rank prints goes, if not where our own output goes.
    """

    def __init__(
        self,
        command: Sequence[str],
        config: Config,
        folder: Path,
        attempt: int = 0,
        lock: int | None = None,
        output: Callable[[int], IO[bytes]] | None = None,
    ) -> None:
        self._command, self._output, self._lock = list(command), output, lock
        self._timeout, self._size = config.timeout, config.workers * config.shards
        self._environment = _environment(self._size, config.threads, folder / f"meeting-{attempt}", attempt, lock)
        self._processes: list[subprocess.Popen[bytes]] = []
        self._ended: dict[int, int] = {}  # exit codes by rank, in the order in which the processes ended
        self._first_failure = 0.0
        self._stopped: dict[int, float] = {}  # since when a rank has been stopped by a signal

    def __enter__(self) -> Self:
        try:
            for rank in range(self._size):
                self._processes.append(self._start(rank))
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start(self, rank: int) -> subprocess.Popen[bytes]:
        with self._output(rank) if self._output else contextlib.nullcontext() as output:
            return subprocess.Popen(
                [sys.executable, "-P", *self._command],  # -P: nothing is imported from the present directory
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=self._environment | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
                pass_fds=() if self._lock is None else (self._lock,),
                start_new_session=True,  # Ctrl-C at a terminal is for the launcher, which passes it on
            )

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait()

    def send(self, number: int) -> None:
        """Send a signal to those that are left."""
        for process in self._processes:
            process.send_signal(number)

    def wait(self, meanwhile: Callable[[Workers], None]) -> Outcome:
        """Wait until all have ended, or one was lost and the others had their time; keep calling `meanwhile`."""
        while (outcome := self._look()) is None:
            meanwhile(self)
            time.sleep(_LOOK_EVERY)
        return outcome

    def _look(self) -> Outcome | None:
        now = time.monotonic()
        for rank, process in enumerate(self._processes):
            if rank not in self._ended and (code := process.poll()) is not None:
                self._ended[rank] = code
                self._stopped.pop(rank, None)
                if code and not self._first_failure:
                    self._first_failure = now
            elif rank not in self._ended and _is_stopped(process.pid):
                self._stopped.setdefault(rank, now)
            else:
                self._stopped.pop(rank, None)
        if len(self._ended) == self._size or (self._first_failure and now - self._first_failure > GRACE):
            return self._outcome()
        if self._stopped and now - min(self._stopped.values()) > self._timeout:
            return self._outcome()
        return None

    def _outcome(self) -> Outcome:
        """A process's own reason to end comes before a loss, and the loss before what the others felt of it."""
        own = [rank for rank, code in self._ended.items() if code > 0 and code != LostWorkerError.exit_code]
        if own:
            return Outcome(self._ended[own[0]], own[0])
        lost = LostWorkerError.exit_code
        # A process that loses another one may abort while it takes its connections down.
        killed = sorted((code == -signal.SIGABRT, rank) for rank, code in self._ended.items() if code < 0)
        if killed:
            rank = killed[0][1]
            name = _signal_name(-self._ended[rank])
            return Outcome(lost, rank, f"the process of rank {rank} was killed by {name}")
        if self._stopped:
            rank = min(self._stopped)
            return Outcome(lost, rank, f"the process of rank {rank} was stopped by a signal and did not go on")
        if len(self._ended) < self._size:
            rank = next(rank for rank in range(self._size) if rank not in self._ended)
            return Outcome(lost, rank, f"the process of rank {rank} did not answer within {self._timeout:g} s")
        for rank, code in self._ended.items():
            if code:
                return Outcome(lost, rank, f"the process of rank {rank} lost touch with another")
        return Outcome(0)


def _environment(processes: int, threads: int | None, meeting: Path, attempt: int, lock: int | None) -> dict[str, str]:
    env = {name: value for name, value in os.environ.items() if name not in _OF_TORCHRUN}
    root = str(Path(__file__).parents[2])  # the caller may have found this package in a way of its own
    env["PYTHONPATH"] = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    env["OMP_NUM_THREADS"] = str(threads or max(1, usable_cores() // processes))
    env |= openmp.settings()
    env["WORLD_SIZE"] = env["LOCAL_WORLD_SIZE"] = str(processes)
    env["GLOO_SOCKET_IFNAME"] = _loopback()
    env |= {_MEETING: str(meeting), _ATTEMPT: str(attempt), _LAUNCHER: str(os.getpid())}
    env.pop(_LOCK, None)
    return env if lock is None else env | {_LOCK: str(lock)}


def _loopback() -> str:
    """The network interface that leads nowhere but to this machine."""
    names = [name for _, name in socket.if_nameindex()]
    return next((name for name in ("lo", "lo0") if name in names), "lo")


def _is_stopped(pid: int) -> bool:
    """Whether a child is stopped, as by SIGSTOP; one that has ended is left to be waited for."""
    try:
        return os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return False


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"


@contextlib.contextmanager
def private_folder() -> Iterator[Path]:
    """A temporary folder that only this user can enter, deleted afterwards; those that killed programs left go too."""
    _sweep(Path(tempfile.gettempdir()))
    folder = Path(tempfile.mkdtemp(prefix=_FOLDER))  # of mode 0700
    with (folder / _OWNER).open("x") as owner:
        fcntl.flock(owner, fcntl.LOCK_EX)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _sweep(place: Path) -> None:
    """Delete private folders of this user whose owner does not live any more."""
    for folder in place.glob(f"{_FOLDER}*"):
        with contextlib.suppress(OSError):  # it is another's, in use, or gone by now
            found = folder.lstat()
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
                continue
            try:
                with (folder / _OWNER).open() as owner:
                    fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except FileNotFoundError:
                if time.time() - found.st_mtime < _HALF_MADE:
                    continue
            shutil.rmtree(folder, ignore_errors=True)


def launch(arguments: Sequence[str], config: Config, directory: Path, lock: int) -> int:
    """Run `python -m pdadmm ARGUMENTS` in all processes, again if one is lost; returns the run's exit code.

    `lock` is the file by which the run directory is held.
    """
    resume = f"go on with pdadmm train --resume {directory}"
    command, restarts = ("-m", "pdadmm", *arguments), config.restarts
    with private_folder() as folder, _PassedOn(config.timeout) as requests:
        for attempt in range(restarts + 1):
            with Workers(command, config, folder, attempt, lock) as workers:
                outcome = workers.wait(requests.pass_on)
            is_lost = outcome.code == LostWorkerError.exit_code
            if requests.number and (is_lost or outcome.code >= 128):
                if is_lost:
                    say(f"pdadmm: stopped before all was saved; {resume}", sys.stderr)
                return 128 + requests.number
            if requests.number or not is_lost:
                break
            now = f"no restart is left (--restarts {restarts}); {resume}"
            if attempt < restarts:
                which = f"restart {attempt + 1} of {restarts}"
                now = f"starting again, from the last checkpoint if there is one ({which})"
            say(f"pdadmm: {outcome.event}; {now}", sys.stderr)
    return outcome.code


class StopRequests:
    """Ctrl-C (SIGINT) and SIGTERM, which ask a run to end: a context manager that hears them in place of the system."""

    def __init__(self) -> None:
        self.number = 0
        """The signal that asked first."""
        self.times = 0

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self.hear) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def hear(self, number: int, frame: FrameType | None) -> None:
        """Called by the system, between any two steps of the program."""
        self.number = self.number or number
        self.times += 1


class _PassedOn(StopRequests):
    """Requests that go on to the processes as SIGTERM: the first to end in order, the second to end at once.

    In order: they finish an iteration and save. Processes that have not ended by then are killed.
    """

    def __init__(self, timeout: float) -> None:
        super().__init__()
        self._passed_on = 0
        self._seconds = 2 * timeout + 60  # an iteration, and what waits for its end
        self._deadline = float("inf")

    def pass_on(self, workers: Workers) -> None:
        """Send on what came since the last call."""
        if self._passed_on < self.times:
            self._passed_on += 1
            seconds = GRACE if self._passed_on > 1 else self._seconds
            self._deadline = min(self._deadline, time.monotonic() + seconds)
            workers.send(signal.SIGTERM)
        if time.monotonic() > self._deadline:
            workers.send(signal.SIGKILL)


# --- a process's own view


def restarts() -> int:
    """How often the processes of this run were lost and started again, by our launcher or torchrun's --max-restarts."""
    return sum(int(os.environ.get(name, "0")) for name in (_ATTEMPT, "TORCHELASTIC_RESTART_COUNT"))


def is_launched() -> bool:
    """True in a process that our own launcher started, and will start again."""
    return is_worker() and _MEETING in os.environ


def is_worker() -> bool:
    """True in a process that torchrun or our own launcher started."""
    return all(name in os.environ for name in ("RANK", "WORLD_SIZE")) and (
        _MEETING in os.environ or "MASTER_ADDR" in os.environ
    )


def own_rank() -> int:
    """This process's rank; 0 where there is only one process."""
    return int(os.environ["RANK"]) if is_worker() else 0


def meeting_file() -> str | None:
    """The file through which the processes that our launcher started find one another; None under torchrun."""
    return os.environ.get(_MEETING)


def inherited_lock() -> int | None:
    """The open file by which our launcher holds the run directory; None where it started no process."""
    return int(os.environ[_LOCK]) if _LOCK in os.environ else None


def die_with_launcher() -> None:
    """Ask the system to end this process when the one that started it dies, where the system can (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.environ.get(_LAUNCHER, str(os.getppid())) != str(os.getppid()):  # it died before the system was asked
        os._exit(LostWorkerError.exit_code)
