"""The order of what is listed and found, and comparisons that go on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest
from playwright.sync_api import expect

from benchmarks.service.search_page import Answer, SearchPage, data_of

pytestmark = pytest.mark.browser

OpenPage = Callable[..., SearchPage]

WORDS = "a yellow circle left of a striped triangle"
_FIRST_IN_VIEW = """
() => [...document.querySelectorAll("#hits .hit")]
  .map((hit) => [hit.dataset.id, hit.getBoundingClientRect()])
  .filter(([, box]) => box.bottom > 0).map(([id, box]) => [id, box.top])[0]
"""
LARGEST, SMALLEST = "number, largest first", "number, smallest first"


def ask(api: httpx.Client, **fields: Any) -> Answer:
    """Search for photos as the page does."""
    return api.post("/v1/search/images", json={"text": WORDS, "k": 24, **fields}).json()


def ids_of(answer: Answer) -> list[str]:
    return [hit["id"] for hit in answer["hits"]]


def choose(page: SearchPage, name: str) -> None:
    page.page.get_by_label("Order").select_option(label=name)


def test_hits_are_sorted_by_a_field_and_by_relevance_again(
    page: SearchPage, api: httpx.Client
) -> None:
    best = ids_of(ask(api))
    page.open().find(WORDS)
    expect(page.page.get_by_label("Order")).to_be_visible()
    expect(page.page.locator("#sort option")).to_have_text(["Best match", LARGEST, SMALLEST])

    with page.answer_shown():
        choose(page, SMALLEST)

    assert page.ids() == ids_of(ask(api, sort="number"))
    assert set(page.ids()) == set(best) != page.ids()
    expect(page.status).to_contain_text("The best 24 photos, by number, smallest first.")
    with page.answer_shown():
        choose(page, "Best match")
    page.expect_hits(best)


def test_more_hits_are_sorted_in(page: SearchPage, api: httpx.Client) -> None:
    page.open().find(WORDS)
    with page.answer_shown():
        choose(page, LARGEST)
    page.page.evaluate("scrollTo(0, document.body.scrollHeight)")
    expect(page.hits).to_have_count(24)  # further ones are not at the end
    more = page.page.get_by_role("button", name="Include 24 more")
    more.scroll_into_view_if_needed()
    item_id, top = page.page.evaluate(_FIRST_IN_VIEW)

    more.click()
    page.expect_hits(ids_of(ask(api, k=48, sort="-number")))
    kept = page.page.locator(f"#hits [data-id='{item_id}']")
    assert kept.evaluate("hit => hit.getBoundingClientRect().top") == pytest.approx(top, abs=2)
    kept.get_by_role("button").first.click()
    place = page.ids().index(item_id)
    expect(page.viewer.locator("#viewer-place")).to_have_text(f"{place + 1} of 48")
    page.viewer.get_by_role("button", name="Close").click()
    page.page.get_by_role("button", name="Include 24 more").click()

    page.expect_hits(ids_of(ask(api, k=64, sort="-number")))
    expect(page.status).to_contain_text("64 photos shown, by number, largest first.")
    expect(page.page.locator("#more")).to_be_hidden()


def test_the_order_is_in_the_address_and_in_the_history(
    page: SearchPage, open_page: OpenPage, url: str, api: httpx.Client
) -> None:
    page.open().find(WORDS)
    page.filter_by({"number": {"gte": 20}})
    with page.answer_shown():
        choose(page, LARGEST)
    wanted = ids_of(ask(api, sort="-number", filter={"number": {"gte": 20}}))

    other = open_page(url)
    other.page.goto(page.page.url)
    other.expect_hits(wanted)
    expect(other.page.locator("#sort option:checked")).to_have_text(LARGEST)

    page.expect_hits(wanted)
    page.page.go_back()
    page.expect_hits(ids_of(ask(api, filter={"number": {"gte": 20}})))
    expect(page.page.locator("#sort option:checked")).to_have_text("Best match")


def test_an_order_holds_for_the_next_search_and_not_for_all_items(page: SearchPage) -> None:
    page.open().find(WORDS)
    with page.answer_shown():
        choose(page, LARGEST)
    numbers = [hit["metadata"]["number"] for hit in page.find("two dogs")["hits"]]
    assert numbers == sorted(numbers, reverse=True)

    page.words.fill("")
    page.words.press("Enter")

    expect(page.listed.first).to_be_visible()
    expect(page.page.locator("#sort option:checked")).to_have_text("Newest first")


def test_all_items_are_sorted_by_a_field(page: SearchPage, api: httpx.Client) -> None:
    page.open()
    own = ["Newest first", "Oldest first"]
    expect(page.page.locator("#sort option")).to_have_text([*own, LARGEST, SMALLEST])

    choose(page, SMALLEST)

    listed = api.get("/v1/items/images?limit=60&sort=number&order=asc").json()["items"]
    expect(page.listed.first).to_have_attribute("data-id", listed[0]["id"])
    assert data_of(page.listed, "id")[:60] == [item["id"] for item in listed]
    page.page.reload()
    expect(page.listed.first).to_have_attribute("data-id", listed[0]["id"])
    expect(page.page.locator("#sort option:checked")).to_have_text(SMALLEST)


def test_a_field_that_no_item_has_leaves_the_best_first(
    page: SearchPage, api: httpx.Client
) -> None:
    page.open("text=two+dogs&sort=-rating")
    expect(page.status).to_contain_text("best first: no photo has the metadata field “rating”")
    assert page.ids() == ids_of(ask(api, text="two dogs"))


def test_both_rankings_go_on_when_they_are_compared(page: SearchPage, api: httpx.Client) -> None:
    page.open().find(WORDS)
    with page.answer_shown():
        choose(page, LARGEST)
    page.show_details()
    with page.answer_shown():
        page.compare()
    expect(page.page.locator("#sort")).to_be_hidden()  # ranks are compared by relevance

    page.page.locator("#more").scroll_into_view_if_needed()

    both, alone = ask(api, k=48), ask(api, k=48, rerank=False)
    page.expect_hits(ids_of(both))
    assert data_of(page.matching_hits, "id") == ids_of(alone)
    entered = page.hits.filter(has=page.page.locator(".entered"))
    assert set(data_of(entered, "id")) == set(ids_of(both)) - set(ids_of(alone))
    expect(page.page.locator(".moved")).to_have_count(96)
    expect(page.status).to_contain_text("to the first 48.")
