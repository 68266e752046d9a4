"""Filters on the page: together with words, and where nothing passes."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from playwright.sync_api import expect

from benchmarks.service.search_page import SearchPage
from tests.browser.conftest import asked, ids_of

pytestmark = pytest.mark.browser

WORDS = "a small red star above a blue square"
FILTER = {"number": {"lt": 20}}


def fill_filter(page: SearchPage, fields: dict[str, object]) -> None:
    """Open the panel and write a filter, without applying it."""
    page.page.locator("#filter-toggle").click()
    page.unfold_json().fill(json.dumps(fields))


def apply(page: SearchPage) -> None:
    page.page.get_by_role("button", name="Apply").click()


def address_of(page: SearchPage) -> dict[str, Any]:
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
    with page.answer_shown():
        apply(page)
    assert page.ids() == ids_of(asked(api, text=WORDS, filter=FILTER))
    expect(page.words).to_have_value(WORDS)
    address = address_of(page)
    assert (address["text"], json.loads(address["filter"])) == (WORDS, FILTER)
    with page.answer_shown():
        page.page.locator("#filters-in-force").get_by_role("button").click()
    assert page.ids() == ids_of(asked(api, text=WORDS))


def test_a_filter_waits_for_words_and_one_value_is_a_filter(page: SearchPage) -> None:
    page.open()
    fill_filter(page, {"or": [{"number": {"lt": 10}}, {"number": 40}]})
    apply(page)
    expect(page.page.locator("#filters-in-force")).to_contain_text("40")
    expect(page.hits).to_have_count(0)
    numbers = [hit["metadata"]["number"] for hit in page.find(WORDS)["hits"]]
    assert set(numbers) == {*range(10), 40}
    page.open_evidence(page.hits.nth(3))
    with page.answer_shown() as answer:
        page.viewer.get_by_title(f"Only with number {numbers[3]}").click()
    assert [hit["metadata"] for hit in answer["hits"]] == [{"number": numbers[3]}]


def test_a_choice_keeps_the_words_that_are_typed(page: SearchPage) -> None:
    page.open()
    page.words.fill(WORDS)
    page.choose_target("texts")
    expect(page.words).to_have_value(WORDS)
    expect(page.hits).to_have_count(0)  # nothing was asked for yet
    page.find("two dogs on a meadow")
    page.words.fill(WORDS)
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
def test_one_message_says_that_nothing_is_listed_or_found(
    page: SearchPage, fields: dict[str, object], says: str
) -> None:
    page.open()
    fill_filter(page, fields)
    apply(page)
    expect(page.status).to_have_text(says)
    expect(page.listed).to_have_count(0)
    page.find(WORDS)
    expect(page.status).to_have_text(says)
    expect(page.page.locator("#no-match")).to_be_hidden()
    expect(page.page.locator("#timings")).to_be_hidden()
    expect(page.hits).to_have_count(0)


def test_the_form_keeps_every_value(page: SearchPage) -> None:
    filters: list[Any] = [
        {"camera": ""},
        {"camera": {"ne": ""}},
        {"camera": ["", "a"]},
        {"camera": ['"a" "b"', "x, y", " z", '"', 'say "hi"', "5", 5, -1.5, "true", True]},
        {"or": [{"camera": ["5", ""]}, {"number": {"gte": 5}}]},
    ]
    kept = page.open().page.evaluate(
        """async filters => {
          const { rowsOf, filterOf } = await import('/page/filter_language.js');
          return filters.map(rowsOf).map(({ rows, join }) => filterOf(rows, join));
        }""",
        filters,
    )
    assert kept == filters
