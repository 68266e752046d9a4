"""A whole search without a mouse."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from benchmarks.service.search_page import SearchPage, data_of

pytestmark = pytest.mark.browser

WORDS = "a spotted circle under the stars"
# More than there are things to come to before the hits.
_MOST_TABS = 20


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
    expect(page.hits.first.locator(".open")).to_be_focused()
    keyboard.press("ArrowRight")
    keyboard.press("ArrowRight")
    keyboard.press("ArrowLeft")
    expect(page.hits.nth(1).locator(".open")).to_be_focused()

    keyboard.press("Enter")
    words = page.evidence.locator(".word")
    expect(words.first).to_be_visible()
    tab_to(page, ".word")
    expect(words.first).to_be_focused()
    expect(page.viewer.locator(".region.lit")).to_have_attribute(
        "data-region", data_of(words, "region")[0]
    )

    keyboard.press("Escape")
    expect(page.viewer).to_be_hidden()
    expect(page.hits.nth(1).locator(".open")).to_be_focused()

    keyboard.press("/")
    expect(page.words).to_be_focused()


def test_the_focus_stays_in_an_open_dialog(page: SearchPage) -> None:
    page.open().find(WORDS)
    page.open_evidence(page.hits.first)

    for _ in range(2 * _MOST_TABS):
        page.page.keyboard.press("Tab")
        outside = page.page.evaluate(
            "() => !document.activeElement.closest('dialog') "
            "&& document.activeElement !== document.body"  # the browser's own bar comes there
        )
        assert not outside


def test_arrows_go_by_rows_and_to_both_ends(page: SearchPage) -> None:
    page.open().find(WORDS)
    opens = page.hits.locator(".open")
    tops = page.hits.evaluate_all("hits => hits.map(hit => hit.offsetTop)")
    in_a_row = tops.count(tops[0])
    opens.first.focus()

    page.page.keyboard.press("ArrowDown")
    expect(opens.nth(in_a_row)).to_be_focused()
    page.page.keyboard.press("ArrowUp")
    expect(opens.first).to_be_focused()
    page.page.keyboard.press("End")
    expect(opens.nth(23)).to_be_focused()  # further ones are loaded then
    page.page.keyboard.press("Home")
    expect(opens.first).to_be_focused()


def test_the_results_are_one_step_from_the_top(page: SearchPage) -> None:
    page.open().find(WORDS)
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
    first = found.get_by_role("listitem").first
    expect(first.get_by_role("button", name=hits[0]["text"]).first).to_have_attribute(
        "aria-haspopup", "dialog"
    )
    page.open_evidence(page.hits.first)
    expect(page.page.get_by_role("dialog", name=hits[0]["text"])).to_be_visible()
