"""The main states of the page, each reached as its users reach it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from playwright.sync_api import Route, expect

from benchmarks.search_page import SearchPage

_SEARCHES = "**/v1/search/**"
# A filter that nothing in the world meets.
_NOTHING = {"aladin-no-such-field": "x"}


class Asked(NamedTuple):
    """What is searched for.

    Attributes:
        words: that find photos.
        photo: a file that finds texts.
        no_photo: a file of another kind.
    """

    words: str
    photo: Path
    no_photo: Path


class PageState(NamedTuple):
    """One state of the page.

    Attributes:
        reach: brings a page that is not opened yet there; returns when all of it is shown.
        complaints: what the browser says of it, regular expressions: it tells of each answer that
            is an error.
        path: of the page that is shown then.
    """

    reach: Callable[[SearchPage, Asked], None]
    complaints: tuple[str, ...] = ()
    path: str = "/"


def _start(page: SearchPage, asked: Asked) -> None:
    del asked
    page.open()
    expect(page.page.locator("#index-info")).not_to_be_empty()


def _photos(page: SearchPage, asked: Asked) -> None:
    page.open().find(asked.words)
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


def _compared(page: SearchPage, asked: Asked) -> None:
    _photos(page, asked)
    page.page.locator("#compare").check()
    expect(page.matching_hits.first).to_be_visible()
    page.expect_photos()


def _panels(page: SearchPage, asked: Asked) -> None:
    _photos(page, asked)
    page.filter_by({})
    page.page.locator("#options-toggle").click()
    expect(page.page.locator("#options")).to_be_visible()


def _no_match(page: SearchPage, asked: Asked) -> None:
    page.page.route(_SEARCHES, _without_a_match)
    page.open().find(asked.words)
    expect(page.page.locator("#no-match")).to_be_visible()
    page.expect_photos()


def _nothing_found(page: SearchPage, asked: Asked) -> None:
    page.open().find(asked.words)
    page.filter_by(_NOTHING)


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


def _index(page: SearchPage, asked: Asked) -> None:
    page.open().find(asked.words)  # among the slow queries then
    page.open_state()


def _api(page: SearchPage, asked: Asked) -> None:
    del asked
    page.open_api("search_images")
    expect(page.page.locator("#search_images table").first).to_be_visible()


def _without_a_match(route: Route) -> None:
    """Answer as the service does where nothing is likely enough."""
    answer = route.fetch()
    changed = answer.json() | {
        "match_probability": 0.04,
        "no_match": True,
        "probabilities_reliable": True,
        "unreliable_because": None,
    }
    route.fulfill(response=answer, json=changed)


def refuse(
    status: int, code: str, headers: dict[str, str] | None = None
) -> Callable[[Route], None]:
    """Make what answers a request with an error, in the service's own form."""
    error = {"code": code, "message": "this is how it is refused", "request_id": "none"}

    def answer(route: Route) -> None:
        route.fulfill(
            status=status,
            headers={"Content-Type": "application/json", **(headers or {})},
            body=json.dumps({"error": error}),
        )

    return answer


STATES: dict[str, PageState] = {
    "start": PageState(_start),
    "photos": PageState(_photos),
    "texts": PageState(_texts),
    "evidence": PageState(_evidence),
    "evidence-of-text": PageState(_evidence_of_text),
    "compared": PageState(_compared),
    "panels": PageState(_panels),
    "no-match": PageState(_no_match),
    "nothing-found": PageState(_nothing_found),
    "photo-refused": PageState(_photo_refused, ("status of 415",)),
    "index": PageState(_index, path="/state"),
    "api": PageState(_api, path="/docs"),
    "loading": PageState(_loading),
    "overloaded": PageState(_overloaded, ("status of 429",)),
    "key-needed": PageState(_key_needed, ("status of 401",)),
    # Photos below the window may have been on their way.
    "service-gone": PageState(_service_gone, ("net::ERR_INTERNET_DISCONNECTED",)),
}
