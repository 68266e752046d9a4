"""Stacks on the page: one tile with a count, opened to all its photos, and the choice of none."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Locator, expect

from aladin_index.building.builder import build_index
from aladin_index.format.skipped import write_follow_record
from aladin_service.item_sources import image_items
from benchmarks.service.search_page import SearchPage
from tests.aladin.photos.test_fingerprint import margins, scene
from tests.browser.conftest import PageOf

pytestmark = pytest.mark.browser

PAIR = ["a/IMG_0001.JPG", "a/IMG_0001.png", "a/IMG_E0001.JPG"]
ALONE = [f"b/{number}.jpg" for number in range(4)]


@pytest.fixture(scope="module")
def stacked(index_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library of a photo in three files, and four others."""
    root = tmp_path_factory.mktemp("stacked")
    for number, name in enumerate([*PAIR, *ALONE]):
        file = root / "Pictures" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        picture = scene(max(0, number - 2))
        (margins(picture, 0.25) if "E0001" in name else picture).save(file)
    index = root / "index"
    build_index(index_folder / "model", index, image_items(root / "Pictures", None), None)
    write_follow_record(index, [], {})
    return index


@pytest.fixture
def page(stacked: Path, page_of: PageOf) -> Iterator[SearchPage]:
    with page_of(index=stacked) as opened:
        yield opened


def hits(page: SearchPage) -> Locator:
    return page.page.locator("#library .hit, #hits .hit")


def tile(page: SearchPage) -> Locator:
    return hits(page).filter(has=page.page.locator(".stacked"))


@pytest.mark.parametrize("query", ["", "text=a%20dog&target=images"])
def test_photos_that_belong_together_are_one_tile_until_it_is_opened(
    page: SearchPage, query: str
) -> None:
    page.open(query)
    expect(hits(page)).to_have_count(1 + len(ALONE))
    expect(tile(page)).to_have_count(1)
    expect(tile(page).locator(".stacked")).to_have_text("3")
    opener = tile(page).get_by_role("button", name="3 photos that belong together")
    opener.focus()
    page.page.keyboard.press("Enter")
    strip = page.page.locator("#viewer-stack")
    expect(strip.get_by_role("heading")).to_have_text("3 photos that belong together")
    members = strip.get_by_role("button")
    expect(members).to_have_count(3)
    expect(members.first).to_have_attribute("aria-current", "true")
    seen = set[str]()
    title = page.page.locator("#viewer-title")
    place = page.page.locator("#viewer-place").text_content()
    for number in (1, 2, 0):
        members.nth(number).focus()
        page.page.keyboard.press("Enter")
        expect(members.nth(number)).to_have_attribute("aria-current", "true")
        expect(members.nth(number)).to_be_focused()
        seen.add(str(title.text_content()))
        # It stays in its place among the tiles.
        expect(page.page.locator("#viewer-place")).to_have_text(str(place))
    assert seen == {name.split("/")[1] for name in PAIR}
    page.page.keyboard.press("Escape")
    expect(page.page.locator("#viewer")).not_to_be_visible()
    # A photo alone has no strip.
    hits(page).filter(has_not=page.page.locator(".stacked")).first.locator(".open").click()
    expect(page.page.locator("#viewer")).to_be_visible()
    expect(strip).to_be_hidden()


@pytest.mark.parametrize("query", ["", "text=a%20dog&target=images"])
def test_stacking_is_switched_off_and_stays_in_the_address(page: SearchPage, query: str) -> None:
    page.open(query)
    choice = page.page.get_by_label("Stack copies and bursts")
    expect(choice).to_be_checked()
    choice.uncheck()
    expect(hits(page)).to_have_count(len(PAIR + ALONE))
    expect(tile(page)).to_have_count(0)
    expect(page.page).to_have_url(re.compile("stack=false"))
    page.page.reload()
    expect(hits(page)).to_have_count(len(PAIR + ALONE))
    expect(choice).not_to_be_checked()
    choice.check()
    expect(hits(page)).to_have_count(1 + len(ALONE))


def test_a_tile_is_selected_with_all_its_photos(page: SearchPage) -> None:
    page.open()
    page.page.locator("#picks-toggle").click()
    tile(page).locator(".open").click()
    expect(page.page.locator("#picks-count")).to_have_text("3 photos selected")
    with page.page.expect_download() as caught:
        page.page.locator("#picks-download").click()
    with zipfile.ZipFile(caught.value.path()) as found:
        assert sorted(found.namelist()) == sorted(name.removeprefix("a/") for name in PAIR)
