"""Filters on the page: together with words, and where nothing passes."""

from __future__ import annotations

import json
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from playwright.sync_api import expect

from benchmarks.service.search_page import Answer, SearchPage

pytestmark = pytest.mark.browser

WORDS = "a small red star above a blue square"
FILTER = {"number": {"lt": 20}}


def fill_filter(page: SearchPage, fields: dict[str, object]) -> None:
    """Open the panel and write a filter, without applying it."""
    page.page.locator("#filter-toggle").click()
    page.unfold_json().fill(json.dumps(fields))


def apply(page: SearchPage) -> Answer:
    with page.answer_shown() as answer:
        page.page.get_by_role("button", name="Apply").click()
    return answer


def address_of(page: SearchPage) -> dict[str, str]:
    """What the address says of the search."""
    parts = parse_qs(urlsplit(page.page.url).fragment)
    return {name: values[0] for name, values in parts.items()}


@pytest.mark.parametrize("before", [None, "two dogs on a meadow"])
def test_a_filter_is_applied_to_the_words_that_are_typed(
    page: SearchPage, api: httpx.Client, before: str | None
) -> None:
    page.open()
    if before is not None:
        page.find(before)
    page.words.fill(WORDS)
    fill_filter(page, FILTER)

    apply(page)

    asked = {"text": WORDS, "filter": FILTER, "k": 24}
    expected = api.post("/v1/search/images", json=asked).json()["hits"]
    assert page.ids() == [hit["id"] for hit in expected]
    expect(page.words).to_have_value(WORDS)
    address = address_of(page)
    assert (address["text"], json.loads(address["filter"])) == (WORDS, FILTER)


def test_a_filter_waits_for_words(page: SearchPage) -> None:
    page.open()
    fill_filter(page, FILTER)
    page.page.get_by_role("button", name="Apply").click()
    expect(page.page.locator("#filters-in-force")).to_contain_text("20")
    expect(page.hits).to_have_count(0)

    page.find(WORDS)

    assert json.loads(address_of(page)["filter"]) == FILTER


def test_a_choice_keeps_the_words_that_are_typed(page: SearchPage) -> None:
    page.open()
    page.words.fill(WORDS)
    page.choose_target("texts")
    expect(page.words).to_have_value(WORDS)
    expect(page.hits).to_have_count(0)  # nothing was asked for yet

    page.find("two dogs on a meadow")
    page.words.fill(WORDS)
    with page.answer_shown():
        page.choose_target("images")

    expect(page.words).to_have_value(WORDS)
    assert address_of(page)["text"] == WORDS


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"scene.background": "beach"}, "No photo has the metadata field “scene.background”."),
        ({"number": -1}, "No photo passes this filter."),
    ],
)
def test_one_message_says_that_nothing_passes(
    page: SearchPage, fields: dict[str, object], says: str
) -> None:
    page.open().find(WORDS)

    page.filter_by(fields)

    expect(page.status).to_have_text(says)
    expect(page.page.locator("#no-match")).to_be_hidden()
    expect(page.page.locator("#timings")).to_be_hidden()
    expect(page.hits).to_have_count(0)


@pytest.mark.parametrize(
    "fields",
    [
        {"camera": ""},
        {"camera": {"ne": ""}},
        {"camera": ["", "a"]},
        {"camera": ['"a" "b"', "x, y", " z", '"', 'say "hi"', "5", 5, -1.5, "true", True]},
        {"or": [{"camera": ["5", ""]}, {"number": {"gte": 5}}]},
    ],
)
def test_the_form_keeps_every_value(page: SearchPage, fields: dict[str, object]) -> None:
    page.open()
    kept = page.page.evaluate(
        """async filter => {
          const { rowsOf, filterOf } = await import('/page/filter_language.js');
          const { rows, join } = rowsOf(filter);
          return filterOf(rows, join);
        }""",
        fields,
    )
    assert kept == fields
