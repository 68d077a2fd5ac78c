"""The report in a real browser: what its charts tell is what the history holds, on any screen, in light and dark."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from browser import CHROMIUM, Browser
from commands import rows_of
from pdadmm.report import write_report
from reports import make_run_of_two_workers, make_runs

pytest.importorskip("altair", reason="the extra `report` is not installed")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed (apt-get install chromium)")
SHOWN = 1e-3  # four digits
TIP = "#vg-tooltip-element.visible"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_runs(tmp_path_factory.mktemp("browser"))
    make_run_of_two_workers(folder / "workers")
    write_report(folder)
    return folder


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as started:
        yield started


@pytest.fixture
def tab(browser: Browser, runs: Path) -> Iterator[Browser]:
    """The report as it is opened, without a network; what the console says is an error, as is any request."""
    browser.emulate()
    browser.call("Network.emulateNetworkConditions", offline=True, latency=0, downloadThroughput=0, uploadThroughput=0)
    browser.open(runs / "report.html")
    browser.resize(1280)
    yield browser
    assert browser.complaints() == []
    assert browser.requests() == [(runs / "report.html").resolve().as_uri()]


def drawn(tab: Browser, selector: str) -> str:
    """Brings a chart into view and waits for it; the selector."""
    tab.run(f"document.querySelector({json.dumps(selector)}).scrollIntoView({{block: 'center'}})")
    tab.until(f"document.querySelector({json.dumps(selector + ' svg')})?.getBoundingClientRect().width > 100")
    return selector


def tip(tab: Browser) -> dict[str, str]:
    """What the box beside the cursor tells."""
    tab.until(f"document.querySelectorAll('{TIP} tr').length > 0")
    found: dict[str, str] = dict(
        tab.run(
            f"[...document.querySelectorAll('{TIP} tr')].map(r => "
            f"[r.cells[0].textContent.replace(/:? *$/, ''), r.cells[1].textContent])"
        )
    )
    return found


def lines(tab: Browser, chart: str) -> int:
    """How many curves a chart has."""
    found: int = tab.run(f"document.querySelector({json.dumps(chart)}).querySelectorAll('.mark-line path').length")
    return found


def test_the_cursor_shows_the_values_of_the_history(tab: Browser, runs: Path) -> None:
    for by in ("epoch", "seconds"):
        tab.click(f".choice label:has([name=by]){':last-child' if by == 'seconds' else ''}")
        tab.move(*tab.middle(drawn(tab, f".by-{by} .chart")))
        values = tip(tab)
        row = rows_of(runs / values["run"])[int(values["epoch"]) - 1]
        assert float(values["value"]) == pytest.approx(row["objective"], rel=SHOWN)


def test_runs_can_be_switched_off_and_on(tab: Browser) -> None:
    chart = drawn(tab, ".by-epoch .chart")
    before = lines(tab, chart)
    for expected in (before - 1, before):
        tab.click("[data-label=adam]")
        tab.until(f"document.querySelector('{chart}').querySelectorAll('.mark-line path').length === {expected}")


def test_a_link_opens_the_run_in_detail(tab: Browser, runs: Path) -> None:
    number = sorted(["adam", "first", "second", "theory", "workers"]).index("workers")
    drawn(tab, ".by-epoch .chart:last-child")  # what is above moves no more
    tab.click(f"#runs a[href='#run-{number}']")
    tab.until(f"document.querySelector('#run-{number}').checkVisibility()")
    for chart in (1, 2, 3):  # residuals, certificate, times of workers
        tab.run(f"document.querySelectorAll('#run-{number} .chart')[{chart - 1}].id = 'chart-{chart}'")
        drawn(tab, f"#chart-{chart}")
    tab.move(*tab.middle("#chart-3 .mark-rect path"))
    values = tip(tab)
    row = rows_of(runs / "workers")[int(values["epoch"]) - 1]
    told = [float(values[f"{name}, s"]) for name in ("compute", "wait", "send")]
    assert told == pytest.approx(row["workers"][int(values["worker"]) - 1], rel=SHOWN)


def test_tables_are_sorted_by_their_headings(tab: Browser, runs: Path) -> None:
    last = {name: rows_of(runs / name)[-1]["objective"] for name in ("adam", "first", "second", "theory", "workers")}
    for found in (sorted(last, key=lambda name: last[name]), sorted(last, key=lambda name: -last[name])):
        tab.click("#runs th:nth-child(10) button")
        assert tab.run("[...document.querySelectorAll('#runs tbody th')].map(e => e.textContent)") == found


@pytest.mark.parametrize("width", [360, 1280, 1920])
def test_the_page_never_scrolls_sideways(tab: Browser, width: int) -> None:
    tab.resize(width, phone=width < 700)
    for number in range(1, 5):  # the first has no charts
        tab.run(f"document.querySelectorAll('details.run')[{number}].open = true")
        drawn(tab, f"#run-{number} .chart")
        assert tab.run("document.documentElement.scrollWidth") <= width


def test_dark_and_light_follow_the_system_and_the_switch(tab: Browser) -> None:
    def brightness(script: str) -> float:
        return float(np.mean([float(part) for part in re.findall(r"[\d.]+", tab.run(script))[:3]]))

    page = "getComputedStyle(document.body).backgroundColor"
    label = f"getComputedStyle(document.querySelector({json.dumps(drawn(tab, '.by-epoch .chart') + ' text')})).fill"
    for scheme, is_dark in (("dark", True), ("light", False)):
        tab.emulate(prefers_color_scheme=scheme)
        assert (brightness(page) < 60) is is_dark
        assert (brightness(label) > 120) is is_dark
    tab.click("#dark")
    assert brightness(page) < 60
    tab.emulate(media="print", prefers_color_scheme="dark")
    assert brightness(page) > 200  # paper


def test_hostile_names_stay_texts(browser: Browser, runs: Path, tmp_path: Path) -> None:
    name = '"><img src=x onerror="window.hacked=1"><!--<script>window.hacked=1<'
    for folder, run in ((name, "first"), ("other", "adam")):
        (tmp_path / folder).mkdir()
        for file in ("config.toml", "history.jsonl"):
            (tmp_path / folder / file).write_bytes((runs / run / file).read_bytes())
    browser.emulate()
    browser.open(write_report(tmp_path).path)
    browser.click("#seconds")
    browser.move(*browser.middle(drawn(browser, ".by-seconds .chart")))
    tip(browser)
    assert browser.run("window.hacked") is None
    assert browser.run("document.images.length") == 0
    assert name in browser.run("[...document.querySelectorAll('#runs tbody th')].map(e => e.textContent)")
    assert browser.complaints() == []
