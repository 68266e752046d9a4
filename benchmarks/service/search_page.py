"""The search page in Chromium, operated as by its users.

Collects the browser's complaints, too. No other module knows the names of the page's elements.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from playwright.sync_api import (
    BrowserContext,
    ConsoleMessage,
    Locator,
    Request,
    Response,
    expect,
)

from aladin_network.types import Target

# Error of a request whose response the page no longer waits for.
_GIVEN_UP = "net::ERR_ABORTED"

# Passes a photo to the page as the system's clipboard or file manager does.
_HAND_OVER = """
([way, name, bytes]) => {
  const data = new DataTransfer();
  data.items.add(new File([Uint8Array.from(bytes)], name, { type: "image/png" }));
  const about = { bubbles: true, cancelable: true };
  const at = document.activeElement ?? document.body;
  if (way === "paste") {
    at.dispatchEvent(new ClipboardEvent("paste", { ...about, clipboardData: data }));
    return;
  }
  for (const type of ["dragenter", "dragover", "drop"]) {
    document.body.dispatchEvent(new DragEvent(type, { ...about, dataTransfer: data }));
  }
}
"""

_SHOWN_IDS = """
(ids) => {
  const shown = [...document.querySelectorAll("#hits > li.hit")].map((hit) => hit.dataset.id);
  return JSON.stringify(shown) === JSON.stringify(ids);
}
"""

_PHOTOS_ARE_THERE = """
() => [...document.querySelectorAll(".hit img")].every((photo) => {
  const box = photo.getBoundingClientRect();
  const isSeen = photo.checkVisibility() && box.top < innerHeight && box.bottom > 0;
  return !isSeen || (photo.complete && photo.naturalWidth > 0);
})
"""


class Complaints:
    """Collects the error messages and the requested hosts of a browser context's pages.

    Attributes:
        made: Complaints in order: errors and warnings of the console, uncaught script errors,
            requests without a response.
        hosts: Hosts of all requests, with port.
    """

    def __init__(self, context: BrowserContext) -> None:
        """Start listening."""
        self.made: list[str] = []
        self.hosts: set[str] = set()
        self._expected: list[str] = []
        context.on("console", self._note_console)
        context.on("weberror", lambda error: self.made.append(f"uncaught: {error.error}"))
        context.on("requestfailed", self._note_failure)
        context.on("request", self._note_host)

    def expect(self, pattern: str) -> None:
        """Accept complaints that match the regular expression `pattern`; one has to come."""
        self._expected.append(pattern)

    def unexpected(self) -> list[str]:
        """Return the unexpected complaints."""
        return [
            each
            for each in self.made
            if not any(re.search(pattern, each) for pattern in self._expected)
        ]

    def missing(self) -> list[str]:
        """Return the expected complaints that did not occur."""
        return [
            pattern
            for pattern in self._expected
            if not any(re.search(pattern, each) for each in self.made)
        ]

    def _note_console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            place = message.location
            self.made.append(f"{message.type}: {message.text} ({place.get('url')})")

    def _note_failure(self, request: Request) -> None:
        if request.failure != _GIVEN_UP:
            self.made.append(f"no answer: {request.method} {request.url}: {request.failure}")

    def _note_host(self, request: Request) -> None:
        address = urlsplit(request.url)
        if address.scheme not in ("blob", "data"):  # made by the page itself
            self.hosts.add(address.netloc)


Answer = dict[str, Any]
Way = Literal["drop", "paste"]


class SearchPage:
    """The page of one service in a browser.

    Attributes:
        page: Page object of Playwright.
        url: URL of the service, without a trailing slash.
        complaints: Complaints of all pages of the context.
    """

    def __init__(self, context: BrowserContext, url: str) -> None:
        """Create the object without opening the page.

        Args:
            context: New browser context without any stored state.
            url: URL of the service.
        """
        self.complaints = Complaints(context)
        self.page = context.new_page()
        self.url = url

    @property
    def words(self) -> Locator:
        """The text field for the words to search for."""
        return self.page.locator("#words")

    @property
    def hits(self) -> Locator:
        """The hits; if two lists are compared, those of both stages."""
        return self.page.locator("#hits > li.hit")

    @property
    def matching_hits(self) -> Locator:
        """The hits of matching alone, if the two lists are compared."""
        return self.page.locator("#matching-hits > li.hit")

    @property
    def status(self) -> Locator:
        """The status line with the progress or the result."""
        return self.page.locator("#status")

    @property
    def error(self) -> Locator:
        """The error message."""
        return self.page.locator("#error")

    @property
    def terms(self) -> Locator:
        """The terms of the query below the field."""
        return self.page.locator("#terms > li.asked")

    @property
    def listed(self) -> Locator:
        """The items that are shown without a search."""
        return self.page.locator("#library:not([hidden]) li.hit")

    @property
    def viewer(self) -> Locator:
        """The dialog of one item, with why it was found."""
        return self.page.locator("dialog#viewer")

    @property
    def evidence(self) -> Locator:
        """The words and scores of the open hit."""
        return self.viewer.locator("#why")

    def open(self, fragment: str = "") -> SearchPage:
        """Open the page at the search of `fragment`, the part of the address after #."""
        self.page.goto(f"{self.url}/#{fragment}" if fragment else f"{self.url}/")
        return self

    def open_api(self, operation: str) -> None:
        """Open the page of the API; return when an operation is unfolded."""
        self.page.goto(f"{self.url}/docs#{operation}")
        expect(self.page.locator(f"#{operation}")).to_have_attribute("open", "")

    def show_details(self) -> SearchPage:
        """Show scores, timings and options."""
        self.page.locator("#details-toggle:not([aria-pressed=true])").click()
        return self

    def compare(self) -> None:
        """Compare the two stages; the details have to be shown."""
        self.page.locator("#options-toggle[aria-expanded=false]").click()
        self.page.locator("#compare").check()

    def choose_target(self, target: Target) -> None:
        """Choose the other collection; return when the answer is shown, if there is a query."""
        has_query = self.page.locator("body:not(.starting)").count() > 0
        with self.answer_shown() if has_query else nullcontext():
            self.page.locator(f"input[name=target][value={target}]").check()

    def ask(self, words: str) -> None:
        """Type words and press Enter, whatever the result."""
        self.words.fill(words)
        self.words.press("Enter")

    def find(self, words: str) -> Answer:
        """Search with words; return the answer once it is shown."""
        with self.answer_shown() as answer:
            self.ask(words)
        return answer

    def find_photo(self, photo: Path) -> Answer:
        """Choose a photo of this machine to search with."""
        with self.answer_shown() as answer:
            self.page.locator("#photo").set_input_files(photo)
        return answer

    def hand_over(self, photo: Path, way: Way) -> Answer:
        """Drop a photo on the page, or paste it, to search with."""
        with self.answer_shown() as answer:
            self.page.evaluate(_HAND_OVER, [way, photo.name, list(photo.read_bytes())])
        return answer

    def open_evidence(self, hit: Locator) -> None:
        """Open a hit; return when the words that explain it are shown."""
        hit.locator("button.open").click()
        expect(self.evidence.locator(".word").first).to_be_visible()

    def mark(self, hit: Locator) -> None:
        """Mark a hit as right, or take the mark back."""
        hit.hover()
        hit.locator(".mark").click()

    def point_at_strongest_word(self) -> None:
        """Point at the word that contributes most to the score."""
        words = self.evidence.locator(".word")
        scores = [float(score) for score in data_of(words, "score")]
        words.nth(scores.index(max(scores))).hover()

    @contextmanager
    def answer_shown(self, rerank: bool = True) -> Generator[Answer]:
        """Wait for the answer of a search made inside the block; yields the answer.

        Args:
            rerank: Wait for the search with both stages; otherwise for the one by matching alone.
        """
        answer: Answer = {}
        with self.page.expect_response(_is_search(rerank)) as caught:
            yield answer
        answer |= caught.value.json()
        self.expect_hits([hit["id"] for hit in answer.get("hits", [])])

    def expect_hits(self, ids: Sequence[str]) -> None:
        """Wait until exactly these hits are shown, in this order."""
        self.page.wait_for_function(_SHOWN_IDS, arg=list(ids))

    def expect_photos(self) -> None:
        """Wait until the photos of all hits in view are loaded."""
        self.page.wait_for_function(_PHOTOS_ARE_THERE)

    def filter_by(self, fields: Mapping[str, Any]) -> Answer:
        """Filter the hits by these metadata."""
        form = self.page.locator("#filter-form")
        if not form.is_visible():
            self.page.locator("#filter-toggle").click()
        self.unfold_json().fill(json.dumps(fields))
        with self.answer_shown() as answer:
            form.locator("button[type=submit]").click()
        return answer

    def unfold_json(self) -> Locator:
        """Unfold the filter as JSON in the panel that is open; return its field."""
        details = self.page.locator("#as-json:not([open])")
        if details.count() > 0:
            details.locator("> summary").click()
        return self.page.locator("#filter-json")

    def ids(self) -> list[str]:
        """Return the IDs of the hits that are shown now."""
        return data_of(self.hits, "id")


def data_of(elements: Locator, name: str) -> list[str]:
    """Return the attribute ``data-NAME`` of each element."""
    each = elements.evaluate_all("(each, name) => each.map((one) => one.dataset[name])", name)
    return list(each)


def _is_search(rerank: bool) -> Callable[[Response], bool]:
    def matches(response: Response) -> bool:
        if not urlsplit(response.url).path.startswith("/v1/search/"):
            return False
        body = response.request.post_data_buffer or b""
        alone = b'"rerank":false' in body or b'name="rerank"\r\n\r\nfalse' in body
        return alone != rerank

    return matches
