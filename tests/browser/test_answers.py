"""What an answer shows beside its hits: the other order, further pages, times, filters."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from playwright.sync_api import expect

from benchmarks.service.page_answers import refuse
from benchmarks.service.search_page import Answer, SearchPage, data_of

pytestmark = pytest.mark.browser

WORDS = "a yellow circle left of a striped triangle"


def ask(api: httpx.Client, **fields: Any) -> Answer:
    """Search for photos as the page does."""
    return api.post("/v1/search/images", json={"text": WORDS, "k": 24, **fields}).json()


def test_matching_alone_beside_two_stage(page: SearchPage, api: httpx.Client) -> None:
    page.open().find(WORDS)
    page.show_details()
    with page.answer_shown():
        page.compare()
    expect(page.matching_hits).to_have_count(24)

    both, alone = ask(api), ask(api, rerank=False)
    after = {hit["id"]: hit["rank"] for hit in both["hits"]}
    before = {hit["id"]: hit["rank"] for hit in alone["hits"]}
    moves = [hit["stages"]["match"]["rank"] - hit["rank"] for hit in both["hits"]]
    assert any(moves)  # otherwise there is nothing to see
    assert after.keys() != before.keys()
    assert page.ids() == list(after)
    assert data_of(page.hits.locator(".moved"), "moved") == [str(places) for places in moves]
    assert data_of(page.matching_hits, "id") == list(before)
    assert data_of(page.matching_hits.locator(".moved"), "moved") == [
        str(rank - after[item_id]) if item_id in after else "0" for item_id, rank in before.items()
    ]
    entered = page.hits.filter(has=page.page.locator(".entered"))
    assert set(data_of(entered, "id")) == after.keys() - before.keys()
    left = page.matching_hits.filter(has=page.page.locator(".left"))
    assert set(data_of(left, "id")) == before.keys() - after.keys()

    with page.answer_shown():
        page.page.locator("#compare").uncheck()
    expect(page.page.locator("#matching-column")).to_be_hidden()
    expect(page.page.locator(".moved")).to_have_count(0)


def test_further_hits_follow_at_the_end(page: SearchPage, api: httpx.Client) -> None:
    whole = [hit["id"] for hit in ask(api, k=64)["hits"]]
    page.open().find(WORDS)
    assert page.ids() == whole[:24]

    page.page.locator("#more").scroll_into_view_if_needed()
    page.expect_hits(whole[:48])
    page.page.locator("#more").scroll_into_view_if_needed()
    page.expect_hits(whole)
    expect(page.status).to_contain_text("64 photos shown")
    expect(page.page.locator("#more")).to_be_hidden()
    assert data_of(page.hits, "rank") == [str(rank) for rank in range(1, 65)]


def test_further_hits_by_keyboard(page: SearchPage, api: httpx.Client) -> None:
    whole = [hit["id"] for hit in ask(api, k=48)["hits"]]
    page.page.add_init_script(
        "window.IntersectionObserver = class { observe() {} disconnect() {} };"
    )
    page.open().find(WORDS)
    more = page.page.get_by_role("button", name="Show more")

    more.focus()
    page.page.keyboard.press("Enter")

    page.expect_hits(whole)
    expect(page.hits.nth(24).locator(".open")).to_be_focused()


def test_further_hits_that_do_not_come_can_be_asked_for_again(
    page: SearchPage, api: httpx.Client
) -> None:
    whole = [hit["id"] for hit in ask(api, k=48)["hits"]]
    page.open().find(WORDS)
    page.page.route("**/v1/search/**", refuse(429, "overloaded"), times=1)

    page.page.locator("#more").scroll_into_view_if_needed()
    again = page.page.locator("#more").get_by_role("button", name="Try again")
    expect(again).to_be_visible()
    again.click()

    page.expect_hits(whole)
    page.complaints.expect("status of 429")


def test_times_of_the_stages(page: SearchPage) -> None:
    took_ms = page.open().find(WORDS)["took_ms"]
    expect(page.page.locator("#timings")).to_be_hidden()  # for those who ask for it
    page.show_details()
    expect(page.page.locator("#timings")).to_be_visible()

    shown = [float(ms) for ms in data_of(page.page.locator("#timings li[data-ms]"), "ms")]
    stages = [took_ms[stage] for stage in ("decode", "encode", "retrieve", "rerank")]
    assert shown[:-1] == stages
    # The last is what is between them.
    assert sum(shown) == pytest.approx(took_ms["total"])


def test_a_filter_as_json(page: SearchPage, api: httpx.Client) -> None:
    wanted = {"or": [{"number": {"lt": 10}}, {"number": 40}]}
    everything = page.open().find(WORDS)

    answer = page.filter_by(wanted)

    assert {hit["metadata"]["number"] for hit in answer["hits"]} == {*range(10), 40}
    assert page.ids() == [hit["id"] for hit in ask(api, filter=wanted)["hits"]]
    with page.answer_shown():
        page.page.locator("#filters-in-force").get_by_role("button").click()
    assert page.ids() == [hit["id"] for hit in everything["hits"]]


def test_only_those_with_the_same_value(page: SearchPage) -> None:
    number = page.open().find(WORDS)["hits"][3]["metadata"]["number"]
    page.open_evidence(page.hits.nth(3))

    with page.answer_shown() as answer:
        page.viewer.get_by_title(f"Only with number {number}").click()

    assert [hit["metadata"] for hit in answer["hits"]] == [{"number": number}]
