"""The report in a real browser: what it shows is what the history holds, for mouse, finger and keys, on any screen."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from browser import CHROMIUM, Browser
from commands import rows_of
from pdadmm.report import write_report
from reports import EPOCHS, make_run_of_two_workers, make_runs

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed (apt-get install chromium)")
SHOWN = 1e-3  # four digits
PANEL = "#panels .plot"
RUN = "article.run:not([hidden])"


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
    browser.resize(1280)
    browser.call("Network.emulateNetworkConditions", offline=True, latency=0, downloadThroughput=0, uploadThroughput=0)
    browser.open(runs / "report.html")
    browser.run("localStorage.clear()")
    yield browser
    assert browser.complaints() == []
    assert browser.requests() == [(runs / "report.html").resolve().as_uri()]


def panel(tab: Browser, title: str) -> str:
    """Marks the panel of this title; the selector of its plot."""
    found = tab.run(
        f"(() => {{ const f = [...document.querySelectorAll('#panels figure')].find(f => "
        f"f.querySelector('figcaption').textContent === {json.dumps(title)}); "
        f"document.querySelectorAll('[data-test]').forEach(e => e.removeAttribute('data-test')); "
        f"if (f) f.dataset.test = ''; return Boolean(f) }})()"
    )
    assert found, title
    return "[data-test] .plot"


def texts(tab: Browser, selector: str) -> list[str]:
    found: list[str] = tab.run(f"[...document.querySelectorAll({json.dumps(selector)})].map(e => e.textContent)")
    return found


def tip(tab: Browser, plot: str) -> tuple[str, dict[str, float]]:
    """The title of the box and its values by name."""
    tab.until(f"!document.querySelector({json.dumps(plot)}).querySelector('.tip').hidden")
    title, *entries = tab.run(
        f"(() => {{ const t = document.querySelector({json.dumps(plot)}).querySelector('.tip'); "
        f"return [t.firstChild.textContent, ...[...t.querySelectorAll('.entry')].map(e => "
        f"[e.firstChild.textContent, e.querySelector('.value').firstChild.textContent])] }})()"
    )
    return title, {name: float(value.removesuffix(" s")) for name, value in entries}


def mean(runs: Path, key: str, epoch: int) -> float:
    return float(np.mean([rows_of(runs / name)[epoch - 1][key] for name in ("first", "second")]))


def focus(tab: Browser, selector: str) -> None:
    tab.run(f"document.querySelector({json.dumps(selector)}).focus()")


def spoken(tab: Browser, begins: str) -> str:
    tab.until(f"document.getElementById('live').textContent.startsWith({json.dumps(begins)})")
    said: str = tab.run("document.getElementById('live').textContent")
    return said


# --- curves


def test_hovering_shows_the_values_of_the_history(tab: Browser, runs: Path) -> None:
    plot = panel(tab, "Objective, blobs.npz")
    x, y = tab.middle(plot)
    for shift in (-60, 0, 60):
        tab.move(x + shift, y)
        title, values = tip(tab, plot)
        epoch = int(title.removeprefix("epoch "))
        assert values["adam"] == pytest.approx(rows_of(runs / "adam")[epoch - 1]["objective"], rel=SHOWN)
        assert values["pdadmm exact"] == pytest.approx(mean(runs, "objective", epoch), rel=SHOWN)
    tab.move(5, 5)
    tab.until(f"document.querySelector('{plot} .tip').hidden")


def test_a_finger_shows_them_too(tab: Browser, runs: Path) -> None:
    tab.resize(390, phone=True)
    plot = panel(tab, "Test and train accuracy, blobs.npz")
    tab.touch(*tab.middle(plot))
    title, values = tip(tab, plot)
    epoch = int(title.removeprefix("epoch "))
    row = rows_of(runs / "adam")[epoch - 1]
    assert values["adam (test)"] == pytest.approx(row["test_accuracy"], abs=SHOWN)
    assert values["adam (train)"] == pytest.approx(row["train_accuracy"], abs=SHOWN)


def test_keys_move_over_the_epochs_and_are_spoken(tab: Browser, runs: Path) -> None:
    for _ in range(80):
        tab.press("Tab")
        if tab.run("document.activeElement.matches('#panels .plot')"):
            break
    assert tab.run("document.activeElement === document.querySelector('#panels .plot')")
    for _ in range(3):
        tab.press("ArrowRight")
    said = spoken(tab, "epoch 3:")
    numbers = dict(re.findall(r"([a-z ]+?) ([\d.e-]+)(?:,|$)", said.partition(":")[2]))
    assert float(numbers[" adam"]) == pytest.approx(rows_of(runs / "adam")[2]["objective"], rel=SHOWN)
    assert float(numbers[" pdadmm exact"]) == pytest.approx(mean(runs, "objective", 3), rel=SHOWN)
    tab.press("End")
    spoken(tab, f"epoch {EPOCHS}:")
    tab.press("ArrowDown")  # the first curve alone
    tab.until("!document.getElementById('live').textContent.includes('adam')")
    spoken(tab, f"epoch {EPOCHS}: pdadmm exact")
    tab.press("Escape")
    tab.until(f"document.querySelector('{PANEL} .tip').hidden")


def heights(tab: Browser, plot: str, label: str) -> list[float]:
    """Where a curve is, from its first epoch on."""
    d = tab.run(
        f"document.querySelector({json.dumps(f'{plot} .line[data-label={json.dumps(label)}]')}).getAttribute('d')"
    )
    return [float(y) for y in re.findall(r"[ML][\d.]+ ([\d.]+)", d)]


def test_the_switch_turns_log_into_linear(tab: Browser, runs: Path) -> None:
    """The places of a curve are its values, or their logarithms, up to a straight line."""
    plot = panel(tab, "Objective, blobs.npz")
    values = np.array([row["objective"] for row in rows_of(runs / "adam")])
    assert abs(np.corrcoef(np.log(values), heights(tab, plot, "adam"))[0, 1]) > 0.9999
    tab.click("[aria-label=Scale] [data-value=linear]")
    plot = panel(tab, "Objective, blobs.npz")
    means = np.array([mean(runs, "objective", epoch) for epoch in range(1, EPOCHS + 1)])
    found = np.array(heights(tab, plot, "pdadmm exact"))
    assert abs(np.corrcoef(means, found)[0, 1]) > 0.9999
    assert abs(np.corrcoef(np.log(means), found)[0, 1]) < 0.9999
    assert tab.run("document.querySelector('[aria-label=Scale] [data-value=linear]').ariaPressed") == "true"


def test_a_series_can_be_switched_off_and_on(tab: Browser) -> None:
    labels = "[...document.querySelectorAll('#panels .line')].map(e => e.dataset.label)"
    assert "adam" in tab.run(labels)
    tab.click(".legend input[data-label=adam]")
    assert "adam" not in tab.run(labels)
    assert "pdadmm exact" in tab.run(labels)
    focus(tab, ".legend input[data-label=adam]")
    tab.press(" ")
    assert "adam" in tab.run(labels)


def test_each_run_and_seconds(tab: Browser, runs: Path) -> None:
    tab.click("[data-value=each]")
    plot = panel(tab, "Objective, blobs.npz")
    assert {"pdadmm exact: first", "pdadmm exact: second"} <= set(
        tab.run("[...document.querySelectorAll('[data-test] .line')].map(e => e.dataset.label)")
    )
    tab.click("[data-value=seconds]")
    plot = panel(tab, "Objective, blobs.npz")
    focus(tab, plot)
    tab.press("End")
    title, values = tip(tab, plot)
    longest = max(sum(row["seconds"] for row in rows_of(runs / name)) for name in ("first", "second", "adam"))
    assert float(title.removesuffix(" s")) == pytest.approx(longest, rel=SHOWN)
    last = rows_of(runs / "second")[-1]["objective"]
    assert values["pdadmm exact: second"] == pytest.approx(last, rel=SHOWN)


def test_other_curves_can_be_shown(tab: Browser, runs: Path) -> None:
    before = tab.run("document.querySelectorAll('#panels figure').length")
    tab.click(".chips input[value=layers]")
    assert tab.run("document.querySelectorAll('#panels figure').length") > before
    plot = panel(tab, "Depth, blobs.npz")
    focus(tab, plot)
    tab.press("Home")
    assert tip(tab, plot)[1] == {"pdadmm exact": 2, "adam": 4}
    assert "2 → 4 layers" in texts(tab, "[data-test] svg text")


def test_the_values_are_there_as_a_table(tab: Browser, runs: Path) -> None:
    panel(tab, "Objective, blobs.npz")
    tab.click("[data-test] details summary")
    tab.until("document.querySelectorAll('[data-test] tbody tr').length > 0")
    shown = tab.run(
        "[...document.querySelectorAll('[data-test] tbody tr')].map(r => [...r.cells].map(c => c.textContent))"
    )
    head = texts(tab, "[data-test] thead th")
    adam = [float(row[head.index("adam")]) for row in shown]
    assert adam == pytest.approx([row["objective"] for row in rows_of(runs / "adam")], rel=SHOWN)


# --- tables and filters


def test_tables_are_sorted_by_mouse_and_keys(tab: Browser, runs: Path) -> None:
    scores = {name: rows_of(runs / name)[-1]["objective"] for name in ("adam", "first", "second", "theory", "workers")}
    names = "#runs tbody th"
    tab.click("#runs thead th:nth-child(10) button")
    assert texts(tab, names) == sorted(scores, key=lambda name: scores[name])
    assert tab.run("document.querySelector('#runs thead th:nth-child(10)').ariaSort") == "ascending"
    focus(tab, "#runs thead th:nth-child(10) button")
    tab.press("Enter")
    assert texts(tab, names) == sorted(scores, key=lambda name: -scores[name])
    tab.press("Tab", shift=True)
    tab.press("Enter")
    assert tab.run("document.querySelector('#runs thead th:nth-child(9)').ariaSort") == "ascending"


def choose(tab: Browser, selector: str, value: str) -> None:
    tab.run(
        f"(() => {{ const s = document.querySelector({json.dumps(selector)}); s.value = {json.dumps(value)}; "
        f"s.dispatchEvent(new Event('change')) }})()"
    )


def test_a_filter_leaves_the_runs_that_pass(tab: Browser) -> None:
    choose(tab, "[data-filter=method]", "adam")
    assert texts(tab, "#runs tbody tr:not([hidden]) th") == ["adam"]
    labels = set(tab.run("[...document.querySelectorAll('#panels .line')].map(e => e.dataset.label)"))
    assert labels == {"adam", "adam (test)", "adam (train)"}
    assert texts(tab, f"{RUN} h3")[0].startswith("adam")
    choose(tab, "[data-filter=data]", "digits")
    assert texts(tab, "#runs tbody tr:not([hidden]) th") == []
    choose(tab, "[data-filter=method]", "")
    choose(tab, "[data-filter=data]", "")
    assert len(texts(tab, "#runs tbody tr:not([hidden]) th")) == 5


# --- a run in detail


def chosen(tab: Browser, name: str) -> None:
    """By the link in the table of runs."""
    number = tab.run(
        f"[...document.querySelectorAll('#runs tbody tr')].find(r => r.cells[0].textContent === '{name}').dataset.run"
    )
    tab.click(f"#runs tr[data-run='{number}'] a")
    tab.until(f"document.querySelector('{RUN}').id === 'run-{number}'")


def test_the_heat_map_has_every_residual(tab: Browser, runs: Path) -> None:
    chosen(tab, "first")
    plot, rows = f"{RUN} [data-slot=heat] .plot", rows_of(runs / "first")
    focus(tab, plot)
    tab.press("ArrowRight")
    title, values = tip(tab, plot)
    assert title == "epoch 1"
    assert values == {"layer 1": pytest.approx(rows[0]["residuals"][0], rel=SHOWN)}
    tab.press("End")
    for layer in range(2, 5):
        tab.press("ArrowDown")
        title, values = tip(tab, plot)
        assert title == f"epoch {EPOCHS}"
        assert values == {f"layer {layer}": pytest.approx(rows[-1]["residuals"][layer - 1], rel=SHOWN)}
    assert f"{values['layer 4']:g}" in spoken(tab, f"epoch {EPOCHS}, layer 4:")
    cells = tab.run(f"document.querySelectorAll('{plot} svg > rect').length")
    assert cells == sum(len(row["residuals"]) for row in rows)
    tab.press("Home")
    tab.until(f"document.querySelector('{plot} .tip').textContent.includes('not there yet')")
    # The brightest cell is the largest residual.
    bright = tab.run(
        f"Math.max(...[...document.querySelectorAll('{plot} svg > rect')].map(r => "
        f"Number(r.getAttribute('fill').match(/\\d+/)[0])))"
    )
    assert bright == 255


def test_the_timeline_has_the_times_of_every_worker(tab: Browser, runs: Path) -> None:
    chosen(tab, "workers")
    plot, rows = f"{RUN} [data-slot=workers] .plot", rows_of(runs / "workers")
    focus(tab, plot)
    tab.press("ArrowRight")
    tab.press("ArrowRight")
    tab.press("ArrowDown")
    title, values = tip(tab, plot)
    assert title == "worker 2, epoch 2"
    expected = dict(zip(("compute", "wait", "send"), rows[1]["workers"][1], strict=True))
    assert values == pytest.approx(expected, rel=SHOWN)
    totals = json.loads((runs / "workers" / "summary.json").read_text())["workers"]
    assert f"{totals[1]['compute_seconds']:.3f} s" in texts(tab, f"{RUN} section.workers td")


def test_the_certificate_and_its_own_switch(tab: Browser, runs: Path) -> None:
    chosen(tab, "theory")
    plot, rows = f"{RUN} [data-slot=certificate] .plot", rows_of(runs / "theory")
    focus(tab, plot)
    tab.press("End")
    _, values = tip(tab, plot)
    for name, key in {"drop": "drop", "guaranteed drop": "certain_drop", "c_k": "c_k"}.items():
        assert values[name] == pytest.approx(rows[-1][key], rel=SHOWN)
    before = heights(tab, plot, "drop")
    tab.click(f"{RUN} [data-slot=certificate] [data-value=linear]")
    assert heights(tab, plot, "drop") != before


def test_commands_can_be_copied(tab: Browser) -> None:
    tab.click(f"{RUN} .copy")
    tab.until(f"['Copied', 'Selected'].includes(document.querySelector('{RUN} .copy').textContent)")
    assert tab.run("getSelection().toString()").startswith("pdadmm train")


# --- screens, colours, paper


@pytest.mark.parametrize("width", [360, 390, 768, 1280, 1920])
def test_the_page_never_scrolls_sideways(tab: Browser, width: int) -> None:
    tab.resize(width, phone=width < 700)
    for name in ("first", "adam", "workers"):
        chosen(tab, name)
        tab.run("document.querySelectorAll('main details').forEach(d => d.open = true)")
        tab.until("document.querySelectorAll('.chart table').length > 2")
        assert tab.run("document.documentElement.scrollWidth") <= width
        wide = tab.run(
            "[...document.querySelectorAll('main > section, figure, .tiles, .controls, .command')].filter(e => "
            "e.offsetWidth && e.getBoundingClientRect().right > innerWidth).map(e => e.className)"
        )
        assert wide == []


def background(tab: Browser) -> float:
    """How bright the page is, from 0 to 255."""
    colour: str = tab.run("getComputedStyle(document.body).backgroundColor")
    return float(np.mean([float(part) for part in re.findall(r"[\d.]+", colour)[:3]]))


def test_dark_and_light_follow_the_system_and_the_switch(tab: Browser) -> None:
    for scheme, is_dark in (("dark", True), ("light", False)):
        tab.emulate(prefers_color_scheme=scheme)
        assert (background(tab) < 60) is is_dark
    tab.click("[data-theme-choice=dark]")
    assert background(tab) < 60
    tab.emulate(prefers_color_scheme="dark")
    tab.click("[data-theme-choice=light]")
    assert background(tab) > 200
    assert tab.run("document.querySelector('[data-theme-choice=light]').ariaPressed") == "true"
    tab.click("[data-theme-choice=auto]")
    assert background(tab) < 60


def luminance(colour: str) -> float:
    parts = [float(part) / 255 for part in re.findall(r"[\d.]+", colour)[:3]]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_can_be_told_from_the_paper(tab: Browser, scheme: str) -> None:
    """Text has a contrast of at least 4.5 (WCAG AA), curves of at least 3."""
    tab.emulate(prefers_color_scheme=scheme)

    def colour(name: str) -> float:
        return luminance(
            tab.run(
                f"(() => {{ const e = document.createElement('i'); e.style.color = 'var(--{name})'; "
                f"document.body.append(e); const c = getComputedStyle(e).color; e.remove(); return c }})()"
            )
        )

    needed = {**dict.fromkeys(("ink", "muted", "accent", "good", "bad"), 4.5), **{f"c{i}": 3.0 for i in range(8)}}
    for name, least in needed.items():
        low, high = sorted((colour(name), colour("surface")))
        assert (high + 0.05) / (low + 0.05) >= least, name


def test_it_prints_in_light_colours_without_switches(tab: Browser) -> None:
    tab.emulate(prefers_color_scheme="dark")
    tab.click("[data-theme-choice=dark]")
    tab.emulate(media="print", prefers_color_scheme="dark")
    assert background(tab) > 200
    hidden = "e => getComputedStyle(e).display === 'none'"
    assert tab.run(f"[...document.querySelectorAll('.controls, .top, .copy, .chooser')].every({hidden})")
    assert tab.run("[...document.querySelectorAll('#panels .chart')].every(e => e.offsetHeight > 100)")
    paper = tab.pdf()
    assert paper.startswith(b"%PDF-")
    assert paper.count(b"/Type /Page\n") + paper.count(b"/Type/Page") >= 1


# --- nothing in, nothing out


def test_the_policy_forbids_the_network(tab: Browser) -> None:
    """Even a script of the page could not reach out."""
    found = tab.run("fetch('https://example.org/').then(() => 'answered', () => 'refused')")
    assert found == "refused"
    blocked = tab.run(
        "new Promise(done => { document.addEventListener('securitypolicyviolation', e => done(e.blockedURI)); "
        "const i = new Image(); i.src = 'https://example.org/i.png'; document.body.append(i); })"
    )
    assert blocked.startswith("https://example.org")
    assert all("Content Security Policy" in line for line in tab.complaints())
    tab.events.clear()
    tab.open(Path(tab.run("decodeURI(location.pathname)")))


def test_hostile_names_stay_texts(browser: Browser, runs: Path, tmp_path: Path) -> None:
    name = '"><img src=x onerror="window.hacked=1"><!--<script>window.hacked=1<'
    run = tmp_path / name
    run.mkdir()
    for file in ("config.toml", "history.jsonl", "summary.json"):
        (run / file).write_bytes((runs / "first" / file).read_bytes())
    (tmp_path / "other").mkdir()
    for file in ("config.toml", "history.jsonl"):
        (tmp_path / "other" / file).write_bytes((runs / "adam" / file).read_bytes())
    browser.open(write_report(tmp_path).path)
    choose(browser, "#chooser", "0")
    assert browser.run("window.hacked") is None
    assert browser.run("document.images.length") == 0
    assert name in texts(browser, "#runs tbody th")
    assert browser.complaints() == []


def test_without_scripts_the_tables_are_there(browser: Browser, runs: Path) -> None:
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.open(runs / "report.html")
        document = browser.call("DOM.getDocument", depth=1)["root"]
        found = browser.call("DOM.querySelectorAll", nodeId=document["nodeId"], selector="article.run")["nodeIds"]
        assert len(found) == 5
        boxes = [browser.call("DOM.getBoxModel", nodeId=node)["model"]["height"] for node in found]
        assert all(height > 200 for height in boxes)  # none is hidden, where no script could show it
        (note,) = browser.call("DOM.querySelectorAll", nodeId=document["nodeId"], selector=".noscript")["nodeIds"]
        assert browser.call("DOM.getBoxModel", nodeId=note)["model"]["height"] > 0
    finally:
        browser.call("Emulation.setScriptExecutionDisabled", value=False)


def test_a_report_of_one_run(browser: Browser, runs: Path, tmp_path: Path) -> None:
    browser.emulate()
    browser.resize(1280)
    browser.open(write_report(runs / "first", tmp_path).path)
    assert texts(browser, "h1")[0].startswith("first")
    assert browser.run("document.querySelectorAll('#panels figure').length") == 3
    assert "Test and train accuracy" in texts(browser, "#panels figcaption")
    shown = dict(zip(texts(browser, ".tiles dt"), texts(browser, ".tiles dd"), strict=True))
    last = rows_of(runs / "first")[-1]
    assert math.isclose(float(shown["objective"]), last["objective"], rel_tol=SHOWN)
    assert shown["test accuracy"] == f"{last['test_accuracy']:.4f}"
    assert browser.complaints() == []
