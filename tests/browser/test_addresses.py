"""A search is in the page's address: to be shared, and to be gone back to."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Route, expect

from benchmarks.service.search_page import SearchPage

pytestmark = pytest.mark.browser

OpenPage = Callable[..., SearchPage]

# With all that an address treats in its own way.
WORDS = "a white star & a 50% larger circle #1, +ünï"


def test_who_gets_the_address_sees_the_same(
    page: SearchPage, open_page: OpenPage, url: str
) -> None:
    page.open().find(WORDS)
    page.filter_by({"number": {"lt": 50}})
    page.show_details()
    with page.answer_shown() as answer:
        page.compare()

    other = open_page(url)
    other.page.goto(page.page.url)

    other.expect_hits([hit["id"] for hit in answer["hits"]])
    expect(other.words).to_have_value(WORDS)
    expect(other.page.locator("#compare")).to_be_checked()
    expect(other.page.locator("#filters-in-force")).to_contain_text("50")
    expect(other.matching_hits).not_to_have_count(0)


def test_a_hit_that_was_more_like_another_is_shared_too(
    page: SearchPage, open_page: OpenPage, url: str
) -> None:
    page.open().find(WORDS)
    with page.answer_shown() as answer:
        page.hits.nth(5).locator("button.similar").click()

    other = open_page(url)
    other.page.goto(page.page.url)

    other.expect_hits([hit["id"] for hit in answer["hits"]])


def test_back_and_forward(page: SearchPage) -> None:
    first = page.open().find(WORDS)["hits"]
    second = page.find("two dogs on a meadow")["hits"]
    assert first != second

    page.page.go_back()
    page.expect_hits([hit["id"] for hit in first])
    expect(page.words).to_have_value(WORDS)

    page.page.go_forward()
    page.expect_hits([hit["id"] for hit in second])
    expect(page.words).to_have_value("two dogs on a meadow")

    page.page.go_back()
    page.page.go_back()
    expect(page.hits).to_have_count(0)
    expect(page.words).to_be_empty()


def test_an_open_hit_is_in_the_address(page: SearchPage, open_page: OpenPage, url: str) -> None:
    hits = page.open().find(WORDS)["hits"]
    page.open_evidence(page.hits.nth(2))

    other = open_page(url)
    other.page.goto(page.page.url)
    expect(other.viewer.locator("#viewer-facts")).to_contain_text(hits[2]["uri"])

    page.page.go_back()
    expect(page.viewer).to_be_hidden()
    page.expect_hits([hit["id"] for hit in hits])


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


def test_back_to_a_search_with_a_photo(page: SearchPage, photo: Path) -> None:
    with_photo = page.open().find_photo(photo)["hits"]
    page.page.locator("#example-remove").click()
    page.find(WORDS)

    page.page.go_back()
    page.page.go_back()

    page.expect_hits([hit["id"] for hit in with_photo])


def test_a_photo_is_in_no_address(
    page: SearchPage, open_page: OpenPage, url: str, photo: Path
) -> None:
    page.open().find_photo(photo)

    other = open_page(url)
    other.page.goto(page.page.url)

    expect(other.error).to_contain_text("does not contain your photo")
    expect(other.hits).to_have_count(0)


@pytest.mark.parametrize(
    "fragment",
    [
        urlencode({"text": WORDS, "k": "many", "target": "sounds"}),
        urlencode({"text": WORDS, "filter": "{no json", "offset": "-"}),
        urlencode({"text": WORDS, "filter": json.dumps([1])}),
    ],
)
def test_what_an_address_says_in_vain_is_left_out(page: SearchPage, fragment: str) -> None:
    hits = page.open().find(WORDS)["hits"]

    page.page.goto("about:blank")
    page.open(fragment)

    page.expect_hits([hit["id"] for hit in hits])
