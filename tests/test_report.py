"""The report as a file: what it finds, says and must not contain. tests/test_report_browser.py opens it."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import zipfile
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from commands import rows_of, strict_json
from pdadmm.cli.main import main
from pdadmm.config import Config
from pdadmm.errors import UserError
from pdadmm.report import write_report
from pdadmm.report.experiments import markdown_tables
from pdadmm.report.labels import labels
from pdadmm.report.options import commands, options
from pdadmm.report.proof import certificate, theory_of, words
from pdadmm.report.runs import FoundRun, read_run
from pdadmm.report.series import heat_map, timeline
from reports import EPOCHS, make_runs
from resume_cases import within

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


def page(path: Path) -> tuple[_Page, dict[str, Any]]:
    source = path.read_text(encoding="utf-8")
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', source, re.DOTALL)
    assert found
    return _Page(source), strict_json(found[1])


# --- what is found


def test_the_command_says_what_it_found(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(runs), "--out", str(tmp_path / "out"), "--json"]) == 0
    found = strict_json(capsys.readouterr().out)
    assert found["report"] == str(tmp_path / "out" / "report.html")
    assert [(Path(run["run"]).name, run["status"], run["epochs"]) for run in found["runs"]] == [
        (name, "completed", EPOCHS) for name in ("adam", "first", "second", "theory")
    ]
    assert found["problems"] == found["experiments"] == []


def test_without_out_it_is_written_into_the_folder(copied: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(copied / "first")]) == 0
    assert capsys.readouterr().out == f"{copied / 'first' / 'report.html'}: 1 run\n"
    assert (copied / "first" / "report.html").exists()
    assert main(["inspect", str(copied / "first")]) == 0  # a report is no damage


def test_a_folder_without_runs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"must be a directory; got"):
        write_report(tmp_path / "nowhere")
    with pytest.raises(UserError, match=r"no run is at or below"):
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
    spoiled = [*lines[:3], "{", lines[2], "[1]", "null", '{"epoch": true}', *lines[4:]]
    (copied / "first" / "history.jsonl").write_text("\n".join(spoiled) + "\n")
    (copied / "second" / "summary.json").write_text('{"epochs": "many"}')
    (copied / "adam" / "config.toml").write_text("hidden = \n")
    (copied / "theory" / "history.jsonl").write_text("")
    report = write_report(copied)
    found = {run.name: run for run in report.runs}
    assert [row["epoch"] for row in found["first"].rows] == [1, 2, 3, *range(5, EPOCHS + 1)]
    assert "line 4 of" in found["first"].problems[0]
    assert found["first"].problems[-1].startswith("2 more lines of")
    assert "does not say how the run ended" in found["second"].problems[0]
    assert "not a TOML file" in found["adam"].problems[0]
    shown = page(report.path)[0].words
    assert all(problem in shown for problem in report.problems)


def test_pipes_in_place_of_files_are_not_waited_for(copied: Path) -> None:
    for place in ("first/.lock", "first/summary.json", "second/history.jsonl", "adam/config.toml", "experiment.json"):
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
    (copied / "first" / "summary.json").write_text(
        json.dumps(
            {"epochs": 12, "status": "completed", "workers": [1, {}, {"layers": []}], "environment": [], "data": 3}
        )
    )
    assert len(write_report(copied).runs) == 4


# --- what is said


def test_numbers_are_those_of_the_history(runs: Path, tmp_path: Path) -> None:
    _, data = page(write_report(runs, tmp_path).path)
    shown = {run["name"]: run for run in data["runs"]}
    rows = rows_of(runs / "first")
    assert shown["first"]["epoch"] == [row["epoch"] for row in rows]
    for curve, key in {"objective": "objective", "test": "test_accuracy", "drop": "drop", "ridge": "ridge"}.items():
        assert shown["first"]["curves"][curve] == pytest.approx([row[key] for row in rows], rel=1e-5)
    assert shown["first"]["seconds"][-1] == pytest.approx(sum(row["seconds"] for row in rows), rel=1e-5)
    assert shown["first"]["marks"] == [{"epoch": 5, "text": "2 → 4 layers"}]
    heat = shown["first"]["heat"]["values"]
    for column, row in enumerate(rows):
        assert [line[column] for line in heat if line[column] is not None] == pytest.approx(row["residuals"], rel=1e-5)
    assert [line[0] is None for line in heat] == [False, False, True, True]
    assert "residual" not in shown["adam"]["curves"]


def test_runs_that_differ_in_their_seed_share_a_label(runs: Path, tmp_path: Path) -> None:
    _, data = page(write_report(runs, tmp_path).path)
    assert {run["name"]: run["label"] for run in data["runs"]} == {
        "first": "pdadmm exact",
        "second": "pdadmm exact",
        "adam": "adam",
        "theory": "pdadmm linearized",
    }


MANY: dict[str, Any] = {"nu": 0.5, "damping": 0.1, "l2": 0.1, "init": "paper"}


def found(name: str, **given: Any) -> FoundRun:
    return FoundRun(Path(name), name, Config(**given).resolved())


def test_a_label_says_what_was_chosen_and_not_what_follows_from_it() -> None:
    plain, other, wide = found("a"), found("b", nu=0.5, seed=3), found("c", hidden=(8, 8), workers=2)
    assert labels([plain, other, wide]) == ["pdadmm", "pdadmm, nu 0.5", "pdadmm, 2x8, workers 2"]
    many = found("d", **MANY)
    assert labels([plain, many])[1] == "pdadmm, d"
    theirs = [found(f"runs/{data}-authors", data=data, **MANY) for data in ("digits", "mnist")]
    beside = [found("x"), found("y", data="mnist")]
    assert labels([*theirs, *beside]) == ["pdadmm, authors", "pdadmm, authors", "pdadmm", "pdadmm"]
    elsewhere = found("e", data="mnist", nu=0.5)
    assert labels([plain, elsewhere]) == ["pdadmm", "pdadmm"]  # nothing beside it on its data set


def said_of(run: FoundRun) -> str:
    proof = certificate(run)
    return " ".join(words(proof)) if proof else ""


def test_the_certificate_in_words(runs: Path) -> None:
    single, double = (read_run(runs / name, runs) for name in ("first", "theory"))
    assert "proves little" in said_of(single)
    assert "a failure is a defect" in said_of(double)
    assert "It did not" not in said_of(double)
    double.rows[4]["certified"] = False
    assert "It did not in epoch 5." in said_of(double)
    assert certificate(read_run(runs / "adam", runs)) is None


def test_the_theory_is_that_of_the_run(runs: Path, tmp_path: Path) -> None:
    theory = theory_of(read_run(runs / "theory", runs))
    assert theory is not None
    assert theory.holds
    assert theory.rho_bound == pytest.approx(0.4)
    shown = page(write_report(runs / "theory", tmp_path).path)[0].words
    assert "rho = 0.41 is above the bound, 0.4." in shown
    assert f"{rows_of(runs / 'theory')[-1]['c_k']:.5g}" in shown
    assert "rho = 0.003 is not above the bound, 4." in page(write_report(runs / "first", tmp_path).path)[0].words


def test_given_options_stand_out_and_the_flags_run_it_again(runs: Path) -> None:
    run = read_run(runs / "theory", runs)
    assert run.config is not None
    given = {option.name: option.value for option in options(run.config) if option.is_given}
    assert given.keys() >= {"data", "hidden", "solver", "nu", "rho", "dtype", "epochs"}
    assert given.keys().isdisjoint({"z_prox", "seed", "ridge_epochs"})
    flags = dict(commands(run))["the same without its files, by flags"].split()
    names = [flag.removeprefix("--").replace("-", "_") for flag in flags if flag.startswith("--")]
    assert names == list(given)
    values: dict[str, Any] = {"hidden": "4x8", "data": given["data"], "solver": "linearized", "dtype": "float64"}
    values |= {"nu": 0.1, "rho": 0.41, "epochs": EPOCHS, "threads": 1, "checkpoint_minutes": 0.0}
    assert Config.from_mapping(values).resolved() == run.config


def test_long_runs_are_thinned_and_keep_their_ends() -> None:
    run = found("long", hidden=(4, 4), workers=2)
    run.rows = [
        {"epoch": i, "objective": 1 / i, "residuals": [1.0, i / 7], "workers": [[1.0, 0.5, 0.25], [2.0, 0.0, 0.5]]}
        for i in range(1, 5001)
    ]
    heat, times = heat_map(run, 1), timeline(run, 1)
    assert heat is not None
    assert times is not None
    assert heat["epoch"][0] == 1
    assert heat["epoch"][-1] == 5000
    assert len(heat["epoch"]) <= 160
    assert times["epoch"][0][0] == 1
    assert times["epoch"][-1][1] == 5000
    assert sum(part[1] for part in times["times"][0]) == pytest.approx(2500)  # seconds are added up, none is left out


def test_fifty_runs_of_a_hundred_epochs_make_a_small_file(runs: Path, tmp_path: Path) -> None:
    rows, config = rows_of(runs / "first"), (runs / "first" / "config.toml").read_text()
    for number in range(50):
        run = tmp_path / "runs" / str(number)
        run.mkdir(parents=True)
        many = [{**rows[-1], "epoch": i, "objective": 1 / i, "residuals": [i / 3] * 9} for i in range(1, 101)]
        (run / "history.jsonl").write_text("".join(json.dumps(row) + "\n" for row in many))
        (run / "config.toml").write_text(config.replace("seed = 0", f"seed = {number}"))
    assert write_report(tmp_path / "runs").path.stat().st_size < 3 * MEGABYTE


# --- what it must not contain

HOSTILE = "x\"'><img src=x onerror=alert(1)><\u2028!--</script><script>alert(2)<"


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
    experiment = {"name": HOSTILE, "title": HOSTILE, "defects": [HOSTILE], "command": HOSTILE, "figures": ["../first"]}
    (copied / "experiment.json").write_text(json.dumps(experiment))
    (copied / "table.md").write_text(f"## {HOSTILE}\n\n| a |\n|---|\n| {HOSTILE} |\n")
    return copied


def test_names_and_values_cannot_inject_anything(hostile: Path) -> None:
    report = write_report(hostile)
    shown, data = page(report.path)
    kinds = [tag for tag, _ in shown.elements]
    assert kinds.count("script") == 2  # the data, and our own
    assert "img" not in kinds
    assert not any(name.startswith("on") for _, attributes in shown.elements for name in attributes)
    assert not any("style" in attributes for _, attributes in shown.elements)
    assert HOSTILE.replace("/", "_") in {run["name"] for run in data["runs"]}
    assert "onerror=alert(1)" in shown.words  # it is shown, as text


def test_nothing_points_outside(runs: Path, tmp_path: Path) -> None:
    path = write_report(runs, tmp_path).path
    shown, _ = page(path)
    for tag, attributes in shown.elements:
        for name in ("src", "href"):
            assert (attributes.get(name) or "#").startswith(("#", "data:")), (tag, attributes)
    source = path.read_text()
    assert not re.search(r"@import|url\((?!#)", source.replace("url(#${id})", ""))
    (policy,) = [a["content"] or "" for _, a in shown.elements if a.get("http-equiv") == "Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy


def test_the_assets_are_in_the_wheel(tmp_path: Path) -> None:
    builder = pytest.importorskip("hatchling.builders.wheel", reason="hatchling is not installed")
    root = Path(__file__).parent.parent
    (wheel,) = builder.WheelBuilder(str(root)).build(directory=str(tmp_path), versions=["standard"])
    assets = {path.name for path in (root / "src/pdadmm/report/assets").iterdir()}
    names = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("pdadmm/report/assets/")}
    assert {Path(name).name for name in names} == assets
    assert assets >= {"page.html", "report.css", "page.js"}


# --- experiments


def test_an_experiment_is_shown_with_its_defects(tmp_path: Path) -> None:
    folder = tmp_path / "accuracy"
    folder.mkdir()
    values = {"name": "accuracy", "title": "Accuracy", "defects": ["a split is not told"], "notes": ["one seed"]}
    values |= {"command": "pdadmm reproduce accuracy", "figures": ["figure", "missing"]}
    (folder / "experiment.json").write_text(json.dumps(values))
    (folder / "table.md").write_text("# Accuracy\n\n## By epoch\n\n| data | 5 |\n|---|---|\n| MNIST | 0.94 |\n")
    (folder / "figure.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
    report = write_report(tmp_path)
    shown, _ = page(report.path)
    for text in ("Accuracy", "By epoch", "0.94", "a split is not told", "one seed", "pdadmm reproduce accuracy"):
        assert text in shown.words
    (picture,) = [attributes["src"] or "" for tag, attributes in shown.elements if tag == "img"]
    assert picture.startswith("data:image/svg+xml;base64,")
    assert report.problems == [f"{folder} has no figure missing of at most {4 * 2**20} bytes"]


def test_markdown_tables() -> None:
    text = "# T\n\n| a | b \\| c |\n|:--|--:|\n| 1 | |\n\n## Next\n| x |\n|---|\n"
    assert [(table.heading, table.rows) for table in markdown_tables(text)] == [
        ("T", [["a", "b | c"], ["1", ""]]),
        ("Next", [["x"]]),
    ]
