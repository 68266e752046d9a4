"""A part of a photo is searched for: drawn, moved by the keyboard, or a region of the evidence."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from playwright.sync_api import Locator, expect

from benchmarks.service.search_page import SearchPage
from tests.browser.conftest import asked, ids_of, place_of

pytestmark = pytest.mark.browser

WORDS = "a small red star above a blue square"


def box_in_address(page: SearchPage) -> list[float]:
    (box,) = parse_qs(urlsplit(page.page.url).fragment)["box"]
    return [float(edge) for edge in box.split(",")]


def drag(page: SearchPage, frame: Locator, box: Sequence[float]) -> None:
    """Draw a box on a photo with the mouse."""
    at, mouse = place_of(frame), page.page.mouse
    xs = [at["x"] + edge * at["width"] for edge in box[0::2]]
    ys = [at["y"] + edge * at["height"] for edge in box[1::2]]
    mouse.move(xs[0], ys[0])
    mouse.down()
    mouse.move((xs[0] + xs[1]) / 2, (ys[0] + ys[1]) / 2)
    mouse.move(xs[1], ys[1])
    mouse.up()


def test_a_box_drawn_on_a_hit_finds_photos_and_shows_where(
    page: SearchPage, api: httpx.Client
) -> None:
    item = page.open().find(WORDS)["hits"][0]["id"]
    page.open_evidence(page.hits.first)
    frame = page.viewer.locator("#stage .frame")
    frame.click()  # draws nothing
    expect(page.viewer).to_be_visible()
    with page.answer_shown():
        drag(page, frame, [0.25, 0.25, 0.75, 0.5])
    box = box_in_address(page)
    assert box == pytest.approx([0.25, 0.25, 0.75, 0.5], abs=0.01)
    answer = asked(api, id=item, box=box)
    assert page.ids() == ids_of(answer)
    expect(page.viewer).to_be_hidden()
    expect(page.page.locator("#example-name")).to_have_text(re.compile("^Part of "))
    for place, hit in enumerate(answer["hits"][:3]):
        photo = place_of(page.hits.nth(place).locator("img"))
        found = place_of(page.hits.nth(place).locator(".found-box"))
        left = photo["x"] + hit["found"][0] * photo["width"]
        bottom = photo["y"] + hit["found"][3] * photo["height"]
        assert (found["x"], found["y"] + found["height"]) == pytest.approx((left, bottom), abs=3)
    with page.answer_shown():  # the address is the whole search
        page.page.reload()
    assert page.ids() == ids_of(answer)


def test_the_keyboard_moves_a_box_and_searches_by_it(page: SearchPage, api: httpx.Client) -> None:
    item = page.open().find(WORDS)["hits"][1]["id"]
    page.open_evidence(page.hits.nth(1))
    title = page.viewer.locator("#viewer-title").inner_text()
    keyboard, selection = page.page.keyboard, page.viewer.locator(".selection")
    keyboard.press("b")
    expect(selection).to_be_focused()
    expect(page.viewer.locator("#viewer-part")).to_have_attribute("aria-pressed", "true")
    keyboard.press("Escape")  # of the selection, not of the viewer
    expect(selection).to_be_hidden()
    for key in ("b", "ArrowRight", "Shift+ArrowDown", "ArrowUp"):
        keyboard.press(key)
    expect(selection).to_have_attribute("aria-label", re.compile("from 30 to 80 % .* 20 to 75 %"))
    assert page.viewer.locator("#viewer-title").inner_text() == title  # of the same item
    with page.answer_shown():
        keyboard.press("Enter")
    assert box_in_address(page) == [0.3, 0.2, 0.8, 0.75]
    assert page.ids() == ids_of(asked(api, id=item, box=[0.3, 0.2, 0.8, 0.75]))


def test_a_region_of_the_evidence_is_a_query(page: SearchPage, api: httpx.Client) -> None:
    item = page.open().find(WORDS)["hits"][0]["id"]
    page.open_evidence(page.hits.first)
    button = page.viewer.get_by_role("button", name="Search for this region")
    expect(button).to_be_hidden()
    page.evidence.locator(".word").nth(2).focus()
    page.page.keyboard.press("Enter")
    maps = api.get("/v1/explain", params={"text": WORDS, "id": item}).json()
    box = maps["regions"][maps["words"][2]["region"]]["box"]
    with page.answer_shown():
        button.click()
    assert box_in_address(page) == pytest.approx(box, abs=1e-6)
    assert page.ids() == ids_of(asked(api, id=item, box=box))


def test_a_part_of_an_uploaded_photo_is_searched_for(
    page: SearchPage, api: httpx.Client, photo: Path
) -> None:
    page.open().find_photo(photo)
    page.page.locator("#example-part").click()
    panel = page.page.locator("#part")
    expect(panel.locator(".selection")).to_be_focused()
    with page.answer_shown():
        drag(page, panel.locator(".frame"), [0.1, 0.2, 0.6, 0.7])
    box = box_in_address(page)
    assert box == pytest.approx([0.1, 0.2, 0.6, 0.7], abs=0.01)
    answer = asked(api, photo=photo, box=box)
    assert page.ids() == ids_of(answer)

    page.open_evidence(page.hits.nth(2))
    numbers = page.evidence.locator(".region-number")
    data = {"id": answer["hits"][2]["id"], "box": json.dumps(box)}
    maps = api.post("/v1/explain", files={"image": photo.read_bytes()}, data=data).json()
    expect(numbers).to_have_count(len(maps["query_regions"]))
    page.evidence.locator(".word").nth(1).hover()
    expect(numbers.nth(1)).to_contain_class("lit")
    lit = page.viewer.locator(".region.lit")
    expect(lit).to_have_attribute("data-region", str(maps["query_regions"][1]["region"]))
    expect(page.viewer.locator(".frame > .found-box")).to_have_count(1)
    expect(page.page.locator("#why-sum")).to_contain_text("regions add up to")
    page.page.keyboard.press("Escape")

    page.page.locator("#example-part").click()
    with page.answer_shown():
        panel.get_by_role("button", name="Whole photo").click()
    assert page.ids() == ids_of(asked(api, photo=photo))
    expect(page.hits.locator(".found-box")).to_have_count(0)


def test_an_enlarged_photo_is_moved_and_nothing_is_drawn(page: SearchPage) -> None:
    page.open().find(WORDS)
    page.open_evidence(page.hits.first)
    page.page.keyboard.press("+")
    drag(page, page.viewer.locator("#stage"), [0.4, 0.4, 0.6, 0.6])
    expect(page.viewer).to_be_visible()
    assert "box" not in parse_qs(urlsplit(page.page.url).fragment)
    expect(page.viewer.locator(".selection")).to_be_hidden()
