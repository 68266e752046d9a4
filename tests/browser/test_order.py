"""The order of what is listed and found."""

from __future__ import annotations

import httpx
import pytest
from playwright.sync_api import expect

from benchmarks.service.search_page import SearchPage, data_of
from tests.browser.conftest import Shared, asked, ids_of

pytestmark = pytest.mark.browser

WORDS = "a yellow circle left of a striped triangle"
_FIRST_IN_VIEW = """
() => [...document.querySelectorAll("#hits .hit")]
  .map((hit) => [hit.dataset.id, hit.getBoundingClientRect()])
  .filter(([, box]) => box.bottom > 0).map(([id, box]) => [id, box.top])[0]
"""
LARGEST, SMALLEST = "number, largest first", "number, smallest first"


def sort(page: SearchPage, name: str) -> None:
    page.page.get_by_label("Order").select_option(label=name)


def sort_hits(page: SearchPage, name: str) -> None:
    with page.answer_shown():
        sort(page, name)


def test_hits_are_sorted_by_a_field_until_all_items_are_listed(
    page: SearchPage, api: httpx.Client
) -> None:
    best = ids_of(asked(api, text=WORDS))
    page.open().find(WORDS)
    options = page.page.locator("#sort option")
    expect(options).to_have_text(["Best match", LARGEST, SMALLEST])
    sort_hits(page, SMALLEST)
    assert page.ids() == ids_of(asked(api, text=WORDS, sort="number"))
    assert set(page.ids()) == set(best) != page.ids()
    expect(page.status).to_contain_text("The best 24 photos, by number, smallest first.")
    sort_hits(page, "Best match")
    page.expect_hits(best)
    sort_hits(page, LARGEST)  # holds for the next search, too
    numbers = [hit["metadata"]["number"] for hit in page.find("two dogs")["hits"]]
    assert numbers == sorted(numbers, reverse=True)
    page.show_details()
    with page.answer_shown():
        page.compare()
    expect(page.page.locator("#sort")).to_be_hidden()  # ranks are compared by relevance

    page.ask("")
    expect(page.listed.first).to_be_visible()
    expect(page.page.locator("#sort option:checked")).to_have_text("Newest first")
    expect(options).to_have_text(["Newest first", "Oldest first", LARGEST, SMALLEST])
    sort(page, SMALLEST)
    listed = ids_of(
        {"hits": api.get("/v1/items/images?limit=60&sort=number&order=asc").json()["items"]}
    )
    expect(page.listed.first).to_have_attribute("data-id", listed[0])
    assert data_of(page.listed, "id")[:60] == listed
    page.page.reload()
    expect(page.listed.first).to_have_attribute("data-id", listed[0])
    expect(page.page.locator("#sort option:checked")).to_have_text(SMALLEST)


def test_more_hits_are_sorted_in(page: SearchPage, api: httpx.Client) -> None:
    page.open().find(WORDS)
    sort_hits(page, LARGEST)
    page.page.evaluate("scrollTo(0, document.body.scrollHeight)")
    expect(page.hits).to_have_count(24)  # further ones are not at the end
    more = page.page.get_by_role("button", name="Include 24 more")
    more.scroll_into_view_if_needed()
    item_id, top = page.page.evaluate(_FIRST_IN_VIEW)
    more.click()
    page.expect_hits(ids_of(asked(api, text=WORDS, k=48, sort="-number")))
    kept = page.page.locator(f"#hits [data-id='{item_id}']")
    assert kept.evaluate("hit => hit.getBoundingClientRect().top") == pytest.approx(top, abs=2)
    kept.get_by_role("button").first.click()
    place = page.ids().index(item_id)
    expect(page.viewer.locator("#viewer-place")).to_have_text(f"{place + 1} of 48")
    page.viewer.get_by_role("button", name="Close").click()
    more.click()
    page.expect_hits(ids_of(asked(api, text=WORDS, k=64, sort="-number")))
    expect(page.status).to_contain_text("64 photos shown, by number, largest first.")
    expect(page.page.locator("#more")).to_be_hidden()


def test_the_order_is_in_the_address_and_in_the_history(
    page: SearchPage, shared: Shared, api: httpx.Client
) -> None:
    page.open().find(WORDS)
    filtered = {"text": WORDS, "filter": {"number": {"gte": 20}}}
    page.filter_by(filtered["filter"])
    sort_hits(page, LARGEST)
    other = shared(page)
    other.expect_hits(ids_of(asked(api, **filtered, sort="-number")))
    expect(other.page.locator("#sort option:checked")).to_have_text(LARGEST)
    page.page.go_back()
    page.expect_hits(ids_of(asked(api, **filtered)))
    expect(page.page.locator("#sort option:checked")).to_have_text("Best match")
    page.page.goto("about:blank")
    page.open("text=two+dogs&sort=-rating")
    expect(page.status).to_contain_text("best first: no photo has the metadata field “rating”")
    assert page.ids() == ids_of(asked(api, text="two dogs"))
