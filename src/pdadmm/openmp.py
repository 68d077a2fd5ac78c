"""How the threads of the matrix library wait for each other; it must be settled before torch is loaded.

Between two pieces of work a thread spins, so that the next piece starts at once, and sleeps only after a while. On a
machine with other work to do, threads that spin for long take the cores from the very threads they wait for:
`benchmarks/busy` has the figures.
"""

from __future__ import annotations

import os

SPINS = "3000"
"""Rounds of waiting before a thread sleeps; the library's own choice is a hundred times as many."""
_CHOSEN = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")


def settings() -> dict[str, str]:
    """Environment variables for a process that trains; none where the user has chosen."""
    return {} if any(name in os.environ for name in _CHOSEN) else {"GOMP_SPINCOUNT": SPINS}
