"""A report is what a browser shows: it renders, the console is clean, and its charts carry the numbers of the manifest.

`make promises` runs these tests. They need chromium and chromium-driver, and skip themselves without them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from penstock.cli import main
from tests.promises.browsing import CHROMIUM, DRIVER, Browser, browsing
from tests.show.desk import EVENTS, KEYS, make_events
from tests.show.prepared import make_rows
from tests.show.report.test_escaping import EVERY

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="no browser: apt-get install chromium chromium-driver"),
]
VISIBLE = "const box = document.querySelector('{}').getBoundingClientRect(); return [box.width, box.height]"


@pytest.fixture(scope="module")
def browser(tmp_path_factory) -> Iterator[Browser]:
    with browsing(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture(scope="module")
def dataset(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    keep = {"where": ["rtt > 0.25"], "keep": True}
    group = {"by": "src_addr", "order": "event_time", "max_record": "64kB"}
    stages = [{"filter": keep}, {"group": group}, {"split": {"by": "src_addr", "test": 0.2}}]
    job = {"input": str(make_events(folder)), "output": str(folder / "out"), "memory": "1GB", "workers": 0}
    penstock.run({**job, "stages": stages})
    return folder / "out"


@pytest.fixture(scope="module")
def report(dataset) -> str:
    return Path(penstock.report(dataset)).as_uri()


def values(browser: Browser, marks: str) -> list[float]:
    """Numbers that marks of a chart carry."""
    shown = f"[...document.querySelectorAll('{marks}')].filter(mark => mark.dataset.value)"
    return browser.run(f"return {shown}.map(mark => Number(mark.dataset.value))")


def figure(browser: Browser, title: str) -> str:
    """A selector for the figure of that title."""
    titles = "[...document.querySelectorAll('figure')].map(each => each.querySelector('h3')?.textContent)"
    number = browser.run(f"return {titles}.indexOf('{title}')")
    assert number >= 0, title
    browser.run(f"document.querySelectorAll('figure')[{number}].id = 'figure-{number}'")
    return f"#figure-{number}"


def test_it_renders_and_the_console_is_clean(browser, report):
    for scheme in ("light", "dark"):
        browser.show(report, scheme=scheme)
        assert browser.console() == []
        assert min(browser.run(VISIBLE.format("#memory svg"))) > 100
        assert browser.run("return document.querySelectorAll('svg').length") > 10
        assert browser.run("return document.scripts.length") == 0


def test_the_headline_has_the_numbers_of_the_manifest(browser, report, dataset):
    manifest = json.loads((dataset / "manifest.json").read_text())
    run = json.loads((dataset / ".penstock" / "run.json").read_text())
    browser.show(report)
    records = sum(shard["records"] for shards in manifest["splits"].values() for shard in shards)
    assert browser.run("return document.getElementById('records').textContent") == f"{records:,}"
    assert browser.run("return document.getElementById('read').textContent") == f"{EVENTS:,}"
    assert values(browser, ".tile svg rect.one") == [run["peak_memory_bytes"]]
    assert browser.run("return document.getElementById('balance').textContent").startswith("✓")


def test_bars_of_the_account_are_as_long_as_its_numbers(browser, report, dataset):
    account = json.loads((dataset / "manifest.json").read_text())["account"]
    browser.show(report)
    assert values(browser, "#flow rect.one") == [step["given"] for step in account]
    aside = [sum(step["set_aside"].values()) for step in account]
    assert values(browser, "#flow rect.two") == [count for count in aside if count]
    marks = "[...document.querySelectorAll('#flow rect.two')].filter(mark => mark.dataset.value)"
    widths = "[mark, mark.previousElementSibling].map(each => each.getBoundingClientRect().width)"
    ((two, one),) = browser.run(f"return {marks}.map(mark => {widths})")
    filtered = next(step for step in account if step["step"] == "filter")
    assert two / (one + two) == pytest.approx(aside[account.index(filtered)] / filtered["taken"], abs=0.01)


def test_distributions_count_every_key_and_record(browser, report, dataset):
    browser.show(report)
    records = sum(len(penstock.open(dataset, split)) for split in ("train", "test"))
    for title, count in (("Events per key", KEYS), ("Bytes per record", records), ("Events per record", records)):
        chosen = figure(browser, title)
        counts = values(browser, f"{chosen} rect.one")
        assert sum(counts) == count
        bars = f"[...document.querySelectorAll('{chosen} rect.one')]"
        tall = browser.run(f"return {bars}.map(each => each.getBoundingClientRect().height)")
        assert tall.index(max(tall)) == counts.index(max(counts))
        assert [height > 0 for height in tall] == [value > 0 for value in counts]


def test_the_memory_curve_has_every_point_and_the_peak_of_the_run(browser, report, dataset):
    run = json.loads((dataset / ".penstock" / "run.json").read_text())
    browser.show(report)
    assert values(browser, "#memory circle") == [run["peak_memory_bytes"]]
    points = browser.run("return Number(document.querySelector('#memory path.curve').dataset.points)")
    assert points == len(run["timeline"]) + 2 * len(run["passes"])


def test_a_table_under_each_chart_opens(browser, report):
    browser.show(report)
    browser.run("document.querySelectorAll('figure summary').forEach(each => each.click())")
    every = "[...document.querySelectorAll('figure')]"
    heights = browser.run(f"return {every}.map(each => each.querySelector('table').clientHeight)")
    assert len(heights) > 5
    assert min(heights) > 20


@pytest.mark.parametrize("width", [360, 320, 1400])
def test_no_screen_scrolls_sideways(browser, report, width):
    browser.show(report, width=width)
    browser.run("document.querySelectorAll('details').forEach(each => each.open = true)")
    assert browser.run("return document.documentElement.scrollWidth") <= width
    assert browser.run("return window.innerWidth") == width
    texts = "[...document.querySelectorAll('svg text')]"
    heights = browser.run(f"return {texts}.map(each => each.getBoundingClientRect().height)")
    assert min(heights) >= 11, "text keeps its size"


@pytest.mark.parametrize("width", [360, 1000, 1400])
def test_a_number_of_ten_digits_stays_on_its_line(browser, tmp_path, width):
    from penstock.show.report.sections import report_page
    from penstock.show.report.writing import write_report

    facts = write_report(make_rows(tmp_path / "rows"), tmp_path / "report.html")
    for count in (4_800_000, 19_200_000, 192_000_000, 4_800_000_000):
        facts["account"][1] |= {"taken": count, "given": count}
        (tmp_path / "report.html").write_text(report_page(facts))
        browser.show((tmp_path / "report.html").as_uri(), width=width)
        assert browser.run("return document.getElementById('read').textContent") == f"{count:,}"
        size = "parseFloat(getComputedStyle(box).fontSize)"
        assert browser.run(f"const box = document.getElementById('read'); return box.clientHeight / {size}") < 2


def test_dark_is_dark_and_light_is_light(browser, report):
    def brightness() -> list[int]:
        colors = browser.run(
            "const style = getComputedStyle(document.body); return [style.backgroundColor, style.color]"
        )
        return [sum(map(int, color.strip("rgb()").split(","))) for color in colors]

    browser.show(report, scheme="light")
    page, ink = brightness()
    assert page > 700 > 200 > ink
    browser.show(report, scheme="dark")
    page, ink = brightness()
    assert page < 100 < 600 < ink


def test_names_that_look_like_markup_make_no_element_and_run_nothing(browser, tmp_path):
    from penstock.show.report.sections import report_page
    from penstock.show.report.writing import write_report

    rows = make_rows(tmp_path / "rows")
    facts = write_report(rows, tmp_path / "report.html")
    facts["account"] = [
        {"step": name, "unit": name, "taken": 2, "given": 1, "set_aside": {name: 1}, "made": {}, "balances": True}
        for name in EVERY
    ]
    facts["configuration"] = "\n".join(EVERY)
    (tmp_path / "report.html").write_text(report_page(facts))
    for width in (1000, 360):
        browser.show((tmp_path / "report.html").as_uri(), width=width)
        assert browser.console() == []
        assert browser.run("return document.querySelectorAll('img, script, b').length") == 0
        assert browser.run("return document.querySelectorAll('style').length") == 1
        assert browser.run("return document.documentElement.scrollWidth") <= width


def test_the_report_of_a_benchmark_renders_too(browser, tmp_path):
    rows, place = make_rows(tmp_path / "rows"), tmp_path / "bench.html"
    asked = ["bench", str(rows), "--seconds", "0.2", "--batch-size", "8", "--step-ms", "3", "--report", str(place)]
    assert main(asked) == 0
    for width in (1000, 360):
        browser.show(place.as_uri(), width=width)
        assert browser.console() == []
        assert browser.run("return document.documentElement.scrollWidth") <= width
        shares = values(browser, "#waiting rect.one, #waiting rect.two")
        assert sum(shares) == pytest.approx(2, abs=1e-3), "the whole time of two runs"
