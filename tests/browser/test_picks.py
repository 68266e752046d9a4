"""Photos that are selected by mouse and keyboard, downloaded as one zip, their paths copied."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest
from playwright.sync_api import Locator, expect

from aladin_service.http.routes import archive
from benchmarks.service.search_page import SearchPage, data_of
from tests.browser.conftest import OpenPage

pytestmark = pytest.mark.browser

WORDS = "a small red star above a blue square"


def status(page: SearchPage) -> Locator:
    return page.page.locator("#picks-count")


def bar_button(page: SearchPage, name: str) -> Locator:
    return page.page.locator("#picks").get_by_role("button", name=name)


def picked(page: SearchPage) -> list[str]:
    tiles = page.page.locator(".hit:has(.pick:checked)")
    return data_of(tiles, "id")


def click(page: SearchPage, place: int, *modifiers: str) -> None:
    page.listed.nth(place).locator(".open").click(modifiers=list(modifiers))  # type: ignore[arg-type]


def test_selected_photos_come_as_one_zip_of_their_files(page: SearchPage, data_file: Path) -> None:
    page.open()
    expect(page.page.locator("#picks")).to_be_hidden()
    page.page.locator("#picks-toggle").click()
    expect(status(page)).to_have_text("Select photos")
    expect(bar_button(page, "Download")).to_be_disabled()
    click(page, 6)
    click(page, 3, "Shift")  # a range, backwards
    click(page, 4)  # not this one
    click(page, 8)
    shown = data_of(page.listed, "id")
    assert picked(page) == [shown[3], shown[5], shown[6], shown[8]]
    expect(page.viewer).to_be_hidden()
    expect(status(page)).to_have_text("4 photos selected")

    with page.page.expect_download() as caught:
        bar_button(page, "Download").click()
    expect(status(page)).to_have_text("4 photos downloaded")
    assert caught.value.suggested_filename == "photos.zip"
    with zipfile.ZipFile(io.BytesIO(Path(caught.value.path()).read_bytes())) as found:
        files = {each: found.read(each) for each in found.namelist()}
    images = data_file.parent / "images"
    assert files == {name: (images / name).read_bytes() for name in files}
    assert len(files) == 4

    bar_button(page, "Done").click()
    assert picked(page) == []
    click(page, 3)
    expect(page.viewer).to_be_visible()  # again a photo to look at


def test_paths_are_copied(open_page: OpenPage, url: str) -> None:
    page = open_page(url, permissions=["clipboard-read", "clipboard-write"]).open()
    click(page, 0, "Control")  # without the button
    click(page, 2, "Shift")
    bar_button(page, "Copy paths").click()
    expect(status(page)).to_have_text("3 paths copied")
    listed = page.page.request.get(f"{url}/v1/items/images?limit=3").json()["items"]
    copied = page.page.evaluate("navigator.clipboard.readText()")
    assert copied.split("\n") == [item["uri"] for item in listed]
    # A page of another machine without https has no such clipboard.
    page.page.evaluate("Object.defineProperty(navigator, 'clipboard', {value: undefined})")
    click(page, 1)
    bar_button(page, "Copy paths").click()
    expect(status(page)).to_have_text("2 paths copied")


def test_the_keyboard_selects(page: SearchPage) -> None:
    page.open()
    first = page.listed.first.locator(".open")
    first.focus()
    page.page.keyboard.press("Shift+ArrowRight")
    page.page.keyboard.press("Shift+ArrowRight")
    expect(page.listed.nth(2).locator(".open")).to_be_focused()
    shown = data_of(page.listed, "id")
    assert picked(page) == shown[:3]
    page.page.keyboard.press("x")
    page.page.keyboard.press("ArrowRight")
    page.page.keyboard.press("Enter")
    assert picked(page) == [*shown[:2], shown[3]]
    box = page.listed.nth(1).get_by_role("checkbox")
    expect(box).to_have_accessible_name(
        "Select " + page.listed.nth(1).locator(".caption").inner_text()
    )
    box.focus()
    page.page.keyboard.press("Space")
    assert picked(page) == [shown[0], shown[3]]
    page.page.keyboard.press("Control+a")
    assert picked(page) == data_of(page.listed, "id")
    page.page.keyboard.press("Escape")
    assert picked(page) == []
    expect(page.page.locator("#picks")).to_be_hidden()
    page.words.fill("ax")
    page.words.press("x")  # a letter
    expect(page.page.locator("#picks")).to_be_hidden()


def test_a_search_has_a_selection_of_its_own_and_texts_have_none(page: SearchPage) -> None:
    page.open()
    click(page, 0, "Control")
    page.find(WORDS)
    expect(page.page.locator("#picks")).to_be_hidden()
    page.page.locator("#picks-toggle").click()
    bar_button(page, "All shown").click()
    expect(status(page)).to_have_text("24 photos selected")
    page.choose_target("texts")
    expect(page.page.locator("#picks-toggle")).to_be_hidden()
    expect(page.hits.first.locator(".pick")).to_have_count(0)


def test_what_the_service_refuses_is_said(
    page: SearchPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "MAX_PHOTOS", 2)
    page.complaints.expect("status of 422")
    page.open()
    click(page, 0, "Control")
    click(page, 2, "Shift")
    bar_button(page, "Download").click()
    expect(status(page)).to_have_text("ids: expected at most 2 photos in a zip, got 3")
    click(page, 1)
    with page.page.expect_download():
        bar_button(page, "Download").click()
