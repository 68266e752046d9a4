"""The dialog of one item: zoom, full screen, download, path, and the way to its neighbours."""

from __future__ import annotations

from urllib.parse import quote, urlencode

import httpx
import pytest
from playwright.sync_api import Locator, expect

from benchmarks.service.search_page import SearchPage, data_of

pytestmark = pytest.mark.browser

WORDS = "a big green square right of a dotted blue star"


def width_of(photo: Locator) -> float:
    box = photo.bounding_box()
    assert box is not None
    return box["width"]


def open_first(page: SearchPage) -> Locator:
    """Open the first item of the library; returns its photo."""
    page.open()
    page.listed.first.locator("button.open").click()
    photo = page.viewer.locator(".frame img")
    expect(photo).to_be_visible()
    expect(photo).to_have_js_property("complete", True)
    return photo


def test_zoom_by_button_keys_and_double_click(page: SearchPage) -> None:
    photo = open_first(page)
    whole = width_of(photo)
    zoom = page.viewer.get_by_role("button", name="Zoom")
    for on, off in (
        (zoom.click, zoom.click),
        (lambda: page.page.keyboard.press("+"), lambda: page.page.keyboard.press("-")),
        (lambda: page.page.keyboard.press("="), lambda: page.page.keyboard.press("0")),
        (page.viewer.locator("#stage").dblclick, page.viewer.locator("#stage").dblclick),
    ):
        on()
        expect(zoom).to_have_attribute("aria-pressed", "true")
        assert width_of(photo) == pytest.approx(2.5 * whole, rel=0.05)  # beside a scroll bar
        off()
        expect(zoom).to_have_attribute("aria-pressed", "false")
        assert width_of(photo) == pytest.approx(whole, rel=0.01)


def test_a_zoomed_photo_keeps_the_place_that_was_clicked_and_scrolls_to_its_corners(
    page: SearchPage,
) -> None:
    photo = open_first(page)
    stage = page.viewer.locator("#stage").bounding_box()
    before = photo.bounding_box()
    assert stage is not None
    assert before is not None
    corner = {"x": 0.9, "y": 0.9}  # of the photo
    at = {
        "x": before["x"] - stage["x"] + corner["x"] * before["width"],
        "y": before["y"] - stage["y"] + corner["y"] * before["height"],
    }
    page.viewer.locator("#stage").dblclick(position=at)
    zoomed = photo.bounding_box()
    assert zoomed is not None
    right, bottom = zoomed["x"] + zoomed["width"], zoomed["y"] + zoomed["height"]
    end = (stage["x"] + stage["width"], stage["y"] + stage["height"])
    assert (right, bottom) == pytest.approx(end, abs=20)  # a scroll bar may be there

    page.viewer.locator("#stage").evaluate("stage => stage.scrollTo(0, 0)")
    zoomed = photo.bounding_box()
    assert zoomed is not None
    assert (zoomed["x"], zoomed["y"]) == pytest.approx((stage["x"], stage["y"]), abs=1)
    # The next photo is shown whole.
    page.page.keyboard.press("ArrowRight")
    expect(page.viewer.locator("#stage.zoomed")).to_have_count(0)


def test_the_photo_alone_on_the_full_screen(page: SearchPage) -> None:
    open_first(page)
    page.viewer.get_by_role("button", name="Full screen").click()
    page.page.wait_for_function("() => document.fullscreenElement?.id === 'stage'")

    page.page.keyboard.press("f")
    page.page.wait_for_function("() => document.fullscreenElement === null")
    expect(page.viewer).to_be_visible()


def test_the_file_is_downloaded_under_its_name(page: SearchPage, api: httpx.Client) -> None:
    page.open().find(WORDS)
    page.page.go_back()
    item = api.get("/v1/items/images?limit=1").json()["items"][0]
    page.listed.first.locator("button.open").click()
    expect(page.viewer.locator("#viewer-facts")).to_contain_text(item["uri"])

    with page.page.expect_download() as caught:
        page.viewer.get_by_role("link", name="Download").click()

    original = api.get(f"/v1/images/{quote(item['id'], safe='')}").content
    assert caught.value.path().read_bytes() == original


def test_the_path_is_copied(page: SearchPage) -> None:
    page.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    open_first(page)

    page.viewer.get_by_role("button", name="Copy the path").click()

    copied = page.page.evaluate("navigator.clipboard.readText()")
    expect(page.viewer.locator("#viewer-facts")).to_contain_text(copied)
    assert copied.startswith("images/")


def test_from_hit_to_hit_and_beyond_those_that_are_loaded(page: SearchPage) -> None:
    hits = page.open().find(WORDS)["hits"]
    page.open_evidence(page.hits.first)
    previous = page.viewer.get_by_role("button", name="Previous")
    expect(previous).to_be_disabled()

    page.viewer.get_by_role("button", name="Next").click()

    expect(page.viewer.locator("#viewer-place")).to_have_text("2 of 24")
    expect(page.viewer.locator("#viewer-facts")).to_contain_text(hits[1]["uri"])
    page.page.keyboard.press("ArrowLeft")
    expect(page.viewer.locator("#viewer-place")).to_have_text("1 of 24")
    page.page.go_back()
    expect(page.viewer).to_be_hidden()

    page.hits.nth(23).locator("button.open").click()
    page.page.keyboard.press("ArrowRight")
    expect(page.viewer.locator("#viewer-place")).to_contain_text("25 of ")


def test_an_address_opens_an_item_that_is_not_on_the_page(
    page: SearchPage, api: httpx.Client
) -> None:
    whole = api.post("/v1/search/images", json={"text": WORDS, "k": 60}).json()["hits"]

    page.open(urlencode({"text": WORDS, "target": "images", "open": whole[55]["id"]}))

    expect(page.viewer.locator("#viewer-facts")).to_contain_text(whole[55]["uri"])
    expect(page.evidence.locator(".word").first).to_be_visible()
    page.page.keyboard.press("Escape")
    expect(page.viewer).to_be_hidden()
    assert page.ids() == [hit["id"] for hit in whole[:24]]


def test_more_like_an_item_of_the_library_leaves_it_out(page: SearchPage) -> None:
    page.open()
    expect(page.listed.first).to_be_visible()
    item = data_of(page.listed, "id")[0]
    page.listed.first.locator("button.open").click()

    with page.answer_shown():
        page.viewer.get_by_role("button", name="More like this").click()

    assert item not in page.ids()
    expect(page.viewer).to_be_hidden()
