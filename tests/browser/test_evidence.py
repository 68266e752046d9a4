"""Which word found which part of the photo, and how much of the score it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from playwright.sync_api import Locator, Route, expect

from benchmarks.service.search_page import SearchPage, data_of

pytestmark = pytest.mark.browser

WORDS = "a big green square right of a dotted blue star"


Maps = dict[str, Any]


@pytest.fixture(params=["images", "texts"])
def opened(
    request: pytest.FixtureRequest, page: SearchPage, api: httpx.Client, photo: Path
) -> tuple[SearchPage, Maps]:
    """The page with the evidence of a hit, both ways, and what the service answers about it."""
    page.open()
    if request.param == "images":
        hit = page.find(WORDS)["hits"][4]
        maps = api.get("/v1/explain", params={"text": WORDS, "id": hit["id"]})
    else:
        page.choose_target("texts")
        hit = page.find_photo(photo)["hits"][4]
        files = {"image": photo.read_bytes()}
        maps = api.post("/v1/explain", files=files, data={"id": hit["id"]})
    page.show_details()
    page.open_evidence(page.hits.nth(4))
    return page, maps.raise_for_status().json() | {"hit": hit}


def words_of(page: SearchPage) -> Locator:
    return page.evidence.locator(".word")


def lit_regions(page: SearchPage) -> Locator:
    return page.viewer.locator(".region.lit")


def number(text: str) -> float:
    """Read a number of the page, which has a sign of its own for less than nothing."""
    return float(text.replace("\N{MINUS SIGN}", "-"))


def test_the_words_are_those_of_the_answer(opened: tuple[SearchPage, Maps]) -> None:
    page, maps = opened

    words = [word["text"] for word in maps["words"]]
    assert words_of(page).locator(".token").all_text_contents() == words
    assert data_of(words_of(page), "region") == [str(word["region"]) for word in maps["words"]]


def test_the_numbers_add_up_to_the_score(opened: tuple[SearchPage, Maps]) -> None:
    page, maps = opened
    score = maps["hit"]["stages"]["align"]["score"]

    exact = [float(each) for each in data_of(words_of(page), "score")]
    assert exact == pytest.approx([word["score"] for word in maps["words"]], abs=1e-6)
    assert sum(exact) == pytest.approx(score, abs=1e-4)
    total = page.evidence.locator("#why-total")
    assert float(data_of(total, "total")[0]) == pytest.approx(score, abs=1e-4)
    # What is read is rounded to four digits, each number for itself.
    assert number(total.inner_text()) == pytest.approx(score, abs=1e-4)
    read = [number(text) for text in words_of(page).locator(".number").all_text_contents()]
    assert read == pytest.approx(exact, abs=0.5001e-4)


def test_numbers_are_for_those_who_ask_for_them(page: SearchPage) -> None:
    page.open().find(WORDS)
    page.open_evidence(page.hits.first)

    expect(words_of(page).first.locator(".number")).to_be_hidden()
    expect(page.viewer.locator("#scores")).to_be_hidden()
    expect(page.viewer.locator("#why-sum")).to_be_hidden()
    expect(page.hits.first.locator(".scores")).to_be_hidden()


def test_a_word_shows_where_it_fits(opened: tuple[SearchPage, Maps]) -> None:
    page, maps = opened
    cells = page.viewer.locator(".region")
    for word, expected in zip(words_of(page).all(), maps["words"], strict=True):
        word.hover()
        expect(lit_regions(page)).to_have_count(1)
        expect(lit_regions(page)).to_have_attribute("data-region", str(expected["region"]))
        expect(page.evidence.locator(".word.lit")).to_have_count(1)
        expect(word).to_contain_class("lit")
        cosines = expected["cosines"]
        low, high = min(cosines), max(cosines)
        strengths = cells.evaluate_all(
            "cells => cells.map(cell => [cell.dataset.region, "
            "cell.style.getPropertyValue('--strength')])"
        )
        for region, strength in strengths:
            fits = (cosines[int(region)] - low) / (high - low)
            assert float(strength) == pytest.approx(fits, abs=1e-3)

    page.viewer.locator("#viewer-title").hover()
    expect(lit_regions(page)).to_have_count(0)
    expect(page.viewer.locator(".frame.heated")).to_have_count(0)


def test_a_region_is_where_the_answer_says(opened: tuple[SearchPage, Maps]) -> None:
    page, maps = opened
    frame = page.viewer.locator(".regions").bounding_box()
    assert frame is not None
    expect(page.viewer.locator(".region")).to_have_count(len(maps["regions"]))
    for number, region in enumerate(maps["regions"]):
        box = page.viewer.locator(f".region[data-region='{number}']").bounding_box()
        assert box is not None
        left, top, right, bottom = region["box"]
        assert (box["x"] - frame["x"]) / frame["width"] == pytest.approx(left, abs=0.01)
        assert (box["y"] - frame["y"]) / frame["height"] == pytest.approx(top, abs=0.01)
        assert box["width"] / frame["width"] == pytest.approx(right - left, abs=0.01)
        assert box["height"] / frame["height"] == pytest.approx(bottom - top, abs=0.01)


def test_a_region_that_is_clicked_keeps_its_words_lit(opened: tuple[SearchPage, Maps]) -> None:
    page, maps = opened
    region = maps["words"][0]["region"]
    its_words = [word["region"] == region for word in maps["words"]]

    page.viewer.locator(f".region[data-region='{region}']").click()
    page.viewer.locator("#viewer-title").hover()

    expect(page.evidence.locator(".word.lit")).to_have_count(sum(its_words))
    lit = words_of(page).evaluate_all("all => all.map(word => word.classList.contains('lit'))")
    assert lit == its_words


def test_the_same_as_a_picture(page: SearchPage, api: httpx.Client) -> None:
    page.open().find(WORDS)
    page.show_details().open_evidence(page.hits.first)

    address = page.viewer.get_by_role("link", name="as PNG").get_attribute("href")

    picture = api.get(f"/{address}").raise_for_status()
    assert picture.headers["content-type"] == "image/png"


def test_a_photo_of_ones_own_has_its_picture_too(page: SearchPage, photo: Path) -> None:
    page.open().choose_target("texts")
    page.find_photo(photo)
    page.show_details().open_evidence(page.hits.first)

    with page.page.expect_download() as caught:
        page.viewer.get_by_role("button", name="as PNG").click()

    assert caught.value.path().read_bytes().startswith(b"\x89PNG")


def test_two_photos_have_none(page: SearchPage, photo: Path) -> None:
    page.open().find_photo(photo)

    page.hits.first.locator("button.open").click()

    expect(page.viewer.locator("#viewer-facts")).not_to_be_empty()
    expect(page.evidence).to_be_hidden()


def test_an_alignment_that_was_not_trained_explains_nothing(page: SearchPage) -> None:
    def untrained(route: Route) -> None:
        answer = route.fetch()
        route.fulfill(response=answer, json={**answer.json(), "alignment_trained": False})

    page.page.route("**/v1/index", untrained)
    asked: list[str] = []
    page.page.on("request", lambda request: asked.append(urlsplit(request.url).path))
    page.open().find(WORDS)

    page.hits.first.locator("button.open").click()

    expect(page.viewer.locator("#viewer-facts")).not_to_be_empty()
    expect(page.evidence).to_be_hidden()
    expect(page.viewer.get_by_role("link", name="as PNG")).to_have_count(0)
    assert "/v1/explain" not in asked
