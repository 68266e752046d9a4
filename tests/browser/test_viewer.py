"""The dialog of one item: zoom, full screen, download, path, and the way to its neighbours."""

from __future__ import annotations

from urllib.parse import quote, urlencode

import httpx
import pytest
from playwright.sync_api import Locator, expect

from benchmarks.service.search_page import SearchPage
from tests.browser.conftest import asked, place_of

pytestmark = pytest.mark.browser

WORDS = "a big green square right of a dotted blue star"


def open_first(page: SearchPage) -> Locator:
    """Open the first item of the library; returns its photo."""
    page.open().listed.first.locator("button.open").click()
    photo = page.viewer.locator(".frame img")
    expect(photo).to_be_visible()
    expect(photo).to_have_js_property("complete", True)
    return photo


def test_zoom_by_button_keys_and_double_click(page: SearchPage) -> None:
    photo = open_first(page)
    whole = place_of(photo)
    zoom, stage = page.viewer.get_by_role("button", name="Zoom"), page.viewer.locator("#stage")
    press = page.page.keyboard.press
    for on, off in (
        (zoom.click, zoom.click),
        (lambda: press("+"), lambda: press("-")),
        (lambda: press("="), lambda: press("0")),
        (stage.dblclick, stage.dblclick),
    ):
        on()
        expect(zoom).to_have_attribute("aria-pressed", "true")
        # Beside a scroll bar.
        assert place_of(photo)["width"] == pytest.approx(2.5 * whole["width"], rel=0.05)
        off()
        expect(zoom).to_have_attribute("aria-pressed", "false")
        assert place_of(photo)["width"] == pytest.approx(whole["width"], rel=0.01)

    frame = place_of(stage)
    stage.dblclick(
        position={
            "x": whole["x"] - frame["x"] + 0.9 * whole["width"],
            "y": whole["y"] - frame["y"] + 0.9 * whole["height"],
        }
    )
    zoomed = place_of(photo)  # keeps the place that was clicked
    for start, size in (("x", "width"), ("y", "height")):
        assert zoomed[start] + zoomed[size] == pytest.approx(frame[start] + frame[size], abs=20)
    stage.evaluate("stage => stage.scrollTo(0, 0)")
    zoomed = place_of(photo)
    assert (zoomed["x"], zoomed["y"]) == pytest.approx((frame["x"], frame["y"]), abs=1)
    press("ArrowRight")  # the next photo is shown whole
    expect(page.viewer.locator("#stage.zoomed")).to_have_count(0)


def test_full_screen_path_and_download(page: SearchPage, api: httpx.Client) -> None:
    page.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    item = api.get("/v1/items/images?limit=1").json()["items"][0]
    open_first(page)
    expect(page.viewer.locator("#viewer-facts")).to_contain_text(item["uri"])
    page.viewer.get_by_role("button", name="Full screen").click()
    page.page.wait_for_function("() => document.fullscreenElement?.id === 'stage'")
    page.page.keyboard.press("f")
    page.page.wait_for_function("() => document.fullscreenElement === null")
    page.viewer.get_by_role("button", name="Copy the path").click()
    assert page.page.evaluate("navigator.clipboard.readText()") == item["uri"]
    with page.page.expect_download() as caught:
        page.viewer.get_by_role("link", name="Download").click()
    original = api.get(f"/v1/images/{quote(item['id'], safe='')}").content
    assert caught.value.path().read_bytes() == original


def test_from_hit_to_hit_and_beyond_those_that_are_loaded(page: SearchPage) -> None:
    hits = page.open().find(WORDS)["hits"]
    page.open_evidence(page.hits.first)
    place = page.viewer.locator("#viewer-place")
    expect(page.viewer.get_by_role("button", name="Previous")).to_be_disabled()
    page.viewer.get_by_role("button", name="Next").click()
    expect(place).to_have_text("2 of 24")
    expect(page.viewer.locator("#viewer-facts")).to_contain_text(hits[1]["uri"])
    page.page.keyboard.press("ArrowLeft")
    expect(place).to_have_text("1 of 24")
    page.page.go_back()
    expect(page.viewer).to_be_hidden()
    page.hits.nth(23).locator("button.open").click()
    page.page.keyboard.press("ArrowRight")
    expect(place).to_contain_text("25 of ")


def test_an_address_opens_an_item_that_is_not_on_the_page(
    page: SearchPage, api: httpx.Client
) -> None:
    whole = asked(api, text=WORDS, k=60)["hits"]
    page.open(urlencode({"text": WORDS, "target": "images", "open": whole[55]["id"]}))
    expect(page.viewer.locator("#viewer-facts")).to_contain_text(whole[55]["uri"])
    expect(page.evidence.locator(".word").first).to_be_visible()
    page.page.keyboard.press("Escape")
    expect(page.viewer).to_be_hidden()
    assert page.ids() == [hit["id"] for hit in whole[:24]]
