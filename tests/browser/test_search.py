"""Searching both ways, with words, with photos and with what was found."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from playwright.sync_api import Route, expect

from benchmarks.service.search_page import SearchPage, Way
from tests.browser.conftest import asked, ids_of

pytestmark = pytest.mark.browser

WORDS = "a small red star above a blue square"
_DRAG = """(types) => {
  const data = new DataTransfer();
  if (types === "photo") data.items.add(new File(["x"], "photo.png", { type: "image/png" }));
  else data.setData("text/plain", "a red star");
  return data;
}"""


def test_words_find_photos_and_the_other_target_asks_the_same_anew(
    page: SearchPage, api: httpx.Client
) -> None:
    page.open().find(WORDS)
    assert page.ids() == ids_of(asked(api, text=WORDS))
    page.expect_photos()
    expect(page.hits.first.locator("img")).to_be_visible()
    expect(page.status).to_contain_text("24 photos shown")
    page.choose_target("texts")
    assert page.ids() == ids_of(asked(api, "texts", text=WORDS))
    expect(page.hits.locator("img")).to_have_count(0)
    expect(page.status).to_contain_text("by embedding only")


def test_all_items_can_be_the_candidates(page: SearchPage, api: httpx.Client) -> None:
    page.open().show_details().find(WORDS)
    page.page.locator("#options-toggle").click()
    choice = page.page.locator("#option-all")
    with page.answer_shown() as answer:
        choice.check()
    assert answer["candidates"] == api.get("/v1/index").json()["images"]["count"]
    assert page.ids() == ids_of(asked(api, text=WORDS, candidates="exhaustive"))
    expect(page.page.locator("#option-candidates")).to_be_disabled()
    with page.answer_shown() as again:  # the address keeps the choice
        page.page.reload()
    assert again["candidates"] == answer["candidates"]
    expect(choice).to_be_checked()


def test_all_items_are_no_choice_where_the_service_refuses_them(page: SearchPage) -> None:
    def refuse(route: Route) -> None:
        answer = route.fetch()
        images = answer.json()["images"] | {"takes_all": False}
        route.fulfill(response=answer, json=answer.json() | {"images": images})

    page.page.route("**/v1/index", refuse)
    page.open().show_details().find(WORDS)
    page.page.locator("#options-toggle").click()
    expect(page.page.locator("#option-candidates")).to_be_visible()
    expect(page.page.locator("#option-all")).to_be_hidden()
    page.choose_target("texts")
    expect(page.page.locator("#option-all")).to_be_visible()


@pytest.mark.parametrize("way", ["choose", "drop", "paste"])
def test_a_photo_finds_photos_and_texts(
    page: SearchPage, api: httpx.Client, photo: Path, way: str
) -> None:
    page.open()
    page.find_photo(photo) if way == "choose" else page.hand_over(photo, cast(Way, way))
    assert page.ids() == ids_of(asked(api, photo=photo))
    page.choose_target("texts")
    assert page.ids() == ids_of(asked(api, "texts", photo=photo))
    expect(page.page.locator("#example-name")).to_have_text(photo.name)
    expect(page.words).to_be_hidden()
    page.choose_target("images")
    page.page.locator("#example-remove").click()  # the page is as at its start then
    expect(page.words).to_be_focused()
    expect(page.hits).to_have_count(0)
    expect(page.listed.first).to_be_visible()
    expect(page.status).to_have_text("64 photos.")


def test_photos_that_are_dragged_over_the_page_are_taken_and_words_are_not(
    page: SearchPage,
) -> None:
    body = page.open().page.locator("body")
    dragged: Any = {"dataTransfer": page.page.evaluate_handle(_DRAG, "photo")}
    body.dispatch_event("dragover", dragged)
    expect(body).to_contain_class("dropping")
    body.dispatch_event("dragleave", {**dragged, "relatedTarget": None})
    expect(body).not_to_contain_class("dropping")
    dragged = {"dataTransfer": page.page.evaluate_handle(_DRAG, "words")}
    body.dispatch_event("dragover", dragged)
    body.dispatch_event("drop", dragged)
    expect(body).not_to_contain_class("dropping")
    expect(page.hits).to_have_count(0)


def test_from_a_hit_to_others_like_it_to_its_texts_and_to_their_photos(
    page: SearchPage, api: httpx.Client
) -> None:
    hit = page.open().find(WORDS)["hits"][2]
    with page.answer_shown():
        page.hits.nth(2).locator("button.similar").click()
    assert page.ids() == ids_of(asked(api, id=hit["id"]))
    assert hit["id"] not in page.ids()
    expect(page.page.locator("#example-name")).to_have_text(hit["text"])

    page.page.go_back()
    page.expect_hits(ids_of(asked(api, text=WORDS)))
    photo = page.ids()[0]
    page.open_evidence(page.hits.first)
    with page.answer_shown() as texts:
        page.viewer.get_by_role("button", name="Texts for this photo").click()
    assert page.ids() == ids_of(asked(api, "texts", id=photo))
    expect(page.page.locator("input[name=target][value=texts]")).to_be_checked()
    expect(page.viewer).to_be_hidden()
    page.open_evidence(page.hits.first)
    with page.answer_shown():
        page.viewer.get_by_role("button", name="Photos for this text").click()
    assert page.ids() == ids_of(asked(api, id=texts["hits"][0]["id"]))


def test_the_latest_search_is_shown_however_late_the_one_before_is(page: SearchPage) -> None:
    held: list[Route] = []
    page.open()
    page.page.route("**/v1/search/**", lambda route: held.append(route), times=1)
    page.ask("two dogs run")
    expect(page.status).to_contain_text("Searching")
    answer = page.find(WORDS)
    assert held[0].request.failure == "net::ERR_ABORTED"
    assert page.ids() == ids_of(answer)
