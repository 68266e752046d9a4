"""Searching both ways, with words, with photos and with what was found."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Route, expect

from aladin_network.types import Target
from benchmarks.service.search_page import SearchPage, Way

pytestmark = pytest.mark.browser

WORDS = "a small red star above a blue square"


def ids_of(api: httpx.Client, target: Target, fields: dict[str, object]) -> list[str]:
    """What the service finds on the page's first page of hits."""
    answer = api.post(f"/v1/search/{target}", json={"k": 24, **fields}).raise_for_status()
    return [hit["id"] for hit in answer.json()["hits"]]


def ids_of_photo(api: httpx.Client, target: Target, photo: Path) -> list[str]:
    """The same with a photo."""
    files = {"image": photo.read_bytes()}
    answer = api.post(f"/v1/search/{target}", files=files, data={"k": "24"}).raise_for_status()
    return [hit["id"] for hit in answer.json()["hits"]]


def test_words_find_photos(page: SearchPage, api: httpx.Client) -> None:
    page.open().find(WORDS)

    assert page.ids() == ids_of(api, "images", {"text": WORDS})
    page.expect_photos()
    expect(page.hits.first.locator("img")).to_be_visible()
    expect(page.status).to_contain_text("24 photos shown")


def test_all_items_can_be_the_candidates(page: SearchPage, api: httpx.Client) -> None:
    page.open().show_details().find(WORDS)
    page.page.locator("#options-toggle").click()
    choice = page.page.locator("#option-all")
    with page.answer_shown() as answer:
        choice.check()

    assert answer["candidates"] == api.get("/v1/index").json()["images"]["count"]
    assert page.ids() == ids_of(api, "images", {"text": WORDS, "candidates": "exhaustive"})
    expect(page.page.locator("#option-candidates")).to_be_disabled()
    # The address keeps the choice.
    with page.answer_shown() as again:
        page.page.reload()
    assert again["candidates"] == answer["candidates"]
    expect(choice).to_be_checked()


def test_all_items_are_no_choice_where_the_service_refuses_them(page: SearchPage) -> None:
    def refuse(route: Route) -> None:
        answer = route.fetch()
        described = answer.json()
        described["images"]["takes_all"] = False
        route.fulfill(response=answer, json=described)

    page.page.route("**/v1/index", refuse)
    page.open().show_details().find(WORDS)
    page.page.locator("#options-toggle").click()
    expect(page.page.locator("#option-candidates")).to_be_visible()
    expect(page.page.locator("#option-all")).to_be_hidden()
    page.choose_target("texts")
    expect(page.page.locator("#option-all")).to_be_visible()


def test_words_find_texts_by_embedding_alone(page: SearchPage, api: httpx.Client) -> None:
    page.open().choose_target("texts")
    page.find(WORDS)

    assert page.ids() == ids_of(api, "texts", {"text": WORDS})
    expect(page.hits.locator("img")).to_have_count(0)
    expect(page.status).to_contain_text("by embedding only")


def test_a_chosen_photo_finds_texts(page: SearchPage, api: httpx.Client, photo: Path) -> None:
    page.open().choose_target("texts")
    page.find_photo(photo)

    assert page.ids() == ids_of_photo(api, "texts", photo)
    expect(page.page.locator("#example-name")).to_have_text(photo.name)
    expect(page.words).to_be_hidden()


@pytest.mark.parametrize("way", ["drop", "paste"])
def test_a_photo_handed_over_finds_photos(
    page: SearchPage, api: httpx.Client, photo: Path, way: Way
) -> None:
    page.open().hand_over(photo, way)

    assert page.ids() == ids_of_photo(api, "images", photo)


def test_the_page_says_that_it_takes_what_is_dragged_over_it(page: SearchPage) -> None:
    body = page.open().page.locator("body")
    dragged = page.page.evaluate_handle(
        """() => {
          const data = new DataTransfer();
          data.items.add(new File(["x"], "photo.png", { type: "image/png" }));
          return data;
        }"""
    )

    body.dispatch_event("dragover", {"dataTransfer": dragged})
    expect(body).to_contain_class("dropping")
    body.dispatch_event("dragleave", {"dataTransfer": dragged, "relatedTarget": None})
    expect(body).not_to_contain_class("dropping")


def test_dragged_words_are_none_of_the_pages_business(page: SearchPage) -> None:
    body = page.open().page.locator("body")
    dragged = page.page.evaluate_handle(
        """() => {
          const data = new DataTransfer();
          data.setData("text/plain", "a red star");
          return data;
        }"""
    )

    body.dispatch_event("dragover", {"dataTransfer": dragged})
    body.dispatch_event("drop", {"dataTransfer": dragged})

    expect(body).not_to_contain_class("dropping")
    expect(page.hits).to_have_count(0)


def test_more_like_a_hit(page: SearchPage, api: httpx.Client) -> None:
    found = page.open().find(WORDS)["hits"][2]

    with page.answer_shown():
        page.hits.nth(2).locator("button.similar").click()

    assert page.ids() == ids_of(api, "images", {"id": found["id"]})
    assert found["id"] not in page.ids()
    expect(page.page.locator("#example-name")).to_have_text(found["text"])


def test_from_a_photo_to_its_texts_and_from_a_text_to_its_photos(
    page: SearchPage, api: httpx.Client
) -> None:
    photo = page.open().find(WORDS)["hits"][0]["id"]
    page.open_evidence(page.hits.first)
    with page.answer_shown() as texts:
        page.viewer.get_by_role("button", name="Texts for this photo").click()
    assert page.ids() == ids_of(api, "texts", {"id": photo})
    expect(page.page.locator("input[name=target][value=texts]")).to_be_checked()
    expect(page.viewer).to_be_hidden()

    page.open_evidence(page.hits.first)
    with page.answer_shown():
        page.viewer.get_by_role("button", name="Photos for this text").click()
    assert page.ids() == ids_of(api, "images", {"id": texts["hits"][0]["id"]})


def test_the_other_target_asks_the_same_anew(page: SearchPage, api: httpx.Client) -> None:
    page.open().find(WORDS)

    with page.answer_shown():
        page.choose_target("texts")

    assert page.ids() == ids_of(api, "texts", {"text": WORDS})


def test_without_its_photo_the_page_is_as_at_its_start(page: SearchPage, photo: Path) -> None:
    page.open().find_photo(photo)

    page.page.locator("#example-remove").click()

    expect(page.words).to_be_focused()
    expect(page.hits).to_have_count(0)
    expect(page.listed.first).to_be_visible()
    expect(page.status).to_have_text("64 photos.")


def test_the_latest_search_is_shown_however_late_the_one_before_is(page: SearchPage) -> None:
    held: list[Route] = []
    page.open()
    page.page.route("**/v1/search/**", lambda route: held.append(route), times=1)
    page.ask("two dogs run")
    expect(page.status).to_contain_text("Searching")

    answer = page.find(WORDS)

    assert held[0].request.failure == "net::ERR_ABORTED"
    assert page.ids() == [hit["id"] for hit in answer["hits"]]
