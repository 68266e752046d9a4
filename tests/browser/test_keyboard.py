"""A whole search without a mouse, and under a thumb."""

from __future__ import annotations

import pytest
from playwright.sync_api import Locator, expect

from benchmarks.service.search_page import SearchPage, data_of
from tests.browser.conftest import OpenPage, is_too_wide

pytestmark = pytest.mark.browser

WORDS = "a spotted circle under the stars"
# More than there are things to come to before the hits.
_MOST_TABS = 20
_TARGET_PX = 24  # WCAG 2.2, success criterion 2.5.8
_OUTSIDE = (
    "() => !document.activeElement.closest('dialog') "
    "&& document.activeElement !== document.body"  # the browser's own bar comes there
)


def tab_to(page: SearchPage, selector: str) -> None:
    """Go on with Tab until the focus is there."""
    for _ in range(_MOST_TABS):
        page.page.keyboard.press("Tab")
        if page.page.evaluate("selector => document.activeElement.matches(selector)", selector):
            return
    pytest.fail(f"{_MOST_TABS} times Tab did not lead to {selector}")


def test_a_search_and_its_evidence(page: SearchPage) -> None:
    keyboard = page.page.keyboard
    page.open()
    expect(page.words).to_be_focused()  # from the start
    with page.answer_shown():
        keyboard.type(WORDS)
        keyboard.press("Enter")
    tab_to(page, "#hits .open")
    opens = page.hits.locator(".open")
    expect(opens.first).to_be_focused()
    for key in ("ArrowRight", "ArrowRight", "ArrowLeft"):
        keyboard.press(key)
    expect(opens.nth(1)).to_be_focused()

    keyboard.press("Enter")
    words = page.evidence.locator(".word")
    expect(words.first).to_be_visible()
    tab_to(page, ".word")
    expect(words.first).to_be_focused()
    expect(page.viewer.locator(".region.lit")).to_have_attribute(
        "data-region", data_of(words, "region")[0]
    )
    for _ in range(2 * _MOST_TABS):  # the focus stays in an open dialog
        keyboard.press("Tab")
        assert not page.page.evaluate(_OUTSIDE)
    keyboard.press("Escape")
    expect(page.viewer).to_be_hidden()
    expect(opens.nth(1)).to_be_focused()
    keyboard.press("/")
    expect(page.words).to_be_focused()


def test_arrows_go_by_rows_and_to_both_ends_and_results_are_one_step_from_the_top(
    page: SearchPage,
) -> None:
    page.open().find(WORDS)
    opens = page.hits.locator(".open")
    tops = page.hits.evaluate_all("hits => hits.map(hit => hit.offsetTop)")
    opens.first.focus()
    for key, place in (
        ("ArrowDown", tops.count(tops[0])),
        ("ArrowUp", 0),
        ("End", 23),  # further ones are loaded then
        ("Home", 0),
    ):
        page.page.keyboard.press(key)
        expect(opens.nth(place)).to_be_focused()
    page.page.locator(".skip").focus()
    page.page.keyboard.press("Enter")
    expect(page.page.locator("#found")).to_be_focused()
    page.page.keyboard.press("Shift+Tab")
    tab_to(page, "#hits .open")


def test_what_the_page_is_to_a_screen_reader(page: SearchPage) -> None:
    hits = page.open().find(WORDS)["hits"]
    expect(page.page.get_by_role("search")).to_be_visible()
    expect(page.page.get_by_role("combobox", name="Words to search for")).to_have_value(WORDS)
    expect(page.page.get_by_role("status").filter(has_text="24 photos shown")).to_be_visible()
    found = page.page.get_by_role("region", name="Results").get_by_role("list", name="Hits")
    expect(found.get_by_role("listitem")).to_have_count(len(hits))
    first = found.get_by_role("listitem").first.get_by_role("button", name=hits[0]["text"]).first
    expect(first).to_have_attribute("aria-haspopup", "dialog")
    page.open_evidence(page.hits.first)
    expect(page.page.get_by_role("dialog", name=hits[0]["text"])).to_be_visible()


def test_a_search_its_evidence_two_orders_and_terms_under_a_thumb(
    open_page: OpenPage, url: str
) -> None:
    def assert_tappable(buttons: Locator) -> None:
        assert not is_too_wide(page)
        sizes = buttons.evaluate_all(
            "all => all.map((one) => one.getBoundingClientRect()).map((b) => [b.width, b.height])"
        )
        assert min(min(size) for size in sizes) >= _TARGET_PX

    phone = {"width": 320, "height": 640}
    page = open_page(url, viewport=phone, has_touch=True, is_mobile=True).open()
    with page.answer_shown():
        page.words.tap()
        page.page.keyboard.type(WORDS)
        page.page.get_by_role("button", name="Search", exact=True).tap()
    page.expect_photos()
    tops = page.hits.evaluate_all("hits => hits.map(hit => hit.getBoundingClientRect().top)")
    assert [tops.count(top) for top in sorted(set(tops))] == [3] * (len(tops) // 3)
    expect(page.page.get_by_text("drop").locator("visible=true")).to_have_count(0)
    assert_tappable(page.hits.first.locator(".mark"))
    page.hits.nth(1).locator("button.open").tap()
    words = page.evidence.locator(".word")
    words.first.tap()
    expect(page.viewer.locator(".region.lit")).to_have_count(1)
    assert_tappable(words)
    page.page.keyboard.press("Escape")
    page.show_details()
    with page.answer_shown():
        page.compare()
    expect(page.matching_hits.first).to_be_visible()
    assert not is_too_wide(page)
    page.page.locator("#refine-toggle").tap()
    page.page.locator("#refine-words").fill("a very long term of the query that is cut")
    with page.answer_shown():
        page.page.locator("#refine-without").tap()
    assert_tappable(page.terms.locator("button"))
    with page.answer_shown():
        page.terms.first.locator(".remove").tap()
