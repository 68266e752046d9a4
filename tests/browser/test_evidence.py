"""Which word found which part of the photo, and how much of the score it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Locator, expect

from benchmarks.service.search_page import SearchPage, data_of

pytestmark = pytest.mark.browser

WORDS = "a big green square right of a dotted blue star"


@pytest.fixture(params=["images", "texts"])
def opened(
    request: pytest.FixtureRequest, page: SearchPage, api: httpx.Client, photo: Path
) -> tuple[SearchPage, dict[str, Any]]:
    """The page with the evidence of a hit, both ways, and that hit as the service tells of it."""
    page.open()
    if request.param == "images":
        page.find(WORDS)
        body = {"text": WORDS, "k": 24, "explain": True}
        answer = api.post("/v1/search/images", json=body).json()
    else:
        page.choose_target("texts")
        page.find_photo(photo)
        fields = {"k": "24", "explain": "true"}
        files = {"image": photo.read_bytes()}
        answer = api.post("/v1/search/texts", files=files, data=fields).json()
    page.open_evidence(page.hits.nth(4))
    return page, answer["hits"][4]


def words_of(page: SearchPage) -> Locator:
    return page.evidence.locator(".word")


def lit_regions(page: SearchPage) -> Locator:
    return page.evidence.locator(".region.lit")


def test_the_words_are_those_of_the_answer(opened: tuple[SearchPage, dict[str, Any]]) -> None:
    page, hit = opened

    assert words_of(page).locator(".token").all_text_contents() == [
        entry["token"] for entry in hit["evidence"]
    ]
    assert data_of(words_of(page), "region") == [str(entry["region"]) for entry in hit["evidence"]]


def number(text: str) -> float:
    """Read a number of the page, which has a sign of its own for less than nothing."""
    return float(text.replace("\N{MINUS SIGN}", "-"))


def test_the_numbers_add_up_to_the_score(opened: tuple[SearchPage, dict[str, Any]]) -> None:
    page, hit = opened
    score = hit["stages"]["align"]["score"]

    exact = [float(each) for each in data_of(words_of(page), "score")]
    assert exact == pytest.approx([entry["score"] for entry in hit["evidence"]], abs=1e-6)
    assert sum(exact) == pytest.approx(score, abs=1e-4)
    total = page.evidence.locator("#evidence-total")
    assert float(data_of(total, "total")[0]) == pytest.approx(score, abs=1e-4)
    # What is read is rounded to four digits, each number for itself.
    assert number(total.inner_text()) == pytest.approx(score, abs=1e-4)
    read = [number(text) for text in words_of(page).locator(".number").all_text_contents()]
    assert read == pytest.approx(exact, abs=0.5001e-4)


def test_a_word_lights_up_its_region(opened: tuple[SearchPage, dict[str, Any]]) -> None:
    page, hit = opened
    for word, entry in zip(words_of(page).all(), hit["evidence"], strict=True):
        word.hover()
        expect(lit_regions(page)).to_have_count(1)
        expect(lit_regions(page)).to_have_attribute("data-region", str(entry["region"]))
        expect(page.evidence.locator(".word.lit")).to_have_count(1)
        expect(word).to_contain_class("lit")

    page.evidence.locator("#evidence-title").hover()
    expect(lit_regions(page)).to_have_count(0)


def test_a_region_is_where_the_answer_says(opened: tuple[SearchPage, dict[str, Any]]) -> None:
    page, hit = opened
    frame = page.evidence.locator(".regions").bounding_box()
    assert frame is not None
    for entry in hit["evidence"]:
        region = page.evidence.locator(f".region[data-region='{entry['region']}']")
        box = region.bounding_box()
        assert box is not None
        left, top, right, bottom = entry["box"]
        assert (box["x"] - frame["x"]) / frame["width"] == pytest.approx(left, abs=0.01)
        assert (box["y"] - frame["y"]) / frame["height"] == pytest.approx(top, abs=0.01)
        assert box["width"] / frame["width"] == pytest.approx(right - left, abs=0.01)
        assert box["height"] / frame["height"] == pytest.approx(bottom - top, abs=0.01)


def test_a_region_that_is_clicked_keeps_its_words_lit(
    opened: tuple[SearchPage, dict[str, Any]],
) -> None:
    page, hit = opened
    region = str(hit["evidence"][0]["region"])
    its_words = [str(entry["region"]) == region for entry in hit["evidence"]]

    page.evidence.locator(f".region[data-region='{region}']").click()
    page.evidence.locator("#evidence-title").hover()

    expect(page.evidence.locator(".word.lit")).to_have_count(sum(its_words))
    lit = words_of(page).evaluate_all("all => all.map(word => word.classList.contains('lit'))")
    assert lit == its_words


def test_the_same_as_a_picture(page: SearchPage, api: httpx.Client) -> None:
    page.open().find(WORDS)
    page.open_evidence(page.hits.first)

    address = page.evidence.get_by_role("link", name="As PNG").get_attribute("href")

    picture = api.get(f"/{address}").raise_for_status()
    assert picture.headers["content-type"] == "image/png"


def test_a_photo_of_ones_own_has_its_picture_too(page: SearchPage, photo: Path) -> None:
    page.open().choose_target("texts")
    page.find_photo(photo)
    page.open_evidence(page.hits.first)

    with page.page.expect_download() as caught:
        page.evidence.get_by_role("button", name="As PNG").click()

    assert caught.value.path().read_bytes().startswith(b"\x89PNG")


def test_from_hit_to_hit(page: SearchPage) -> None:
    hits = page.open().find(WORDS)["hits"]
    page.open_evidence(page.hits.first)
    expect(page.evidence.locator("#evidence-previous")).to_be_disabled()

    page.evidence.locator("#evidence-next").click()

    expect(page.evidence.locator("#evidence-rank")).to_have_text("Hit 2")
    expect(page.evidence.locator("#evidence-facts")).to_contain_text(hits[1]["id"])
    page.page.keyboard.press("ArrowLeft")
    expect(page.evidence.locator("#evidence-rank")).to_have_text("Hit 1")


def test_two_photos_have_none(page: SearchPage, photo: Path) -> None:
    page.open().find_photo(photo)

    page.hits.first.locator("button.open").click()

    expect(page.evidence.locator("#evidence-note")).to_contain_text("embeddings only")
    expect(words_of(page)).to_have_count(0)
