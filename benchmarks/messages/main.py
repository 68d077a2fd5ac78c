"""What do messages of half the size gain on a slow link, and what do they cost in accuracy?

Two hosts, which are network namespaces of this machine, joined by a link of limited speed; one worker of one thread on
each. The precisions take turns; the table has medians over the epochs of all rounds but each run's first. Needs root
and iproute2.

    python -m benchmarks.messages.main --rounds 2
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import tempfile
from pathlib import Path

from benchmarks.hosts import limit, run_on_both, two_hosts, unlimit, why_not

PRECISIONS = ("exact", "bfloat16")
LINKS = (1000, 100)  # megabits a second
NETWORKS = ("5x100", "3x500")


def run(names: tuple[str, str], data: str, hidden: str, precision: str, epochs: int) -> tuple[list[float], float]:
    """Seconds of the epochs after the first, and the test accuracy at the last."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        command = ["train", "--data", data, "--hidden", hidden, "--grow", "off", "--epochs", str(epochs), "--quiet"]
        command += [
            "--workers",
            "2",
            "--threads",
            "1",
            "--set",
            f"evaluate_every={epochs}",
            "--set",
            "stationarity_every=0",
        ]
        run_on_both(names, [*command, "--set", f"messages={precision}", "--out", str(out)], timeout=900)
        rows = [json.loads(line) for line in (out / "history.jsonl").read_text().splitlines()]
    return [row["seconds"] for row in rows[1:]], rows[-1]["test_accuracy"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--data", default="mnist")
    given = parser.parse_args()
    if reason := why_not():
        raise SystemExit(reason)
    seconds: dict[tuple[str, int, str], list[float]] = {}
    accuracy: dict[tuple[str, int, str], float] = {}
    with two_hosts() as names:
        for _, hidden, megabits in itertools.product(range(given.rounds), NETWORKS, LINKS):
            limit(names, megabits)
            for precision in PRECISIONS:
                found, score = run(names, given.data, hidden, precision, given.epochs)
                seconds.setdefault((hidden, megabits, precision), []).extend(found)
                accuracy[hidden, megabits, precision] = score
            unlimit(names)
    print(f"## messages, {given.data}, 2 hosts of one thread, {given.epochs} epochs\n")
    print("| hidden | link, Mbit/s | messages | s an epoch | to exact | test accuracy |\n|---|---|---|---|---|---|")
    for (hidden, megabits, precision), found in seconds.items():
        base = statistics.median(seconds[hidden, megabits, "exact"])
        median = statistics.median(found)
        score = accuracy[hidden, megabits, precision]
        print(f"| {hidden} | {megabits} | {precision} | {median:.3f} | {median / base:.3f} | {score:.4f} |")


if __name__ == "__main__":
    main()
