"""Has a process of a run signal itself at a chosen place and epoch; `faults.harness` puts this folder on PYTHONPATH.

Python imports this module whenever it starts. Only where a fault is planned for the process's rank does it import
anything of ours, and wrap the function at that place; so the product needs no hook for its tests.

PDADMM_FAULTS is a JSON list of {rank, place, epoch, signal, marker, again}. The marker is a file that is made at the
fault and holds the epoch, so that a fault happens once, unless `again`; its mtime is the time of the fault.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from typing import Any

Fault = dict[str, Any]


def _planned() -> list[Fault]:
    text, rank = os.environ.get("PDADMM_FAULTS"), os.environ.get("RANK")
    faults: list[Fault] = json.loads(text) if text and rank else []
    return [fault for fault in faults if str(fault["rank"]) == rank]


class _Faults:
    """The faults of this process, and the epoch it is in."""

    def __init__(self, faults: list[Fault]) -> None:
        self._faults = [fault for fault in faults if fault["again"] or not os.path.exists(fault["marker"])]  # noqa: PTH110
        self.epoch = 0

    def reach(self, place: str) -> None:
        """The process is at this place now."""
        for fault in self._faults:
            # Checkpoints are written beside the computation, so an epoch may have gone by.
            if fault["place"] == place and self.epoch >= fault["epoch"] and _mark(fault, self.epoch):
                os.kill(os.getpid(), fault["signal"])


def _mark(fault: Fault, epoch: int) -> bool:
    """Write down that the fault happens; False if it has happened before."""
    try:
        handle = os.open(fault["marker"], os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    except FileExistsError:
        return bool(fault["again"])
    os.write(handle, str(epoch).encode())
    os.close(handle)
    return True


def _wrap(owner: Any, name: str, around: Callable[..., Any]) -> None:
    """Call `around(original, ...)` in place of a function or method."""
    original = getattr(owner, name)

    def wrapped(*arguments: Any, **named: Any) -> Any:
        return around(original, *arguments, **named)

    setattr(owner, name, wrapped)


def _install(faults: _Faults) -> None:
    from pdadmm import block, session
    from pdadmm.math import subproblems

    def iterate(original: Any, self: Any, epoch: int) -> Any:
        faults.epoch = epoch
        faults.reach("epoch")
        return original(self, epoch)

    def p_phase(original: Any, self: Any, m: Any, after_chunk: Any = None) -> Any:
        """Where the phase reads m, in its middle: some rows of p are new, others old."""
        tiles = 0

        def m_then(rows: slice, out: Any) -> Any:
            nonlocal tiles
            tiles += 1
            if tiles == 2:
                faults.reach("p")
            return m(rows, out)

        result = original(self, m and m_then, after_chunk)
        faults.reach("p")
        return result

    def before(place: str) -> Callable[..., Any]:
        def around(original: Any, *arguments: Any, **named: Any) -> Any:
            faults.reach(place)
            return original(*arguments, **named)

        return around

    _wrap(session.Session, "iterate", iterate)
    _wrap(block.Block, "p_phase", p_phase)
    _wrap(block.Block, "W_phase", before("W"))
    _wrap(block.HiddenClosing, "step", before("z"))
    _wrap(block.OutputClosing, "step", before("z"))
    _wrap(subproblems, "q_step", before("q"))
    _install_in_exchange(faults)
    _install_in_checkpoint(faults)


def _install_in_exchange(faults: _Faults) -> None:
    from pdadmm.engine import comm

    def send(original: Any, self: Any, chunk: int) -> None:
        """Before a message and, on its way, after it."""
        faults.reach("exchange")
        original(self, chunk)
        if chunk:
            faults.reach("exchange, sent")

    _wrap(comm.ChunkOutbox, "send", send)


def _install_in_checkpoint(faults: _Faults) -> None:
    from pdadmm.checkpoint import files, folder, saver

    def contents(original: Any, tensors: Any, metadata: Any = None) -> Iterator[Any]:
        """Once the header and a tensor are written."""
        for number, part in enumerate(original(tensors, metadata)):
            if number == 2:
                faults.reach("checkpoint file")
            yield part

    def complete(original: Any, self: Any, manifest: Any) -> Any:
        """The files are written and nobody knows yet."""
        faults.reach("checkpoint files")
        return original(self, manifest)

    def sync(original: Any, directory: Any) -> None:
        """Called before and after the rename."""
        original(directory)
        faults.reach("before rename" if directory.name.startswith(".saving") else "after rename")

    def prune(original: Any, self: Any) -> None:
        original(self)
        faults.reach("after prune")

    _wrap(files, "contents", contents)
    _wrap(saver.Saver, "_complete", complete)
    _wrap(folder, "_sync", sync)
    _wrap(folder.Folder, "prune", prune)


if _PLANNED := _planned():
    _install(_Faults(_PLANNED))
