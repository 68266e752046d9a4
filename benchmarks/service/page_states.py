"""The main states of the page, reached as by its users."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlencode

from playwright.sync_api import expect

from benchmarks.service.page_answers import match_nothing, refuse
from benchmarks.service.search_page import SearchPage

_SEARCHES = "**/v1/search/**"
_PHOTOS = "**/v1/images/**"
# A filter that matches no item.
_NOTHING = {"aladin-no-such-field": "x"}


class Asked(NamedTuple):
    """Input of the searches.

    Attributes:
        words: Words that find photos.
        photo: A file that finds texts.
        no_photo: A file of another kind.
    """

    words: str
    photo: Path
    no_photo: Path


class PageState(NamedTuple):
    """One state of the page.

    Attributes:
        reach: Function that brings a page that is not opened yet into this state; returns when all
            of it is shown.
        complaints: Expected messages of the browser, as regular expressions: it logs each response
            that is an error.
        path: Path of the page that is shown in this state.
    """

    reach: Callable[[SearchPage, Asked], None]
    complaints: tuple[str, ...] = ()
    path: str = "/"


def _start(page: SearchPage, asked: Asked) -> None:
    del asked
    page.open()
    expect(page.page.locator("#index-info")).not_to_be_empty()
    expect(page.listed.first).to_be_visible()
    page.page.locator("#about summary").click()
    page.expect_photos()


def _returned(page: SearchPage, asked: Asked) -> None:
    """The start of a reader who has searched before, with the choices of the filter."""
    _photos(page, asked)
    page.page.locator("#words").fill("")
    page.page.locator("#words").press("Enter")
    expect(page.page.locator("#history")).to_be_visible()
    if _has_filter(page):
        page.page.locator("#filter-toggle").click()
        expect(page.page.locator("#filter-form")).to_be_visible()


def _has_filter(page: SearchPage) -> bool:
    """Whether the page offers a filter: the items of some indexes have no metadata."""
    expect(page.page.locator("#index-info")).not_to_be_empty()
    return page.page.locator("#filter-toggle").is_visible()


def _opened(page: SearchPage, asked: Asked) -> None:
    _start(page, asked)
    page.listed.first.locator("button.open").click()
    expect(page.viewer.locator(".frame img")).to_be_visible()


def _photo_gone(page: SearchPage, asked: Asked) -> None:
    page.page.route(_PHOTOS, refuse(404, "photo_gone"))
    page.open().find(asked.words)
    expect(page.hits.first.locator(".lost")).to_be_visible()


def _photos(page: SearchPage, asked: Asked) -> None:
    page.open().find(asked.words)
    page.expect_photos()


def _selected(page: SearchPage, asked: Asked) -> None:
    _photos(page, asked)
    page.page.locator("#picks-toggle").click()
    for place in (0, 2):
        page.hits.nth(place).locator("button.open").click()
    expect(page.page.locator("#picks-count")).to_have_text("2 photos selected")


def _ordered(page: SearchPage, asked: Asked) -> None:
    page.open(urlencode({"text": asked.words, "sort": "-number"}))
    expect(page.page.locator("#sort")).to_be_visible()
    page.expect_photos()


def _terms(page: SearchPage, asked: Asked) -> None:
    """A query of several terms, hits marked for the next one, and the words to refine it."""
    hits = page.open().find(asked.words)["hits"]
    examples = [
        {"role": role, "id": hit["id"], "name": hit["text"] or hit["id"], "of": "images"}
        for role, hit in zip(("like", "like"), hits, strict=False)
    ]
    terms = [{"role": "all", "text": "two"}, {"role": "not", "text": "a dog"}, *examples]
    page.open(urlencode({"text": asked.words, "terms": json.dumps(terms)}))
    expect(page.terms).to_have_count(4)
    page.expect_photos()
    page.mark(page.hits.nth(0))
    page.page.locator("#refine-toggle").click()
    expect(page.page.locator("#marks")).to_be_visible()


def _split(page: SearchPage, asked: Asked) -> None:
    page.open().find(f"{asked.words} without a dog")
    expect(page.page.locator("#split")).to_be_visible()
    page.expect_photos()


def _texts(page: SearchPage, asked: Asked) -> None:
    page.open().choose_target("texts")
    page.find_photo(asked.photo)


def _evidence(page: SearchPage, asked: Asked) -> None:
    _photos(page, asked)
    page.open_evidence(page.hits.first)
    page.point_at_strongest_word()


def _evidence_of_text(page: SearchPage, asked: Asked) -> None:
    _texts(page, asked)
    page.open_evidence(page.hits.first)
    page.point_at_strongest_word()


def _evidence_in_detail(page: SearchPage, asked: Asked) -> None:
    _photos(page, asked)
    page.show_details()
    page.open_evidence(page.hits.first)


def _compared(page: SearchPage, asked: Asked) -> None:
    _photos(page, asked)
    page.show_details().compare()
    page.page.locator("#options-toggle").click()
    expect(page.matching_hits.first).to_be_visible()
    page.expect_photos()


def _panels(page: SearchPage, asked: Asked) -> None:
    _photos(page, asked)
    page.show_details()
    if _has_filter(page):
        page.filter_by({})
    page.page.locator("#options-toggle").click()
    expect(page.page.locator("#options")).to_be_visible()


def _no_match(page: SearchPage, asked: Asked) -> None:
    page.page.route(_SEARCHES, match_nothing)
    page.open().find(asked.words)
    expect(page.page.locator("#no-match")).to_be_visible()
    page.expect_photos()


def _nothing_found(page: SearchPage, asked: Asked) -> None:
    page.open(urlencode({"text": asked.words, "filter": json.dumps(_NOTHING)}))
    expect(page.status).to_contain_text("metadata field")


def _photo_refused(page: SearchPage, asked: Asked) -> None:
    page.open()
    page.page.locator("#photo").set_input_files(asked.no_photo)
    expect(page.error).to_be_visible()


def _loading(page: SearchPage, asked: Asked) -> None:
    page.page.route(_SEARCHES, lambda _: None)  # the answer never comes
    page.open().ask(asked.words)
    expect(page.status).to_contain_text("Searching")


def _overloaded(page: SearchPage, asked: Asked) -> None:
    page.page.route(_SEARCHES, refuse(429, "overloaded", {"Retry-After": "30"}))
    page.open().ask(asked.words)
    expect(page.error).to_be_visible()


def _key_needed(page: SearchPage, asked: Asked) -> None:
    del asked
    page.page.route("**/v1/**", refuse(401, "unauthorized", {"WWW-Authenticate": "Bearer"}))
    page.open()
    expect(page.page.locator("#key-form")).to_be_visible()


def _service_gone(page: SearchPage, asked: Asked) -> None:
    _photos(page, asked)
    page.page.context.set_offline(True)
    expect(page.page.locator("#offline")).to_be_visible()


def _api(page: SearchPage, asked: Asked) -> None:
    del asked
    page.open_api("search_images")
    expect(page.page.locator("#search_images table").first).to_be_visible()


STATES: dict[str, PageState] = {
    "start": PageState(_start),
    "returned": PageState(_returned),
    "opened": PageState(_opened),
    "photos": PageState(_photos),
    "selected": PageState(_selected),
    "ordered": PageState(_ordered),
    "terms": PageState(_terms),
    "split": PageState(_split),
    "texts": PageState(_texts),
    "evidence": PageState(_evidence),
    "evidence-in-detail": PageState(_evidence_in_detail),
    "evidence-of-text": PageState(_evidence_of_text),
    "compared": PageState(_compared),
    "panels": PageState(_panels),
    "no-match": PageState(_no_match),
    "nothing-found": PageState(_nothing_found),
    "photo-gone": PageState(_photo_gone, ("status of 404",)),
    "photo-refused": PageState(_photo_refused, ("status of 415",)),
    "api": PageState(_api, path="/docs"),
    "loading": PageState(_loading),
    "overloaded": PageState(_overloaded, ("status of 429",)),
    "key-needed": PageState(_key_needed, ("status of 401",)),
    # Photos below the window may still have been loading.
    "service-gone": PageState(_service_gone, ("net::ERR_INTERNET_DISCONNECTED",)),
}
