"""The page under a thumb."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from benchmarks.service.search_page import SearchPage

pytestmark = pytest.mark.browser

OpenPage = Callable[..., SearchPage]

WORDS = "a large triangle with dots"
_TARGET_PX = 24  # WCAG 2.2, success criterion 2.5.8


@pytest.mark.parametrize("width_px", [320, 375])
def test_a_search_and_its_evidence(open_page: OpenPage, url: str, width_px: int) -> None:
    phone = {"width": width_px, "height": 700}
    page = open_page(url, viewport=phone, has_touch=True, is_mobile=True).open()
    too_wide = "document.documentElement.scrollWidth > window.innerWidth"
    with page.answer_shown():
        page.words.tap()
        page.page.keyboard.type(WORDS)
        page.page.get_by_role("button", name="Search", exact=True).tap()
    page.expect_photos()
    assert not page.page.evaluate(too_wide)
    tops = page.hits.evaluate_all("hits => hits.map(hit => hit.getBoundingClientRect().top)")
    assert tops == sorted(set(tops))  # one below the other
    expect(page.page.get_by_text("drop").locator("visible=true")).to_have_count(0)

    page.hits.nth(1).locator("button.open").tap()
    words = page.evidence.locator(".word")
    words.first.tap()

    expect(page.viewer.locator(".region.lit")).to_have_count(1)
    assert not page.page.evaluate(too_wide)
    heights = words.evaluate_all("words => words.map(word => word.getBoundingClientRect().height)")
    assert min(heights) >= _TARGET_PX


def test_two_orders_beside_each_other(open_page: OpenPage, url: str) -> None:
    page = open_page(url, viewport={"width": 320, "height": 700}).open()
    page.find(WORDS)

    page.show_details()
    with page.answer_shown():
        page.compare()

    expect(page.matching_hits.first).to_be_visible()
    assert page.page.evaluate("document.documentElement.scrollWidth") == 320
