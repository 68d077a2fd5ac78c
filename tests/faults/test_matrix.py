"""Every row of the table of faults in docs/recovery.md: brought about, and compared with what the page says.

A run is stopped in epoch 13, when something happens to it, and let go on. Afterwards no process and no temporary file
is left, and the run, resumed if it ended, has the bits of one that nothing happened to.
"""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from faults.harness import TRAIN, Run, checkpoints, fill, finish, kill, pause, pdadmm, same_bits, small_disk
from processes import assert_gone

PAGE = Path(__file__).parents[2] / "docs" / "recovery.md"
TIMEOUT = 8
SPARE = 10  # seconds beyond --timeout within which an attempt ends, as the page says
ROW = re.compile(r"^\| (?P<happens>[^|]+) \| (?P<processes>one|several) \| (?P<then>[^|]+) \| (?P<code>\d+) \|$", re.M)
KILLED = 137
"""What a shell calls the end by SIGKILL."""


def rows() -> dict[tuple[str, str], int]:
    """What happens, to how many processes, and the exit code that the page promises."""
    found = {(row["happens"].strip(), row["processes"]): int(row["code"]) for row in ROW.finditer(PAGE.read_text())}
    assert found
    return found


@dataclass
class Scene:
    """A run that stands still in epoch 13, and where it lives."""

    run: Run
    out: Path
    paused: int
    """The process that is stopped; the last of them."""

    def go_on(self) -> None:
        kill(self.paused, signal.SIGCONT)

    def workers(self) -> list[int]:
        return list(self.run.workers().values())


CASES: dict[tuple[str, str], Callable[[Scene], None]] = {}
QUICK = ("its directory is deleted", "a second run is started in its directory")
Act = Callable[[Scene], None]


def case(happens: str, *processes: str) -> Callable[[Act], Act]:
    def add(act: Act) -> Act:
        CASES.update({(happens, number): act for number in processes})
        return act

    return add


@case("a worker is killed (SIGKILL)", "several")
def _(scene: Scene) -> None:
    kill(scene.workers()[0], signal.SIGKILL)
    scene.go_on()


@case("a worker is stopped (SIGSTOP)", "several")
def _(scene: Scene) -> None:
    """It is stopped already."""


@case("all workers are stopped", "several")
def _(scene: Scene) -> None:
    for pid in scene.workers():
        kill(pid, signal.SIGSTOP)


@case("a worker gets SIGTERM", "several")
def _(scene: Scene) -> None:
    kill(scene.workers()[0], signal.SIGTERM)
    scene.go_on()


@case("it gets SIGTERM", "one", "several")
def _(scene: Scene) -> None:
    kill(scene.run.pid, signal.SIGTERM)
    time.sleep(1)  # until it is passed on
    scene.go_on()


@case("it gets SIGINT (Ctrl-C)", "one", "several")
def _(scene: Scene) -> None:
    kill(scene.run.pid, signal.SIGINT)
    time.sleep(1)
    scene.go_on()


@case("it gets SIGTERM twice while a worker is stopped", "several")
def _(scene: Scene) -> None:
    kill(scene.run.pid, signal.SIGTERM)
    time.sleep(1)
    kill(scene.run.pid, signal.SIGTERM)


@case("the launcher is killed", "several")
def _(scene: Scene) -> None:
    kill(scene.run.pid, signal.SIGKILL)


@case("the launcher is stopped, and continued later", "several")
def _(scene: Scene) -> None:
    kill(scene.run.pid, signal.SIGSTOP)
    scene.go_on()
    deadline = time.monotonic() + 60
    while not (scene.out / "summary.json").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    kill(scene.run.pid, signal.SIGCONT)


@case("launcher and a worker are stopped for longer than --timeout", "several")
def _(scene: Scene) -> None:
    kill(scene.run.pid, signal.SIGSTOP)
    time.sleep(TIMEOUT + 2)
    kill(scene.run.pid, signal.SIGCONT)
    scene.go_on()


@case("launcher and workers are killed", "several")
def _(scene: Scene) -> None:
    for pid in (scene.run.pid, *scene.workers()):
        kill(pid, signal.SIGKILL)


@case("it is killed (SIGKILL)", "one")
def _(scene: Scene) -> None:
    kill(scene.paused, signal.SIGKILL)


@case("its directory is deleted", "one", "several")
def _(scene: Scene) -> None:
    shutil.rmtree(scene.out)
    scene.go_on()


@case("its directory is moved, and another takes its place", "one", "several")
def _(scene: Scene) -> None:
    scene.out.rename(moved(scene.out))
    scene.out.mkdir()
    scene.go_on()


@case("a second run is started in its directory", "one", "several")
def _(scene: Scene) -> None:
    for options in (["--resume", str(scene.out)], ["--out", str(scene.out), "--overwrite"]):
        second = subprocess.run(pdadmm("train", *options), capture_output=True, text=True, timeout=120, check=False)
        assert second.returncode == rows()["a second run is started in its directory", "one"]
        assert "in use by another run" in second.stderr
        assert len(second.stderr.strip().splitlines()) == 1
    scene.go_on()


@case("the disk is full at a checkpoint", "one", "several")
def _(scene: Scene) -> None:
    fill(scene.out.parent, 2**20)
    scene.go_on()


@case("the disk is full at a row", "one", "several")
def _(scene: Scene) -> None:
    fill(scene.out.parent, 0)
    scene.go_on()


@case("the disk becomes read-only", "one", "several")
def _(scene: Scene) -> None:
    disk = str(scene.out.parent)
    subprocess.run(["mount", "--bind", disk, disk], check=True)
    subprocess.run(["mount", "-o", "remount,bind,ro", disk], check=True)
    scene.go_on()


def moved(out: Path) -> Path:
    return out.with_name("moved")


def test_the_page_and_the_cases_agree() -> None:
    assert set(rows()) == set(CASES)


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nothing happens to."""
    out = tmp_path_factory.mktemp("calm") / "run"
    finish(out, pdadmm(*TRAIN, "--out", str(out)))
    return out


@contextmanager
def place_of(happens: str, tmp_path: Path) -> Iterator[Path]:
    """Where the run lives: on a disk of its own, where the disk is what fails."""
    if "disk" not in happens:
        yield tmp_path
        return
    with small_disk(tmp_path / "disk", 32) as disk:
        try:
            yield disk
        finally:
            if "read-only" in happens:
                subprocess.run(["umount", "--lazy", str(disk)], check=True)


@pytest.mark.parametrize(
    ("happens", "processes"),
    [
        pytest.param(*key, marks=[] if key[0] in QUICK and key[1] == "several" else pytest.mark.slow)
        for key in sorted(CASES)
    ],
)
def test_what_happens_ends_as_the_page_says(happens: str, processes: str, tmp_path: Path, calm: Path) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    expected = rows()[happens, processes]
    with place_of(happens, tmp_path) as place:
        out = place / "run"
        workers = 2 if processes == "several" else 1
        command = [*TRAIN, "--workers", str(workers), "--timeout", str(TIMEOUT), "--out", str(out)]
        if workers == 2:
            command += ["--set", "placement=4,3"]
        fault = pause(workers - 1, 13, tmp_path / "pause")
        environment = {"TMPDIR": str(temporary)} | ({"RANK": "0"} if workers == 1 else {})
        with Run(pdadmm(*command), out, [fault], **environment) as run:
            run.until(lambda: fault.happened_in)
            began = time.monotonic()
            CASES[happens, processes](Scene(run, out, run.workers()[workers - 1]))
            assert_gone_within(run, began, happens)
            code = run.wait()
            assert_gone(str(out))
        if "second run" in happens:
            expected = 0  # the code of the row is the second run's
        assert (128 - code if code < 0 else code) == expected, run.errors
        assert "Traceback" not in run.errors
        if expected in (2, 4):
            assert sum("error" in line for _, line in run.lines) == 1, run.errors
        if expected != KILLED:
            assert list(temporary.iterdir()) == []
        check_what_is_left(happens, out, calm, expected, place, temporary)


def assert_gone_within(run: Run, began: float, happens: str) -> None:
    """What was lost is noticed within --timeout and a few seconds."""
    if happens in ("a worker is stopped (SIGSTOP)", "all workers are stopped"):
        run.until(lambda: run.said("starting again"))
        assert time.monotonic() - began < TIMEOUT + SPARE


def check_what_is_left(happens: str, out: Path, calm: Path, code: int, place: Path, temporary: Path) -> None:
    """The bits of the calm run, at once or once it is resumed; what was deleted stays deleted."""
    if "deleted" in happens:
        assert not out.exists()
        return
    if "moved" in happens:
        assert list(out.iterdir()) == []
        out = moved(out)
    if "read-only" in happens:
        subprocess.run(["mount", "-o", "remount,bind,rw", str(place)], check=True)
    (place / "filler").unlink(missing_ok=True)
    if code:
        assert checkpoints(out)
        with Run(pdadmm("train", "--resume", str(out), "--workers", "2", "--quiet"), out, TMPDIR=str(temporary)) as run:
            assert run.wait() == 0, run.errors
        assert list(temporary.iterdir()) == []  # what a killed launcher left is swept away
    assert same_bits(out, calm, 13 if code in (130, 143) else None)
    assert not list(out.glob(".*"))
