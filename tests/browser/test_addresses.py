"""A search is in the page's address: to be shared, and to be gone back to."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Route, expect

from benchmarks.service.search_page import SearchPage
from tests.browser.conftest import Shared, ids_of

pytestmark = pytest.mark.browser

# With all that an address treats in its own way.
WORDS = "a white star & a 50% larger circle #1, +ünï"


def test_who_gets_the_address_sees_the_same(page: SearchPage, shared: Shared) -> None:
    page.open().find(WORDS)
    page.filter_by({"number": {"lt": 50}})
    page.show_details()
    with page.answer_shown() as answer:
        page.compare()
    other = shared(page)
    other.expect_hits(ids_of(answer))
    expect(other.words).to_have_value(WORDS)
    expect(other.page.locator("#compare")).to_be_checked()
    expect(other.page.locator("#filters-in-force")).to_contain_text("50")
    expect(other.matching_hits).not_to_have_count(0)

    with page.answer_shown():
        page.page.locator("#compare").uncheck()
    with page.answer_shown() as answer:
        page.hits.nth(5).locator("button.similar").click()
    shared(page).expect_hits(ids_of(answer))


def test_back_and_forward_among_searches_with_words_and_photos(
    page: SearchPage, photo: Path
) -> None:
    first = ids_of(page.open().find(WORDS))
    second = ids_of(page.find_photo(photo))
    page.page.locator("#example-remove").click()
    third = ids_of(page.find("two dogs on a meadow"))
    assert first != second != third
    page.page.go_back()
    page.page.go_back()
    page.expect_hits(second)
    page.page.go_back()
    page.expect_hits(first)
    expect(page.words).to_have_value(WORDS)
    for _ in range(3):
        page.page.go_forward()
    page.expect_hits(third)
    expect(page.words).to_have_value("two dogs on a meadow")
    for _ in range(4):
        page.page.go_back()
    expect(page.hits).to_have_count(0)
    expect(page.words).to_be_empty()


def test_an_open_hit_is_in_the_address_and_a_photo_of_ones_own_is_not(
    page: SearchPage, shared: Shared, photo: Path
) -> None:
    hits = page.open().find(WORDS)["hits"]
    page.open_evidence(page.hits.nth(2))
    expect(shared(page).viewer.locator("#viewer-facts")).to_contain_text(hits[2]["uri"])
    page.page.go_back()
    expect(page.viewer).to_be_hidden()
    page.expect_hits([hit["id"] for hit in hits])
    page.find_photo(photo)
    other = shared(page)
    expect(other.error).to_contain_text("does not contain your photo")
    expect(other.hits).to_have_count(0)


@pytest.mark.parametrize(
    ("status", "says"),
    [(404, "is no longer in the index."), (503, "could not be loaded.")],
)
def test_an_item_of_an_address_that_cannot_be_opened(
    page: SearchPage, status: int, says: str
) -> None:
    page.complaints.expect(f"status of {status}")
    page.page.route("**/v1/items/images/gone", lambda route: route.fulfill(status=status))
    page.open(urlencode({"text": WORDS, "open": "gone"}))
    expect(page.status).to_contain_text(f"The item of this address {says}")


def test_an_item_of_an_earlier_address_changes_nothing(page: SearchPage) -> None:
    page.complaints.expect("status of 404")
    asked: list[Route] = []
    page.page.route("**/v1/items/images/gone", lambda route: asked.append(route))
    with page.page.expect_request("**/v1/items/images/gone"):
        page.open(urlencode({"text": WORDS, "open": "gone"}))
    page.find("two dogs on a meadow")
    with page.page.expect_response("**/v1/items/images/gone"):
        asked[0].fulfill(status=404)
    page.page.evaluate("fetch('healthz').then(() => null)")  # the answer was dealt with
    expect(page.status).not_to_contain_text("The item of this address")


@pytest.mark.parametrize(
    "fields",
    [
        {"k": "many", "target": "sounds"},
        {"filter": "{no json", "offset": "-"},
        {"filter": json.dumps([1])},
        {"terms": "{no json"},
        {"terms": '{"role": "all"}'},
        {"terms": '[null, 3, {"role": "all"}, {"role": "like", "id": 3}]'},
    ],
)
def test_what_an_address_says_in_vain_is_left_out(page: SearchPage, fields: dict[str, str]) -> None:
    hits = ids_of(page.open().find(WORDS))
    page.page.goto("about:blank")
    page.open(urlencode({"text": WORDS, **fields}))
    page.expect_hits(hits)
    expect(page.terms).to_have_count(0)
