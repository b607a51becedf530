"""The page in a real browser: wide and narrow, light and dark, printed; skipped where there is no browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import browser as browsers
import pytest
import synthetic
from drawings import drawn_once

from gemmsim.device import device
from gemmsim.report import write_report

pytestmark = pytest.mark.skipif(browsers.found() is None, reason="no Chromium here (GEMMSIM_BROWSER can name one)")

WIDTHS = (1280, 390)
SCHEMES = ("light", "dark")

CUT_OFF = """
[...document.querySelectorAll("main *, header *, footer *")].filter((element) => {
  if (element.closest(".scroll, .picture, .skip") || !element.getClientRects().length) return false;
  const box = element.getBoundingClientRect();
  return box.left < -1 || box.right > innerWidth + 1 || element.scrollWidth > element.clientWidth + 1
    && getComputedStyle(element).display !== "inline";
}).map((element) => element.outerHTML.slice(0, 120))
"""
"""Elements that reach out of the window, or out of themselves; what is meant to scroll apart."""
OVERLAPPING = """
(() => {
  const boxes = [...document.querySelectorAll("h1, h2, h3, h4, p, dt, dd, li, figure, .scroll, button")]
    .filter((element) => element.getClientRects().length && !element.closest(".skip, th, nav"))
    .map((element) => [element, element.getBoundingClientRect()]);
  const found = [];
  boxes.forEach(([first, a], at) => boxes.slice(at + 1).forEach(([second, b]) => {
    if (first.contains(second) || second.contains(first)) return;
    const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
    const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
    if (wide > 1 && high > 1) found.push(first.outerHTML.slice(0, 80) + " | " + second.outerHTML.slice(0, 80));
  }));
  return found;
})()
"""
TEXT_CUT_OFF = """
[...document.querySelectorAll(".picture svg")].filter((svg) => svg.getClientRects().length).flatMap((svg) => {
  const whole = svg.getBoundingClientRect();
  return [...svg.querySelectorAll("[id*='text_']")].filter((text) => {
    const box = text.getBoundingClientRect();
    return box.width && (box.left < whole.left - 1 || box.right > whole.right + 1
      || box.top < whole.top - 1 || box.bottom > whole.bottom + 1);
  }).map((text) => text.id);
})
"""
"""Text of pictures that reaches out of them."""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    records = [*synthetic.campaign(), *synthetic.campaign(device("rtx-3090"))[:3]]
    with drawn_once(tmp_path_factory, for_all=True):
        return write_report(synthetic.write(folder / "records.jsonl", records), folder / "out")[0]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[browsers.Browser]:
    with browsers.browser(tmp_path_factory.mktemp("profile")) as one:
        yield one


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_nothing_complains_scrolls_sideways_or_is_cut_off(browser, page, width, scheme):
    browser.open(page, width, scheme=scheme)
    assert browser.complaints == []
    assert browser.evaluate("innerWidth") == width
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    assert browser.evaluate(CUT_OFF) == []
    assert browser.evaluate(OVERLAPPING) == []
    assert browser.evaluate(TEXT_CUT_OFF) == []
    assert browser.evaluate("document.querySelector('h1').getBoundingClientRect().top") >= 0


@pytest.mark.parametrize(
    ("spoil", "finds"),
    [
        ("document.querySelector('.best').style.width = '3000px'", CUT_OFF),
        ("document.querySelector('h3').style.marginTop = '-80px'", OVERLAPPING),
        ("document.querySelector(\".picture svg [id*='text_']\").style.transform = 'translateX(-900px)'", TEXT_CUT_OFF),
    ],
)
def test_what_is_wrong_would_be_found(browser, page, spoil, finds):
    browser.open(page, 1280)
    browser.evaluate(spoil)
    assert browser.evaluate(finds) != []


def test_an_error_on_the_page_would_be_found(browser, page):
    browser.open(page, 1280)
    browser.evaluate("console.error('wrong'); setTimeout(() => { throw new Error('thrown'); }); 0")
    assert "wrong" in " ".join(browser.complaints)


def test_wide_windows_have_the_wide_pictures_and_narrow_ones_the_narrow(browser, page):
    shown = "[...document.querySelectorAll('.picture svg')].filter((svg) => svg.getClientRects().length)"
    for width, kind in zip(WIDTHS, ("wide", "narrow"), strict=True):
        browser.open(page, width)
        kinds = browser.evaluate(f"{shown}.map((svg) => svg.parentElement.className)")
        pictures = browser.evaluate("document.querySelectorAll('figure').length")
        assert len(kinds) == pictures
        assert all(kind in each for each in kinds)


def background(browser: browsers.Browser) -> str:
    color: str = browser.evaluate("getComputedStyle(document.body).backgroundColor")
    return color


def test_the_button_turns_the_page_dark_and_light_and_is_remembered(browser, page):
    browser.open(page, 1280, scheme="light")
    browser.evaluate("localStorage.clear()")
    browser.open(page, 1280, scheme="light")
    light = background(browser)
    assert light == "rgb(255, 255, 255)"
    line = "getComputedStyle(document.querySelector(\".picture.wide svg [style*='--ink']\")).stroke"
    before = browser.evaluate(line)
    browser.evaluate("document.getElementById('theme').click()")
    assert background(browser) != light
    assert browser.evaluate(line) != before
    assert browser.evaluate("document.getElementById('theme').getAttribute('aria-pressed')") == "true"
    dark = "[...document.querySelectorAll('.picture.wide.dark svg')].every((svg) => svg.getClientRects().length)"
    assert browser.evaluate(dark) is True
    browser.open(page, 1280, scheme="light")
    assert background(browser) != light
    browser.evaluate("localStorage.clear()")
    browser.open(page, 1280, scheme="dark")
    assert background(browser) != light


COLUMN = "[...document.querySelector('#h200-points table').tBodies[0].rows].filter((row) => !row.hidden)"


def column(browser: browsers.Browser, number: int) -> list[float]:
    found: list[float] = browser.evaluate(f"{COLUMN}.map((row) => Number(row.cells[{number}].dataset.value))")
    return found


def test_tables_sort_by_value_up_and_down(browser, page):
    browser.open(page, 1280)
    predicted = 5
    before = column(browser, predicted)
    assert before != sorted(before)
    click = (
        f"document.querySelector('#h200-points table').tHead.rows[0].cells[{predicted}].querySelector('button').click()"
    )
    browser.evaluate(click)
    assert column(browser, predicted) == sorted(before)
    browser.evaluate(click)
    assert column(browser, predicted) == sorted(before, reverse=True)
    heads = "[...document.querySelector('#h200-points table').tHead.rows[0].cells].map((h) => h.ariaSort)"
    assert browser.evaluate(heads).count("descending") == 1


def test_tables_are_filtered_by_words(browser, page):
    browser.open(page, 390)
    rows = browser.evaluate(f"{COLUMN}.length")
    browser.evaluate(
        "(() => { const box = document.querySelector('#h200-points input'); box.value = 'naive 4,096';"
        " box.dispatchEvent(new Event('input')); })()"
    )
    left = browser.evaluate(f"{COLUMN}.map((row) => row.textContent)")
    assert 0 < len(left) < rows
    assert all("naive" in text and "4,096" in text for text in left)
    assert (
        browser.evaluate("document.querySelector('#h200-points output').textContent") == f"{len(left)} of {rows} rows"
    )


def test_everything_that_can_be_worked_has_a_name(browser, page):
    browser.open(page, 1280)
    nameless = """[...document.querySelectorAll("button, input, a, [role=img], [role=group]")].filter((each) =>
      !(each.textContent.trim() || each.ariaLabel || each.getAttribute("aria-label"))).length"""
    assert browser.evaluate(nameless) == 0
    assert browser.evaluate("document.documentElement.lang") == "en"


def test_print_is_light_and_leaves_out_what_is_to_be_clicked(browser, page):
    browser.open(page, 1000, scheme="dark", media="print")
    assert background(browser) == "rgb(255, 255, 255)"
    for of in ("nav", ".tools", "#theme", ".files"):
        assert browser.evaluate(f"document.querySelector('{of}').getClientRects().length") == 0
    assert browser.evaluate("document.querySelector('#h200-points .scroll').clientHeight") > 600
