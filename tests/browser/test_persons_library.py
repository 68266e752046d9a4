"""A library of photos as a person has it: years, places, people, a camera with a wrong clock."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, expect

from aladin_index.building.builder import build_index
from aladin_index.format.skipped import write_follow_record
from aladin_service.item_sources import image_items
from benchmarks.service.page_visits import find_violations
from benchmarks.service.search_page import SearchPage, data_of
from tests.browser.conftest import OpenPage, OpenService, is_too_wide, place_of

pytestmark = pytest.mark.browser

_PHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}
# How many photos there are of each year; each month has at most ten.
YEARS = {"2026": 70, "2022": 80, "2019": 3, "2009": 4, "2099": 2}
UNDATED = 3
_TOLD: dict[str, Any] = {
    "title": "A walk",
    "description": "Along the river, in the evening.",
    "keywords": ["river", "walk"],
    "people": ["Ada", "Ben"],
    "rating": 4,
    "favourite": True,
    "utc_offset": "+02:00",
    "date_source": "file",
    "place": ["Bern", "Switzerland"],
    "own_field": "as it is",
}


@pytest.fixture(scope="module")
def library(index_folder: Path, data_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index that follows folders: its photos are named by year and number."""
    folder = tmp_path_factory.mktemp("library")
    images = [json.loads(line)["image"] for line in data_file.read_text("utf-8").splitlines()]
    ids = [(year, number) for year, count in YEARS.items() for number in range(count)]
    lines: list[dict[str, Any]] = []
    for year, number in [*ids, *(("none", number) for number in range(UNDATED))]:
        month, day = 8 - number // 10 % 8, 1 + number % 10
        date = {} if year == "none" else {"taken_at": f"{year}-{month:02}-{day:02}T10:00:00"}
        told = _TOLD if (year, number) == ("2019", 0) else {}
        image = str(data_file.parent / images[len(lines) % len(images)])
        lines.append({"id": f"{year}/{number}", "image": image, "metadata": {**date, **told}})
    file = folder / "photos.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    build_index(index_folder / "model", folder / "index", image_items(file, None), None)
    write_follow_record(folder / "index", (), {})
    return folder / "index"


@pytest.fixture(scope="module")
def library_url(library: Path, open_service: OpenService) -> Iterator[str]:
    with open_service(index=library) as url:
        yield url


@pytest.fixture
def at_desk(library_url: str, open_page: OpenPage) -> SearchPage:
    return open_page(library_url, viewport={"width": 1440, "height": 900})


@pytest.fixture
def on_phone(library_url: str, open_page: OpenPage) -> SearchPage:
    return open_page(library_url, **_PHONE)


def _texts(of: Locator) -> list[str]:
    return [text.strip() for text in of.all_inner_texts()]


# --- A telephone ---


def test_a_telephone_shows_three_columns_of_squares_in_the_library_and_in_hits(
    on_phone: SearchPage,
) -> None:
    of_month = on_phone.page.locator("#library .part:has(li:nth-child(4))").first.locator("li")
    on_phone.open()
    for photos, is_search in ((of_month, False), (on_phone.hits, True)):
        if is_search:
            on_phone.find("a small red star")
        on_phone.expect_photos()
        boxes = [place_of(photos.nth(number).locator("img")) for number in range(4)]
        assert [round(box["width"]) for box in boxes] == [128] * 4
        assert [box["height"] for box in boxes] == [box["width"] for box in boxes]
        assert boxes[0]["x"] == 0
        assert round(boxes[2]["x"] + boxes[2]["width"]) == 390
        assert len({box["y"] for box in boxes[:3]}) == 1 < len({box["y"] for box in boxes})
        assert not is_too_wide(on_phone)
    expect(on_phone.page.locator("#size")).to_be_hidden()
    # No larger pictures are asked for than are shown.
    assert on_phone.hits.first.locator("img").get_attribute("data-px") == "320"
    file = on_phone.hits.first.locator(".open").get_attribute("title")
    assert file is not None
    on_phone.hits.first.get_by_role("button", name=Path(file).name, exact=True).tap()
    expect(on_phone.viewer).to_be_visible()


def test_all_that_a_finger_meets_is_large_enough(on_phone: SearchPage) -> None:
    def small() -> list[str]:
        return on_phone.page.evaluate(
            """() => [...document.querySelectorAll("button, a[href], select, summary")]
            .filter((one) => one.checkVisibility() && !one.matches(".word, .skip"))
            .map((one) => [one.textContent.trim(), one.getBoundingClientRect()])
            .filter(([, box]) => box.width < 44 || box.height < 44)
            .map(([text, box]) => `${text}: ${box.width} x ${box.height}`)"""
        )

    on_phone.open()
    on_phone.expect_photos()
    on_phone.page.locator("#about summary").tap()
    assert small() == []
    on_phone.page.locator("#filter-toggle").tap()
    assert small() == []
    on_phone.find("a small red star")
    on_phone.hits.first.locator(".open").tap()
    expect(on_phone.viewer.locator(".frame img")).to_be_visible()
    assert small() == []


# --- Words of a person ---


def test_a_photos_fields_are_named_and_said_in_words(at_desk: SearchPage) -> None:
    at_desk.open("filter=" + json.dumps({"date_source": "file"}))
    expect(at_desk.page.locator("#filters-in-force")).to_contain_text(
        "Source of the date is the file's time"
    )
    at_desk.listed.first.locator(".open").click()
    rows = at_desk.viewer.locator("#viewer-facts > div")
    facts = {row.locator("dt").inner_text(): _texts(row.locator("dd")) for row in rows.all()}
    # Known fields in an order of their own, then those of the user.
    assert list(facts)[2:] == [
        *["Title", "Description", "People", "Keywords", "Rating", "Favourite", "Date taken"],
        *["Source of the date", "Time zone", "Place", "own_field"],
    ]
    said = {name: " ".join(texts).split("\n") for name, texts in facts.items()}
    assert said["Rating"] == ["4 stars"]
    assert said["Favourite"] == ["yes"]
    assert said["Source of the date"] == ["the file's time"]
    assert said["Time zone"] == ["UTC+02:00"]
    assert said["Date taken"] == ["August 1, 2019 at 10:00 AM"]

    at_desk.viewer.get_by_role("button", name="4 stars").click()
    expect(at_desk.page.locator("#filters-in-force")).to_contain_text("Rating is 4 stars")


def test_words_found_in_a_field_name_it(at_desk: SearchPage) -> None:
    at_desk.open().find("evening walk")
    written = at_desk.hits.filter(has=at_desk.page.locator(".written")).first
    assert data_of(written, "id") == ["2019/0"]
    expect(written.locator(".written")).to_have_text(
        ["“evening” in the description", "“walk” in the keywords", "“walk” in the title"],
        use_inner_text=True,
    )


def test_about_this_library_counts_what_the_photos_tell(at_desk: SearchPage) -> None:
    at_desk.open()
    at_desk.page.locator("#about summary").click()
    expect(at_desk.page.locator("#about-facts dd").first).to_have_text(
        "162 photos · 159 with a date · 1 with a place · 1 with people · 1 with a title"
        " · 1 with keywords, from August 1, 2009 to August 2, 2099"
    )
    assert find_violations(at_desk.page) == []
