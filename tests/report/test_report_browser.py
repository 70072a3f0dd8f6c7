"""The page in a real browser: it works from a file, alone, in both colour schemes and on a phone."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from parsed import made
from test_report_page import single

from fedakd import report

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
PHONE = {"width": 390, "height": 844}
DESK = {"width": 1280, "height": 900}
SHEET = {"width": 703, "height": 1045}  # what the margins leave of A4
METHODS = ("cffl", "cgsv", "fedave", "fedsac", "pfedck", "feddc", "fedas", "fedmpr", "fedavg", "fedakd")

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine: install chromium")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright  # where there is no Chromium it need not be there either

    with sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(scope="module")
def address(results, tmp_path_factory) -> str:
    path: Path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(report.html(results), encoding="utf-8")
    return path.as_uri()


@pytest.fixture(scope="module")
def crowd(tmp_path_factory) -> str:
    """Five settings, eighteen methods, 34 clients."""
    variants = [f"fedakd(alpha=0.{at},beta=0.5)" for at in range(1, 8)]
    levels = {one: [0.1 + 0.01 * at] * 2 for at, one in enumerate(("standalone", *METHODS, *variants))}
    setting = made(levels, clients=34)
    path: Path = tmp_path_factory.mktemp("crowd") / "report.html"
    path.write_text(report.html(replace(single(setting), settings=(setting,) * 5)), encoding="utf-8")
    return path.as_uri()


class Visit:
    """A page opened with nothing allowed but itself; what it complains of and asks for is kept."""

    def __init__(self, browser, address, viewport=DESK, **options) -> None:
        self.context = browser.new_context(viewport=viewport, **options)
        self.page = self.context.new_page()
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.complaints.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.route("**/*", self._routed)
        self.page.goto(address)

    def _routed(self, route) -> None:
        self.requests.append(route.request.url)
        local = route.request.url.startswith(("file:", "data:"))
        route.continue_() if local else route.abort()

    def column(self, table: str, column: int) -> list[str]:
        return self.page.locator(f"#{table} tbody tr > :nth-child({column})").all_inner_texts()

    def values(self, table: str, column: int) -> list[str | None]:
        cells = self.page.locator(f"#{table} tbody tr > :nth-child({column})").all()
        return [cell.get_attribute("data-value") for cell in cells]


@pytest.fixture
def visit(browser, address) -> Iterator[Any]:
    opened: list[Visit] = []

    def make(**options: Any) -> Visit:
        opened.append(Visit(browser, options.pop("address", address), **options))
        return opened[-1]

    yield make
    for one in opened:
        one.context.close()


def test_it_complains_of_nothing_and_asks_nobody(visit, address):
    desk = visit()
    desk.page.locator("th button").first.click()
    desk.page.locator(".legend input").first.click()
    desk.page.locator("select").first.select_option(index=1)
    desk.page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    assert desk.complaints == []
    assert desk.requests == [address]


def test_the_watch_sees_what_a_page_that_phones_home_does(visit, tmp_path):
    """Without this, a recorder that records nothing would pass for a page that asks nobody."""
    path = tmp_path / "home.html"
    path.write_text('<img src="http://example.invalid/x.png"><script>console.error("no")</script>')
    seen = visit(address=path.as_uri())
    assert "http://example.invalid/x.png" in seen.requests
    assert "error: no" in seen.complaints


def test_a_click_sorts_and_a_second_reverses(visit):
    desk = visit()
    before = [float(one) for one in desk.values("s1-accuracy", 2)]
    header = desk.page.locator("#s1-accuracy thead th").nth(1)
    header.locator("button").click()
    assert header.get_attribute("aria-sort") == "descending"
    assert [float(one) for one in desk.values("s1-accuracy", 2)] == sorted(before, reverse=True)
    header.locator("button").press("Enter")  # by keyboard too
    assert header.get_attribute("aria-sort") == "ascending"
    assert [float(one) for one in desk.values("s1-accuracy", 2)] == sorted(before)
    names = desk.column("s1-accuracy", 1)
    desk.page.locator("#s1-accuracy thead th button").first.click()
    assert desk.column("s1-accuracy", 1) == sorted(names, key=str.lower)
    assert desk.page.locator("#s1-accuracy [aria-sort]").count() == 1


def test_rows_stay_whole_and_the_unknown_last(visit):
    desk = visit()
    rows = sorted(desk.page.locator("#s1-accuracy tbody tr").all_inner_texts())
    button = desk.page.locator("#s1-accuracy thead th").nth(4).locator("button")
    for _ in range(2):
        button.click()
        assert desk.column("s1-accuracy", 1)[-1] == "Standalone"  # which has no gain
    assert sorted(desk.page.locator("#s1-accuracy tbody tr").all_inner_texts()) == rows


def test_every_chart_is_drawn_and_named(visit):
    desk = visit()
    charts = desk.page.locator("figure svg[role=img]").all()
    assert len(charts) == desk.page.locator("figure").count() > 40
    assert all(chart.locator("> title").text_content() for chart in charts)
    assert all(chart.locator("> desc").text_content() for chart in charts)
    seen = [chart for chart in charts if chart.is_visible()]
    assert all(chart.bounding_box()["height"] > 80 for chart in seen)
    assert all(chart.locator("path, circle, rect").count() > 5 for chart in charts)


def test_letters_stay_within_their_chart(visit):
    outside = """() => [...document.querySelectorAll('figure svg[role=img]')].flatMap((svg) => {
        const box = svg.getBoundingClientRect();
        return [...svg.querySelectorAll('text')].filter((text) => {
            const own = text.getBoundingClientRect();
            const beside = own.left < box.left - 1 || own.right > box.right + 1;
            return own.width && (beside || own.bottom > box.bottom + 1);
        }).map((text) => svg.id + ': ' + text.textContent);
    })"""
    for viewport in (DESK, PHONE):
        assert visit(viewport=viewport).page.evaluate(outside) == []


def test_no_words_of_a_chart_lie_on_others(visit, address, crowd, tmp_path):
    """Numbers beside the name of their axis, lines of names, remarks beside legends."""
    overprinted = """() => [...document.querySelectorAll('figure svg[role=img]')].flatMap((svg) => {
        const texts = [...svg.querySelectorAll('text')].map((one) => [one, one.getBoundingClientRect()]);
        const over = ([, a], [, b]) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1
            && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 3;
        return texts.flatMap((one, at) => texts.slice(0, at).filter((other) => over(one, other))
            .map((other) => `${svg.parentElement.id}: ${one[0].textContent} on ${other[0].textContent}`));
    })"""
    halves = tmp_path / "report.html"
    halves.write_text(report.html(single(made({"standalone": [0.8] * 2, "fedavg": [0.83] * 2}, clients=7))))
    assert ">87.5</text>" in halves.read_text()
    for viewport in (DESK, PHONE):
        for own in (address, crowd, halves.as_uri()):
            page = visit(viewport=viewport, address=own).page
            page.evaluate("document.querySelectorAll('.panel').forEach((one) => one.className = 'panel')")
            assert page.evaluate(overprinted) == []


def test_a_result_table_is_whole_and_a_long_one_scrolls(visit, crowd):
    desk = visit(address=crowd)
    heights = "(one) => [one.scrollHeight, one.clientHeight]"
    assert desk.page.locator("#s1-accuracy tbody tr").count() == 18
    for table in ("#overview-average", "#s1-accuracy", "#s1-fairness"):
        inside, shown = desk.page.locator(f".box:has({table})").evaluate(heights)
        assert inside == shown
    inside, shown = desk.page.locator(".box:has(#s1-clients)").evaluate(heights)  # 34 lines
    assert shown < 600 < inside


def test_edges_beyond_which_more_follows_are_in_shade(visit, crowd):
    box = visit(address=crowd).page.locator(".box:has(#s1-clients)")
    shades = """(one) => ["::after", "::before"].map((end) => getComputedStyle(one, end))
        .map((style) => style.content !== 'none' && style.backgroundImage.includes('gradient'))"""

    def seen() -> tuple[set[str], list[bool]]:
        box.page.wait_for_function("document.querySelector('.more-right, .more-left')")
        box.evaluate("() => new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")
        return set(box.get_attribute("class").split()) - {"box"}, box.evaluate(shades)

    assert seen() == ({"more-right", "more-below"}, [True, True])
    box.evaluate("(one) => one.scrollTo(9999, 0)")
    assert seen() == ({"more-left", "more-below"}, [False, True])
    box.evaluate("(one) => one.scrollTo(50, 9999)")
    assert seen() == ({"more-left", "more-right", "more-above"}, [True, False])


def test_tables_of_many_settings_stand_below_each_other(visit, crowd):
    places = "(all) => all.map((one) => one.getBoundingClientRect().left)"
    for own, columns in (({}, 2), ({"address": crowd}, 1)):
        lefts = visit(**own).page.locator(".pair > div").evaluate_all(places)
        assert len(lefts) == 4
        assert len(set(lefts)) == columns


def test_the_keyboard_stops_at_what_can_be_scrolled_alone(visit):
    asked = """(all) => all.filter((one) => one.checkVisibility()).map((one) => [
        one.scrollWidth > one.clientWidth + 1 || one.scrollHeight > one.clientHeight + 1,
        one.tabIndex === 0, one.getAttribute("role") === "region",
        one.getAttribute("aria-label") === one.querySelector("caption").textContent,
    ])"""
    desk = visit()
    counts = []
    for width in (1280, 390, 1280):
        desk.page.set_viewport_size({"width": width, "height": 900})
        desk.page.wait_for_timeout(200)
        found = desk.page.locator(".box").evaluate_all(asked)
        assert all(len(set(one)) == 1 for one in found)
        counts.append(sum(one[0] for one in found))
    assert counts[0] == counts[2] < counts[1]


def test_a_box_that_comes_into_sight_can_be_reached(visit):
    phone = visit(viewport=PHONE)
    box = phone.page.locator(".box:has(#s1-gains-numbers)")
    assert box.get_attribute("tabindex") is None
    phone.page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    wide = phone.page.locator(".box:has(#s1-m1-numbers)")
    phone.page.wait_for_function("document.querySelector('.box:has(#s1-m1-numbers)').tabIndex === 0")
    assert wide.get_attribute("role") == "region"


def test_one_method_is_chosen_at_a_time_and_all_are_there_without_scripts(visit):
    desk = visit()
    shown = desk.page.locator("#s1 .panel:visible")
    assert shown.count() == 1
    desk.page.locator("#s1-method").select_option(label="FedAKD (personal)")
    assert shown.locator("h4").inner_text() == "FedAKD (personal)"
    assert shown.count() == 1
    plain = visit(java_script_enabled=False)
    assert plain.page.locator("#s1 .panel:visible").count() == 4
    assert plain.page.locator(".legend label:visible").count() > 0
    assert plain.page.locator(".legend input:visible").count() == 0  # they would do nothing
    assert plain.page.locator("select:visible").count() == 0


def test_a_curve_can_be_put_away(visit):
    desk = visit()
    curve = desk.page.locator('#s1-accuracy-curve g[data-series="1"]')
    box = desk.page.locator("#s1-accuracy-curve .legend input").nth(1)
    assert curve.is_visible()
    box.uncheck()
    assert not curve.is_visible()
    box.check()
    assert curve.is_visible()


def test_fedakds_charts_are_shown_first(visit):
    assert visit().page.locator("#s1 .panel:visible h4").inner_text() == "FedAKD (personal)"


@pytest.mark.parametrize("scripts", [True, False])
def test_a_sheet_holds_all_of_its_width_and_one_method(visit, address, crowd, scripts):
    for own in (address, crowd):
        sheet = visit(address=own, viewport=SHEET, java_script_enabled=scripts).page
        sheet.emulate_media(media="print")
        assert sheet.locator("#s1 .panel:visible").count() == 1
        assert sheet.locator("#s1 .panel:visible h4").inner_text().startswith("FedAKD")
        assert sheet.locator("#s1-gains-numbers").is_hidden()  # what is closed stays closed
        beyond = """(all) => all.filter((one) => one.getBoundingClientRect().right > innerWidth + 1)
            .map((one) => one.id || one.outerHTML.slice(0, 80))"""
        assert sheet.locator("table:visible, svg:visible, p:visible, pre:visible").evaluate_all(beyond) == []


def test_a_sheet_is_begun_for_a_setting_not_for_the_first_section(visit, crowd):
    sheet = visit(address=crowd, viewport=SHEET).page
    sheet.emulate_media(media="print")
    breaks = sheet.locator("main > section").evaluate_all(
        "(all) => all.map((one) => [one.id, getComputedStyle(one).breakBefore])"
    )
    assert dict(breaks) == {"overview": "auto", "repeat": "auto", **{f"s{at}": "page" for at in range(1, 6)}}


def test_no_table_is_printed_on_another(visit, address, crowd):
    for own in (address, crowd):
        sheet = visit(address=own, viewport=SHEET).page
        sheet.emulate_media(media="print")
        boxes = sheet.locator(".box:visible").evaluate_all(
            "(all) => all.map((one) => one.getBoundingClientRect())"
        )
        ends = sorted((one["top"], one["bottom"]) for one in boxes)
        assert len(ends) > 10
        assert all(above[1] <= below[0] for above, below in pairwise(ends))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_overflows_on_a_phone(visit, scheme):
    phone = visit(viewport=PHONE, color_scheme=scheme)
    phone.page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    assert phone.page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    # What is not in a box that scrolls by itself must lie within the screen.
    beyond = phone.page.evaluate("""() => [...document.querySelectorAll('body *')].filter((one) =>
        !one.closest('.box, pre, svg, .skip') && one.getBoundingClientRect().right > innerWidth + 1
    ).map((one) => one.outerHTML.slice(0, 80))""")
    assert beyond == []
    scrolls = "(one) => one.scrollWidth > one.clientWidth"
    assert phone.page.locator(".box:has(#s1-accuracy)").evaluate(scrolls)


def test_the_header_of_a_tall_table_stays_in_sight(visit):
    desk = visit()
    desk.page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    box = desk.page.locator(".box:has(#s1-m1-numbers)")  # FedAKD's, which is shown
    box.evaluate("(one) => { one.style.maxHeight = '10rem'; one.scrollTop = 200; }")
    top = box.bounding_box()["y"]
    header = desk.page.locator("#s1-m1-numbers thead th").first.bounding_box()
    assert abs(header["y"] - top) <= 2


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_is_readable_in_both_schemes(visit, scheme):
    desk = visit(color_scheme=scheme)
    kinds = (
        "body, .note, .facts, .verdicts li, td, thead th, tbody th, nav a, .notes li, summary, .legend label"
    )
    pairs = desk.page.evaluate(
        """(kinds) => [...document.querySelectorAll(kinds)].map((one) => {
        let under = one;
        while (getComputedStyle(under).backgroundColor === 'rgba(0, 0, 0, 0)') under = under.parentElement;
        return [getComputedStyle(one).color, getComputedStyle(under).backgroundColor];
    })""",
        kinds,
    )
    assert len(pairs) > 100
    assert min(contrast(*map(rgb, pair)) for pair in pairs) >= 4.5
    fills = desk.page.evaluate(
        "[...document.querySelectorAll('svg text')].map((one) => getComputedStyle(one).fill)"
    )
    back = rgb(desk.page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert min(contrast(rgb(fill), back) for fill in set(fills)) >= 4.5


def test_dark_is_dark(visit):
    background = "getComputedStyle(document.body).backgroundColor"
    light, dark = (rgb(visit(color_scheme=one).page.evaluate(background)) for one in ("light", "dark"))
    assert luminance(light) > 0.9
    assert luminance(dark) < 0.05


def rgb(text: str) -> tuple[float, ...]:
    return tuple(map(float, re.findall(r"[\d.]+", text)[:3]))


def luminance(colour: tuple[float, ...]) -> float:
    """Relative luminance as WCAG 2 defines it."""
    parts = [one / 255 for one in colour]
    linear = [one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in parts]
    return sum(weight * one for weight, one in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(a: tuple[float, ...], b: tuple[float, ...]) -> float:
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)
