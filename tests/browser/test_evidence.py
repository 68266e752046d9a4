"""Which word found which part of the photo, and how much of the score it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from playwright.sync_api import Locator, Route, expect

from benchmarks.service.search_page import SearchPage, data_of
from tests.browser.conftest import place_of

pytestmark = pytest.mark.browser

WORDS = "a big green square right of a dotted blue star"


@pytest.fixture(params=["images", "texts"])
def opened(
    request: pytest.FixtureRequest, page: SearchPage, api: httpx.Client, photo: Path
) -> tuple[SearchPage, dict[str, Any]]:
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


def number(text: str) -> float:
    """Read a number of the page, which has a sign of its own for less than nothing."""
    return float(text.replace("\N{MINUS SIGN}", "-"))


def test_words_numbers_and_regions_are_those_of_the_answer(
    opened: tuple[SearchPage, dict[str, Any]],
) -> None:
    page, maps = opened
    words = words_of(page)
    assert words.locator(".token").all_text_contents() == [word["text"] for word in maps["words"]]
    assert data_of(words, "region") == [str(word["region"]) for word in maps["words"]]

    score = pytest.approx(maps["hit"]["stages"]["align"]["score"], abs=1e-4)
    exact = [float(each) for each in data_of(words, "score")]
    assert exact == pytest.approx([word["score"] for word in maps["words"]], abs=1e-6)
    total = page.evidence.locator("#why-total")
    assert [sum(exact), float(data_of(total, "total")[0]), number(total.inner_text())] == [
        score
    ] * 3
    # What is read is rounded to four digits, each number for itself.
    read = [number(text) for text in words.locator(".number").all_text_contents()]
    assert read == pytest.approx(exact, abs=0.5001e-4)

    frame = place_of(page.viewer.locator(".regions"))
    expect(page.viewer.locator(".region")).to_have_count(len(maps["regions"]))
    for region, facts in enumerate(maps["regions"]):
        box = place_of(page.viewer.locator(f".region[data-region='{region}']"))
        left, top, right, bottom = facts["box"]
        assert [
            (box["x"] - frame["x"]) / frame["width"],
            (box["y"] - frame["y"]) / frame["height"],
            box["width"] / frame["width"],
            box["height"] / frame["height"],
        ] == pytest.approx([left, top, right - left, bottom - top], abs=0.01)


def test_a_word_shows_where_it_fits_and_a_region_that_is_clicked_keeps_its_words_lit(
    opened: tuple[SearchPage, dict[str, Any]],
) -> None:
    page, maps = opened
    lit = page.viewer.locator(".region.lit")
    for word, expected in zip(words_of(page).all(), maps["words"], strict=True):
        word.hover()
        expect(lit).to_have_count(1)
        expect(lit).to_have_attribute("data-region", str(expected["region"]))
        expect(page.evidence.locator(".word.lit")).to_have_count(1)
        expect(word).to_contain_class("lit")
        low, high = min(expected["cosines"]), max(expected["cosines"])
        strengths = page.viewer.locator(".region").evaluate_all(
            "cells => cells.map(cell => [+cell.dataset.region, "
            "+cell.style.getPropertyValue('--strength')])"
        )
        fits = {at: (cosine - low) / (high - low) for at, cosine in enumerate(expected["cosines"])}
        assert dict(strengths) == pytest.approx(fits, abs=1e-3)
    page.viewer.locator("#viewer-title").hover()
    expect(lit).to_have_count(0)
    expect(page.viewer.locator(".frame.heated")).to_have_count(0)

    region = maps["words"][0]["region"]
    page.viewer.locator(f".region[data-region='{region}']").click()
    page.viewer.locator("#viewer-title").hover()
    its_words = [word["region"] == region for word in maps["words"]]
    expect(page.evidence.locator(".word.lit")).to_have_count(sum(its_words))
    lit_words = words_of(page).evaluate_all(
        "all => all.map(word => word.classList.contains('lit'))"
    )
    assert lit_words == its_words


def test_numbers_are_for_those_who_ask_for_them_and_so_is_the_picture(
    page: SearchPage, api: httpx.Client, photo: Path
) -> None:
    page.open().find(WORDS)
    page.open_evidence(page.hits.first)
    for hidden in (
        words_of(page).first.locator(".number"),
        page.viewer.locator("#scores"),
        page.viewer.locator("#why-sum"),
        page.hits.first.locator(".scores"),
    ):
        expect(hidden).to_be_hidden()
    page.page.keyboard.press("Escape")
    page.show_details().open_evidence(page.hits.first)
    address = page.viewer.get_by_role("link", name="as PNG").get_attribute("href")
    picture = api.get(f"/{address}").raise_for_status()
    assert picture.headers["content-type"] == "image/png"
    page.page.keyboard.press("Escape")

    page.choose_target("texts")
    page.find_photo(photo)
    page.open_evidence(page.hits.first)
    with page.page.expect_download() as caught:
        page.viewer.get_by_role("button", name="as PNG").click()
    assert caught.value.path().read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("why", ["two photos", "an alignment that was not trained"])
def test_there_is_no_evidence_of(page: SearchPage, photo: Path, why: str) -> None:
    def untrained(route: Route) -> None:
        answer = route.fetch()
        route.fulfill(response=answer, json={**answer.json(), "alignment_trained": False})

    asked: list[str] = []
    page.page.on("request", lambda request: asked.append(urlsplit(request.url).path))
    if why == "two photos":
        page.open().find_photo(photo)
    else:
        page.page.route("**/v1/index", untrained)
        page.open().find(WORDS)
    page.hits.first.locator("button.open").click()
    expect(page.viewer.locator("#viewer-facts")).not_to_be_empty()
    expect(page.evidence).to_be_hidden()
    expect(page.viewer.get_by_role("link", name="as PNG")).to_have_count(0)
    if why != "two photos":
        assert "/v1/explain" not in asked
        expect(page.page.locator("#about-facts")).to_contain_text("In one stage, by whole photos")
