"""Queries of several terms on the page: words to add, examples, signs, the split of a negation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
from playwright.sync_api import expect

from benchmarks.service.search_page import Answer, SearchPage, data_of
from tests.browser.conftest import Shared, asked, ids_of

pytestmark = pytest.mark.browser

WORDS = "a small red star above a blue square"


def texts(*names: str) -> list[dict[str, str]]:
    return [{"text": name} for name in names]


def refine(page: SearchPage, words: str, name: str) -> Answer:
    """Add words to the query by the form; return the answer once it is shown."""
    if page.page.locator("#refine").is_hidden():
        page.page.locator("#refine-toggle").click()
    page.page.locator("#refine-words").fill(words)
    with page.answer_shown() as answer:
        page.page.locator("#refine").get_by_role("button", name=name, exact=True).click()
    return answer


def test_words_are_added_turned_and_removed(page: SearchPage, api: httpx.Client) -> None:
    def expect_those_of(**body: Any) -> None:
        assert page.ids() == ids_of(asked(api, **body))

    page.open().find(WORDS)
    refine(page, "a green circle", "With")
    refine(page, "a dog", "Without")
    expect_those_of(all=texts(WORDS, "a green circle"), **{"not": texts("a dog")})
    assert data_of(page.terms, "role") == ["all", "not"]
    with page.answer_shown():
        page.terms.first.get_by_role("button", name="change to without").click()
    expect_those_of(all=texts(WORDS), **{"not": texts("a green circle", "a dog")})
    expect(page.terms.first.locator(".sign")).to_be_focused()  # the keyboard stays there
    with page.answer_shown():
        page.page.keyboard.press("Tab")
        page.page.keyboard.press("Enter")
    expect_those_of(all=texts(WORDS), **{"not": texts("a dog")})
    expect(page.terms.first.locator(".remove")).to_be_focused()
    with page.answer_shown():
        page.page.keyboard.press("Enter")
    expect_those_of(text=WORDS)
    expect(page.page.locator("#terms")).to_be_hidden()


def test_hits_that_are_right_make_the_next_query(page: SearchPage, api: httpx.Client) -> None:
    hits = ids_of(page.open().find(WORDS))
    bar = page.page.locator("#marks")
    expect(bar).to_be_hidden()
    page.open_evidence(page.hits.nth(1))
    page.viewer.get_by_role("button", name="Right:").click()
    page.page.keyboard.press("Escape")
    pressed = page.hits.nth(1).locator(".mark")
    expect(pressed).to_have_attribute("aria-pressed", "true")
    expect(bar).to_contain_text("1 right")
    page.page.locator("#marks-clear").click()
    expect(bar).to_be_hidden()
    expect(pressed).to_have_attribute("aria-pressed", "false")
    for place in (0, 2, 3, 3):  # the last is taken back
        page.mark(page.hits.nth(place))
    expect(bar).to_contain_text("2 right")

    with page.answer_shown():
        bar.get_by_role("button", name="More like these").click()
    assert page.ids() == ids_of(asked(api, all=texts(WORDS), like=[hits[0], hits[2]]))
    assert not {hits[0], hits[2]} & set(page.ids())
    expect(bar).to_be_hidden()
    assert data_of(page.terms, "role") == ["like", "like"]
    expect(page.terms.locator("img")).to_have_count(2)
    with page.answer_shown():
        page.terms.nth(1).get_by_role("button", name="Remove").click()
    assert page.ids() == ids_of(asked(api, all=texts(WORDS), like=[hits[0]]))
    page.find("two dogs on a meadow")  # other words have other examples
    expect(page.terms).to_have_count(0)


def test_the_address_has_the_terms_of_a_photo_and_words(
    page: SearchPage, shared: Shared, photo: Path
) -> None:
    hits = ids_of(page.open().find(WORDS))
    refine(page, "a dog & #1, +ünï", "Without")
    page.mark(page.hits.first)
    with page.answer_shown() as answer:
        page.page.locator("#marks-search").click()
    other = shared(page)
    other.expect_hits(ids_of(answer))
    assert data_of(other.terms, "role") == ["not", "like"]
    expect(other.terms.first).to_contain_text("a dog & #1, +ünï")
    page.page.go_back()
    page.page.go_back()
    page.expect_hits(hits)
    expect(page.terms).to_have_count(0)
    page.find_photo(photo)
    answer = refine(page, "a red star", "With")
    roles = [(term["role"], term["text"]) for term in answer["terms"]]
    assert roles == [("all", None), ("all", "a red star")]
    assert page.ids() == ids_of(answer)


def test_the_split_of_a_negation_is_offered_made_and_undone(
    page: SearchPage, api: httpx.Client
) -> None:
    sentence = f"{WORDS} without a dog"
    whole = page.open().find(sentence)
    assert whole["terms"] is None
    offer = page.page.locator("#split")
    expect(offer).to_contain_text("“without a dog”")
    with page.answer_shown():
        offer.get_by_role("button").click()
    assert page.ids() == ids_of(asked(api, all=texts(WORDS), **{"not": texts("dog")}))
    expect(page.words).to_have_value(WORDS)
    expect(offer).to_be_hidden()
    with page.answer_shown():
        page.page.get_by_role("button", name="Undo the split").click()
    expect(page.words).to_have_value(sentence)
    assert page.ids() == ids_of(whole)
    expect(page.terms).to_have_count(0)
    page.find(WORDS)
    expect(offer).to_be_hidden()


def test_the_terms_have_scores_and_evidence(page: SearchPage) -> None:
    terms = [{"role": "all", "text": "a blue square"}, {"role": "not", "text": "a dog"}]
    page.open(urlencode({"text": "a red star", "terms": json.dumps(terms)}))
    page.show_details()
    with page.page.expect_response("**/v1/explain?*"):
        page.open_evidence(page.hits.first)
    words = page.evidence.locator("p.words")
    expect(words).to_have_count(3)
    assert page.evidence.locator("h4").all_inner_texts() == ["With", "With", "Without"]
    last = words.nth(2).locator(".word").last
    last.click()
    expect(last).to_have_attribute("aria-pressed", "true")
    expect(page.evidence.locator(".word[aria-pressed=true]")).to_have_count(1)
    expect(page.viewer.locator(".region.lit")).to_have_count(1)
    rows = page.viewer.locator("#viewer-scores div").all_inner_texts()
    facts = dict(row.replace("\u2212", "-").split("\n", 1) for row in rows)
    named = ["With a red star", "With a blue square", "Without a dog"]
    assert list(facts)[-4:-1] == named
    added = sum(float(facts[name]) for name in named)
    assert float(facts["Score"]) == pytest.approx(added, abs=2e-3)


def test_rare_words_are_found_where_they_are_written(page: SearchPage) -> None:
    page.open().find("dogs")
    page.show_details()
    page.page.locator("#options-toggle").click()
    weight = page.page.locator("#option-lexical")
    with page.answer_shown():
        page.page.get_by_label("Use the default weight").uncheck()
    with page.answer_shown() as answer:
        weight.fill("1")
    places = {"text": "caption", "uri": "file name"}
    assert page.hits.locator(".written").all_inner_texts() == [
        f"“{word}” in the {places[field['field']]}"
        for hit in answer["hits"]
        for field in hit["stages"]["lexical"]
        for word in field["words"]
    ]
    with page.answer_shown() as again:
        page.page.reload()
    assert ids_of(again) == ids_of(answer)
    refine(page, "a dog", "Without")  # of a query of several terms there are none
    expect(weight).to_be_disabled()
    expect(page.error).to_be_hidden()
