"""A library of photos as a person has it: years, places, people, a camera with a wrong clock."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from playwright.sync_api import Locator, Request, Route, expect

from aladin_index.building.builder import build_index
from aladin_index.format.skipped import write_follow_record
from aladin_service.item_sources import image_items
from benchmarks.service.page_visits import find_violations
from benchmarks.service.search_page import SearchPage, data_of
from tests.browser.conftest import OpenPage, OpenService, Shared, is_too_wide, place_of

pytestmark = pytest.mark.browser

_PHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}
# How many photos there are of each year; each month has at most ten.
YEARS = {"2024": 70, "2022": 80, "2019": 3, "2009": 2, "2099": 2}
UNDATED = 3
_BY_DATE = re.compile("^“2019”: Date taken ")
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
    drawn = [json.loads(line)["image"] for line in data_file.read_text("utf-8").splitlines()]
    turns = (None, Image.Transpose.ROTATE_90, Image.Transpose.ROTATE_180)
    images = itertools.product(turns, drawn)  # no two are the same, which would make them one
    ids = [(year, number) for year, count in YEARS.items() for number in range(count)]
    lines: list[dict[str, Any]] = []
    for year, number in [*ids, *(("none", number) for number in range(UNDATED))]:
        month, day = 8 - number // 10 % 8, 1 + number % 10
        date = {} if year == "none" else {"taken_at": f"{year}-{month:02}-{day:02}T10:00:00"}
        told = _TOLD if (year, number) == ("2019", 0) else {}
        turn, image = next(images)
        file = folder / f"{len(lines)}-{Path(image).name}"
        with Image.open(data_file.parent / image) as photo:
            (photo if turn is None else photo.transpose(turn)).save(file, quality=95)
        lines.append({"id": f"{year}/{number}", "image": file.name, "metadata": {**date, **told}})
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
    return open_page(library_url, viewport={"width": 1440, "height": 640})


@pytest.fixture
def on_phone(library_url: str, open_page: OpenPage) -> SearchPage:
    return open_page(library_url, **_PHONE)


def _all_ids(of: str = "") -> list[str]:
    """Return the ids of the photos, the newest first, and wrong dates at the end."""
    ids = [(year, number) for year, count in YEARS.items() for number in range(count)]
    ids.sort(key=lambda each: (each[0], 8 - each[1] // 10 % 8, 1 + each[1] % 10), reverse=True)
    dated = [f"{year}/{number}" for year, number in ids]
    late = [each for each in dated if each.startswith("2099")]
    undated = [f"none/{number}" for number in reversed(range(UNDATED))]
    every = [*dated[len(late) :], *undated, *late]
    return [each for each in every if each.startswith(of)]


def _show_all(page: SearchPage) -> None:
    """Scroll to the end until everything is there."""
    every = sum(YEARS.values()) + UNDATED
    for _ in range(100):
        if page.listed.count() == every:
            return
        page.page.evaluate("scrollTo(0, document.body.scrollHeight)")
        page.page.wait_for_timeout(100)
    expect(page.listed).to_have_count(every)


def _years(page: SearchPage) -> Locator:
    page.page.mouse.move(5, 5)  # they are counted for a reader who does something
    return page.page.get_by_role("navigation", name="Years").get_by_role("button")


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
        "160 photos · 157 with a date · 1 with a place · 1 with people · 1 with a title"
        " · 1 with keywords, from August 1, 2009 to August 2, 2099"
    )
    assert find_violations(at_desk.page) == []


# --- Years ---


def test_photos_with_a_date_in_the_future_come_last_and_say_so(at_desk: SearchPage) -> None:
    headings = at_desk.page.locator("#library h2")
    at_desk.open()
    expect(headings.first).to_have_text("August 2024")
    expect(at_desk.status).to_have_text("160 photos.")
    _show_all(at_desk)
    assert _texts(headings)[-3:] == ["August 2009", "Without a date", "Date in the future"]
    assert data_of(at_desk.listed, "id") == _all_ids()

    at_desk.page.locator("#sort").select_option(label="Oldest first")
    expect(headings.first).to_have_text("August 2009")
    _show_all(at_desk)
    assert _texts(headings)[-3:] == ["August 2024", "Without a date", "Date in the future"]


def test_a_year_is_reached_without_the_photos_before_it(
    at_desk: SearchPage, shared: Shared
) -> None:
    lists: list[Request] = []
    at_desk.page.on("request", lambda each: lists.append(each) if "limit=60" in each.url else None)
    at_desk.open()
    expect(_years(at_desk)).to_have_text(["2024", "2022", "2019", "2009", "No date", "Future"])
    assert [_years(at_desk).nth(number).get_attribute("title") for number in (1, 2, 4, 5)] == (
        ["80 photos", "3 photos", "3 photos", "2 photos"]
    )
    expect(_years(at_desk).first).to_have_attribute("aria-current", "true")
    assert len(lists) == 1

    _years(at_desk).get_by_text("2019").click()

    ids = [each for of in ("2019", "2009", "none", "2099") for each in _all_ids(of)]
    expect(at_desk.listed).to_have_count(len(ids))
    assert data_of(at_desk.listed, "id") == ids
    assert len(lists) == 3  # the photos until the last date that can be right, and those after it
    expect(at_desk.status).to_have_text("160 photos.")
    expect(_years(at_desk).get_by_text("2019")).to_have_attribute("aria-current", "true")
    expect(shared(at_desk).listed.first).to_have_attribute("data-id", ids[0])
    # Months of few photos stand side by side.
    tops = [place_of(each)["y"] for each in at_desk.page.locator("#library h2").all()]
    assert tops == [tops[0], tops[0], tops[2], tops[2]]

    at_desk.page.go_back()
    expect(at_desk.listed.first).to_have_attribute("data-id", _all_ids()[0])


def test_the_first_page_asks_for_no_years(at_desk: SearchPage) -> None:
    lists: list[Request] = []
    at_desk.page.on("request", lambda each: lists.append(each) if "/items/" in each.url else None)
    at_desk.open()
    years = at_desk.page.locator("#years button")
    last = at_desk.page.evaluate("new Date(Date.now() + 2 * 86_400_000).getUTCFullYear()")
    expect(years).to_have_text([str(year) for year in range(last, 2008, -1)])
    at_desk.page.wait_for_load_state("networkidle")
    # The photos, their number with those of wrong dates, and texts to search for.
    limits = sorted(re.findall(r"limit=(\d+)", each.url)[0] for each in lists)
    assert limits == ["1", "100", "60"]
    last_photo = at_desk.listed.last
    place = place_of(last_photo)
    at_desk.page.keyboard.press("Shift")
    expect(years).to_have_text(["2024", "2022", "2019", "2009", "No date", "Future"])
    assert place_of(last_photo) == place  # other names of the bar move no photo


def test_photos_of_one_year_have_the_bar_at_once_if_at_all(at_desk: SearchPage) -> None:
    this_year = str((datetime.now(UTC) + timedelta(days=2)).year)

    def of_one_year(route: Route) -> None:
        answer = route.fetch()
        fields = answer.json()
        for each in fields["images"]:
            if each["name"] == "taken_at":
                each["least"] = this_year  # and the greatest is in the future
        route.fulfill(response=answer, json=fields)

    at_desk.page.route("**/v1/index/fields", of_one_year)
    at_desk.open()
    years = at_desk.page.locator("#years button")
    expect(years).to_have_text(["2024", "2022", "2019", "2009", "No date", "Future"])


def test_photos_before_the_year_are_added_without_moving_what_is_seen(
    at_desk: SearchPage,
) -> None:
    at_desk.open("from=2019")
    newer = at_desk.page.get_by_role("button", name="Newer photos")
    first = at_desk.page.locator("#library li[data-id='2019/2']")
    for count in (70, 130, 160):
        newer.hover()  # it is scrolled to
        top = place_of(first)["y"]
        newer.click()
        expect(at_desk.listed).to_have_count(count)
        assert place_of(first)["y"] == pytest.approx(top, abs=2)
    expect(newer).to_be_hidden()
    assert data_of(at_desk.listed, "id") == _all_ids()
    headings = _texts(at_desk.page.locator("#library h2"))
    assert len(headings) == len(set(headings))
    # The viewer goes through all of them.
    first.locator(".open").click()
    at_desk.viewer.get_by_role("button", name="Previous").click()
    expect(at_desk.viewer).to_contain_text("150 of 160")


@pytest.mark.parametrize(
    ("year", "order", "begins"),
    [
        ("No date", "desc", "none/2"),
        ("Future", "desc", "2099/1"),
        ("2024", "asc", "2024/60"),
        ("2024", "desc", "2024/9"),
    ],
)
def test_every_entry_leads_to_its_photos(
    at_desk: SearchPage, year: str, order: str, begins: str
) -> None:
    at_desk.open(f"order={order}")
    _years(at_desk).get_by_text(year, exact=True).click()
    expect(at_desk.listed.first).to_have_attribute("data-id", begins)
    expect(_years(at_desk).get_by_text(year, exact=True)).to_have_attribute("aria-current", "true")
    expect(at_desk.page.locator("#before")).to_be_visible(visible=order == "asc")


def test_the_year_that_is_read_is_marked_and_years_follow_the_filter(at_desk: SearchPage) -> None:
    at_desk.open()
    _show_all(at_desk)
    at_desk.page.locator("#library li[data-id='2022/10']").evaluate("it => it.scrollIntoView()")
    expect(_years(at_desk).get_by_text("2022")).to_have_attribute("aria-current", "true")
    _years(at_desk).get_by_text("2009").click()  # on the page already
    expect(_years(at_desk).get_by_text("2024")).not_to_have_attribute("aria-current", "true")
    expect(at_desk.listed).to_have_count(160)

    at_desk.open("filter=" + json.dumps({"taken_at": {"lt": "2020"}}))
    at_desk.page.reload()
    expect(_years(at_desk)).to_have_text(["2019", "2009"])
    at_desk.open("sort=taken_at")
    at_desk.page.reload()
    expect(at_desk.listed.first).to_be_visible()
    expect(_years(at_desk)).to_have_count(0)


def test_the_years_of_a_telephone_are_a_row_at_its_lower_edge(on_phone: SearchPage) -> None:
    on_phone.open()
    expect(_years(on_phone).first).to_be_visible()
    row = place_of(on_phone.page.locator("#years"))
    assert (row["x"], row["width"], row["y"] + row["height"]) == (0, 390, 844)
    _years(on_phone).get_by_text("2022").tap()
    expect(on_phone.listed.first).to_have_attribute("data-id", "2022/9")
    assert not is_too_wide(on_phone)
    assert find_violations(on_phone.page) == []
    on_phone.find("a small red star")
    expect(_years(on_phone)).to_have_count(0)


# --- Dates and places in the words ---


def test_what_is_read_in_the_words_is_a_chip_that_can_be_taken_off(
    at_desk: SearchPage, shared: Shared
) -> None:
    chips = at_desk.page.locator("#read button")
    found = at_desk.open().find("two dogs in Bern, 2019")["hits"]
    expect(chips).to_have_text([re.compile("^“in Bern”: Place Bern "), _BY_DATE])
    assert [hit["id"] for hit in found] == at_desk.ids() == ["2019/0"]
    # The words that are left are those that are compared.
    at_desk.open_evidence(at_desk.hits.first)
    words = at_desk.evidence.locator(".word")
    expect(words).to_have_text([re.compile("^two"), re.compile("^dogs")])
    at_desk.page.keyboard.press("Escape")

    with at_desk.answer_shown() as answer:
        chips.nth(0).click()

    assert [each["words"] for each in answer["read"]] == ["2019"]
    assert sorted(at_desk.ids()) == ["2019/0", "2019/1", "2019/2"]
    expect(chips).to_have_text([_BY_DATE, "“in Bern” as words · read it again"])
    other = shared(at_desk)
    expect(other.page.locator("#read button")).to_have_text(chips.all_inner_texts())
    with at_desk.answer_shown():
        chips.nth(1).click()
    assert at_desk.ids() == ["2019/0"]
    assert find_violations(at_desk.page) == []

    at_desk.find("two dogs in Bern, 2009")
    expect(at_desk.status).to_have_text(
        "No photo passes what was read: “in Bern”: Place Bern, “2009”: Date taken."
    )
    at_desk.find("two dogs")
    expect(chips).to_have_count(0)


def test_words_that_the_model_cannot_read_are_warned_of(at_desk: SearchPage) -> None:
    warning = at_desk.page.locator("#warning")
    at_desk.open().find("две собаки")
    expect(warning).to_contain_text("The model does not know the letters of these words")
    at_desk.find("two dogs")
    expect(warning).to_be_hidden()


def test_the_weight_of_words_says_what_is_used(at_desk: SearchPage, page: SearchPage) -> None:
    value, weight = (at_desk.page.locator(f"#option-lexical{part}") for part in ("-value", ""))
    at_desk.open().show_details()
    at_desk.page.locator("#options-toggle").click()
    expect(value).to_have_text("default")
    at_desk.find("evening walk")
    expect(value).to_have_text("default, 0.25")  # .5 for two words
    expect(weight).to_be_disabled()
    with at_desk.answer_shown() as answer:
        at_desk.page.get_by_label("Use the default weight").uncheck()
    assert answer["lexical"] == 0.25
    with at_desk.answer_shown() as answer:
        weight.fill("0")
    assert answer["lexical"] == 0
    expect(value).to_have_text("off")
    expect(at_desk.page.locator(".written")).to_have_count(0)

    page.open().show_details().find("evening walk")  # an index that follows no folders
    expect(page.page.locator("#option-lexical-value")).to_have_text("default, off")
