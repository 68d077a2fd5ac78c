"""The report as a file: what it finds, says and must not contain. tests/test_report_browser.py opens it."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from commands import rows_of, strict_json
from pdadmm.cli.main import main
from pdadmm.config import Config
from pdadmm.errors import UserError
from pdadmm.report import write_report
from pdadmm.report.labels import given, labels
from pdadmm.report.proof import certificate_words, theory_of
from pdadmm.report.runs import FoundRun, read_run
from reports import EPOCHS, make_runs
from resume_cases import within

pytest.importorskip("altair", reason="the extra `report` is not installed")
MEGABYTE = 10**6


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_runs(tmp_path_factory.mktemp("report"))


@pytest.fixture
def copied(runs: Path, tmp_path: Path) -> Path:
    """Runs that a test may spoil."""
    return Path(shutil.copytree(runs, tmp_path / "runs"))


class _Page(HTMLParser):
    """Elements, and the text that a reader sees."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words, self._raw = "", False
        self.feed(source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._raw = tag in ("script", "style")

    def handle_endtag(self, tag: str) -> None:
        self._raw = False

    def handle_data(self, data: str) -> None:
        self.words += "" if self._raw else data


def page(path: Path) -> tuple[_Page, list[dict[str, Any]]]:
    """The page, and the data of its charts."""
    source = path.read_text(encoding="utf-8")
    found = re.search(r'<script type="application/json" id="drawings">(.*?)</script>', source, re.DOTALL)
    assert found
    return _Page(source), strict_json(found[1])["data"]


# --- what is found


def test_the_command_says_what_it_found(
    runs: Path, copied: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(runs), "--out", str(tmp_path / "out"), "--json"]) == 0
    found = strict_json(capsys.readouterr().out)
    assert found["report"] == str(tmp_path / "out" / "report.html")
    assert [(Path(run["run"]).name, run["status"], run["epochs"]) for run in found["runs"]] == [
        (name, "completed", EPOCHS) for name in ("adam", "first", "second", "theory")
    ]
    assert found["problems"] == found["experiments"] == []
    assert main(["report", str(copied / "first")]) == 0  # without --out it is written into the folder
    assert capsys.readouterr().out == f"{copied / 'first' / 'report.html'}: 1 run\n"
    assert main(["inspect", str(copied / "first")]) == 0  # a report is no damage


def test_mistakes_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"must be a directory; got"):
        write_report(tmp_path / "nowhere")
    with pytest.raises(UserError, match=r"no run is at or below"):
        write_report(tmp_path)
    monkeypatch.setitem(sys.modules, "pdadmm.report.page", None)
    with pytest.raises(UserError, match=r"pip install 'pdadmm\[report\]'"):
        write_report(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_run_under_way_and_one_that_died_are_shown(copied: Path) -> None:
    for name in ("first", "second"):
        (copied / name / "summary.json").unlink()
        (copied / name / ".lock").touch()
    history = copied / "first" / "history.jsonl"
    history.write_bytes(history.read_bytes()[:-20])  # the last line is being written
    with (copied / "first" / ".lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        report = write_report(copied)
    status = {run.name: (run.status, len(run.rows)) for run in report.runs}
    assert status["first"] == ("running", EPOCHS - 1)
    assert status["second"] == ("killed", EPOCHS)
    assert report.problems == []


def test_damage_is_reported_and_the_rest_is_shown(copied: Path) -> None:
    lines = (copied / "first" / "history.jsonl").read_text().splitlines()
    (copied / "first" / "history.jsonl").write_text("\n".join([*lines[:3], "{", *lines[4:]]) + "\n")
    (copied / "second" / "summary.json").write_text('{"epochs": "many"}')
    (copied / "adam" / "config.toml").write_text("hidden = \n")
    (copied / "theory" / "history.jsonl").write_text("")
    (copied / "result.json").write_text("{}")
    report = write_report(copied)
    found = {run.name: run for run in report.runs}
    assert [row["epoch"] for row in found["first"].rows] == [1, 2, 3, *range(5, EPOCHS + 1)]
    assert "line 4 of" in found["first"].problems[0]
    assert "does not say how the run ended" in found["second"].problems[0]
    assert "not a TOML file" in found["adam"].problems[0]
    assert "result.json" in report.experiments[0].problems[0]
    shown = page(report.path)[0].words
    assert all(problem in shown for problem in report.problems)


def test_pipes_in_place_of_files_are_not_waited_for(copied: Path) -> None:
    for place in ("first/.lock", "first/summary.json", "second/history.jsonl", "adam/config.toml", "result.json"):
        (copied / place).unlink(missing_ok=True)
        os.mkfifo(copied / place)
    with within(60):
        report = write_report(copied)
    assert len(report.problems) == 4  # a lock that nobody holds is none


@pytest.mark.parametrize(
    "spoil",
    [
        {"objective": "high", "residuals": ["x", None], "workers": [[1]]},
        {"objective": 1e400, "seconds": None, "layers": {}, "grown": "two"},
        {"residuals": {}, "workers": {}, "certified": "yes", "handed_over_from": ["<b>"]},
    ],
)
def test_rows_of_the_wrong_kinds_do_no_harm(copied: Path, spoil: dict[str, Any]) -> None:
    path = copied / "first" / "history.jsonl"
    rows = [{**row, **spoil} if row["epoch"] % 2 else row for row in rows_of(copied / "first")]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    summary = {"epochs": 12, "status": "completed", "workers": [1, {}, {"layers": []}], "environment": [], "data": 3}
    (copied / "first" / "summary.json").write_text(json.dumps(summary))
    assert len(write_report(copied).runs) == 4


# --- what is said


def test_charts_have_the_numbers_of_the_history(runs: Path, tmp_path: Path) -> None:
    _, data = page(write_report(runs, tmp_path).path)
    shown = {run["run"]: run for run in data[0]["runs"]}
    assert {name: run["label"] for name, run in shown.items()} == {
        "first": "pdadmm",
        "second": "pdadmm",
        "adam": "adam",
    }
    rows = rows_of(runs / "first")
    assert shown["first"]["epoch"] == [row["epoch"] for row in rows]
    for key in ("objective", "test_accuracy", "ridge"):
        assert shown["first"][key] == pytest.approx([row[key] for row in rows], rel=1e-5)
    assert shown["first"]["seconds"][-1] == pytest.approx(sum(row["seconds"] for row in rows), rel=1e-5)
    assert data[0]["marks"] == [{"epoch": 5, "text": "2 → 4 layers"}]
    assert shown["adam"]["residual"] == []
    cells = next(entry["cells"] for entry in data if "cells" in entry)
    assert cells[1]["residual"] == pytest.approx([row["residuals"][1] for row in rows], rel=1e-5)
    assert cells[2]["epoch"] == list(range(5, EPOCHS + 1))


MANY: dict[str, Any] = {"nu": 0.5, "damping": 0.1, "l2": 0.1, "init": "paper"}


def found(name: str, **options: Any) -> FoundRun:
    return FoundRun(Path(name), name, Config(**options).resolved())


def test_a_label_says_what_was_chosen_and_not_what_follows_from_it() -> None:
    plain, other, wide = found("a"), found("b", nu=0.5, seed=3), found("c", hidden=(8, 8), workers=2)
    assert labels([plain, other, wide]) == ["pdadmm", "pdadmm, nu 0.5", "pdadmm, 2x8, workers 2"]
    assert labels([plain, found("d", **MANY), found("e", **MANY, seed=1)])[1:] == ["pdadmm, d", "pdadmm, d"]
    assert labels([plain, found("f", data="mnist", nu=0.5)]) == ["pdadmm", "pdadmm"]  # alone on its data set


def test_certificate_and_theory_in_words(runs: Path, tmp_path: Path) -> None:
    single, double = (read_run(runs / name, runs) for name in ("first", "theory"))
    assert "proves little" in certificate_words(single)
    assert "a failure is a defect" in certificate_words(double)
    double.rows[4]["certified"] = False
    assert "It did not in epoch 5." in certificate_words(double)
    assert certificate_words(read_run(runs / "adam", runs)) == ""
    theory = theory_of(double)
    assert theory is not None
    assert theory.holds
    assert theory.rho_bound == pytest.approx(0.4)
    shown = page(write_report(runs / "theory", tmp_path).path)[0].words
    assert "holds" in shown
    assert f"{rows_of(runs / 'theory')[-1]['c_k']:.5g}" in shown


def test_given_options_are_those_that_differ_from_the_defaults(runs: Path) -> None:
    config = read_run(runs / "theory", runs).config
    assert config is not None
    names = {option.name for option in given(config)}
    assert names >= {"data", "hidden", "solver", "nu", "rho", "dtype", "epochs"}
    assert names.isdisjoint({"z_prox", "seed", "ridge_epochs"})


def test_many_and_long_runs_make_a_small_file(runs: Path, tmp_path: Path) -> None:
    """What is drawn is thinned and keeps its ends; seconds are added up and none is left out."""
    from pdadmm import charts

    rows, config = rows_of(runs / "first"), (runs / "first" / "config.toml").read_text()
    for number, epochs in enumerate([3000, *[100] * 49]):
        run = tmp_path / "runs" / str(number)
        run.mkdir(parents=True)
        many = [{**rows[-1], "epoch": i, "objective": 1 / i, "residuals": [i / 3] * 9} for i in range(1, epochs + 1)]
        (run / "history.jsonl").write_text("".join(json.dumps(row) + "\n" for row in many))
        (run / "config.toml").write_text(config.replace("seed = 0", f"seed = {number}"))
    report = write_report(tmp_path / "runs")
    assert report.path.stat().st_size < 3 * MEGABYTE
    drawn = {run["run"]: run["epoch"] for run in page(report.path)[1][0]["runs"]}
    assert (drawn["0"][0], drawn["0"][-1]) == (1, 3000)
    assert len(drawn["0"]) <= charts.POINTS
    rows = [{"epoch": i, "workers": [[1.0, i, 0.25], [2.0, 0.0, 0.5]]} for i in range(1, 5001)]
    times = charts.cells(rows, "workers", ["compute", "wait", "send"])
    assert (times[0]["epoch"][0], times[0]["end"][-1]) == (1, 5001)
    assert times[0]["wait"] == times[0]["epoch"]
    assert len(times[0]["wait"]) <= charts.CELLS + 1


# --- what it must not contain

HOSTILE = "x\"'><img src=x onerror=alert(1)>{{ 7*7 }}\u2028\u202e\x1b[2J!--</script><script>alert(2)<"


@pytest.fixture
def hostile(copied: Path) -> Path:
    name = HOSTILE.replace("/", "_")
    run = (copied / "first").rename(copied / name)
    config = (run / "config.toml").read_text()
    config = re.sub(r"^data = .*?  #", lambda _: f"data = {json.dumps(HOSTILE)}  #", config, flags=re.MULTILINE)
    (run / "config.toml").write_text(config)
    rows = rows_of(run)
    rows[3] |= {"handed_over_from": HOSTILE, "method": HOSTILE}
    (run / "history.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    summary = json.loads((run / "summary.json").read_text())
    summary |= {"advice": HOSTILE, "environment": {HOSTILE: HOSTILE}, "status": HOSTILE}
    (run / "summary.json").write_text(json.dumps(summary))
    table = {"title": HOSTILE, "columns": [HOSTILE], "rows": [[HOSTILE]]}
    figure = {"title": HOSTILE, "x": HOSTILE, "y": HOSTILE, "series": [{"name": HOSTILE, "x": [1], "y": [1]}]}
    result = {"experiment": HOSTILE, "title": HOSTILE, "notes": [HOSTILE], "tables": [table], "figures": [figure]}
    (copied / "result.json").write_text(json.dumps(result))
    return copied


def test_names_and_values_cannot_inject_anything(hostile: Path) -> None:
    path = write_report(hostile).path
    shown, data = page(path)
    kinds = [tag for tag, _ in shown.elements]
    assert kinds.count("script") == 2  # the data, and our own
    assert "img" not in kinds
    assert not any(name.startswith("on") or name == "style" for _, attributes in shown.elements for name in attributes)
    assert "onerror=alert(1)>{{ 7*7 }}" in shown.words  # it is shown, as text
    assert not any(mark in path.read_text() for mark in "\u2028\u202e\x1b")
    names = [run["label"] for entry in data for run in entry.get("runs", ())]
    assert any("onerror=alert(1)" in name for name in names)
    assert all(name.isprintable() for name in names)


def test_nothing_points_outside(runs: Path, tmp_path: Path) -> None:
    shown, _ = page(write_report(runs, tmp_path).path)
    for tag, attributes in shown.elements:
        for name in ("src", "href"):
            assert (attributes.get(name) or "#").startswith("#"), (tag, attributes)
    (policy,) = [a["content"] or "" for _, a in shown.elements if a.get("http-equiv") == "Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy


# --- experiments


def test_an_experiment_is_shown(tmp_path: Path) -> None:
    table = {"title": "By epoch", "columns": ["data", "5"], "rows": [["MNIST", 0.94], ["CIFAR-10", None]]}
    curve = {"name": "ours", "x": [1, 2], "y": [0.5, 0.75]}
    values = {
        "experiment": "accuracy",
        "title": "Accuracy",
        "notes": ["one seed"],
        "tables": [table],
        "figures": [{"title": "MNIST", "x": "epoch", "y": "accuracy", "series": [curve]}],
    }
    (tmp_path / "result.json").write_text(json.dumps(values))
    report = write_report(tmp_path)
    assert report.problems == []
    shown, data = page(report.path)
    for text in ("Accuracy", "By epoch", "0.94", "one seed"):
        assert text in shown.words
    assert data[0]["runs"][0]["value"] == [0.5, 0.75]
