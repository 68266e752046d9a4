"""The search page in Chromium, operated as by its users.

Finds and starts the browser, collects its complaints, and is the only module that knows the names
of the page's elements.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Locator,
    Playwright,
    Request,
    Response,
    expect,
    sync_playwright,
)

from aladin_network.types import Target

NO_CHROMIUM = (
    "no Chromium: expected its file in ALADIN_CHROMIUM, chromium or google-chrome on the PATH, "
    "or playwright's own (playwright install chromium)"
)
_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# In a container there is no sandbox to enter and no graphics card; the rest keeps the browser from
# asking its maker for anything. No name but this machine's own leads anywhere.
_ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)
# Of a request whose answer the page no longer waits for.
_GIVEN_UP = "net::ERR_ABORTED"


def find_chromium(driver: Playwright) -> Path | None:
    """Return the browser's file: the one that is named, the system's, playwright's; None: none."""
    named = os.environ.get("ALADIN_CHROMIUM")
    if named:
        return Path(named)
    for name in _NAMES:
        found = shutil.which(name)
        if found:
            return Path(found)
    own = Path(driver.chromium.executable_path)
    return own if own.exists() else None


@contextmanager
def open_browser() -> Generator[Browser | None]:
    """Start Chromium, and end it after; None: there is none on this machine."""
    with sync_playwright() as driver:
        file = find_chromium(driver)
        if file is None:
            yield None
            return
        with driver.chromium.launch(executable_path=file, args=_ARGUMENTS) as browser:
            yield browser


class Complaints:
    """What the pages of a browser's context complain of, and whom they ask.

    Attributes:
        made: each complaint, as it came: errors and warnings of the console, errors that no script
            caught, requests without an answer.
        hosts: with port, of all requests.
    """

    def __init__(self, context: BrowserContext) -> None:
        """Listen from now on."""
        self.made: list[str] = []
        self.hosts: set[str] = set()
        self._expected: list[str] = []
        context.on("console", self._note_console)
        context.on("weberror", lambda error: self.made.append(f"uncaught: {error.error}"))
        context.on("requestfailed", self._note_failure)
        context.on("request", self._note_host)

    def expect(self, pattern: str) -> None:
        """Take complaints that have `pattern` in them, a regular expression, for right."""
        self._expected.append(pattern)

    def unexpected(self) -> list[str]:
        """Return the complaints that nobody expected."""
        return [
            each
            for each in self.made
            if not any(re.search(pattern, each) for pattern in self._expected)
        ]

    def missing(self) -> list[str]:
        """Return what was expected and did not come."""
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

# Puts a photo on the page as the system's clipboard or file manager does.
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
  return box.top > innerHeight || box.bottom < 0 || (photo.complete && photo.naturalWidth > 0);
})
"""


class SearchPage:
    """The page of one service in a browser.

    Attributes:
        page: playwright's.
        url: of the service, without a slash at its end.
        complaints: of all pages of the context.
    """

    def __init__(self, context: BrowserContext, url: str) -> None:
        """Open nothing yet.

        Args:
            context: of the browser, that knows nothing.
            url: of the service.
        """
        self.complaints = Complaints(context)
        self.page = context.new_page()
        self.url = url

    @property
    def words(self) -> Locator:
        """What is searched for, typed."""
        return self.page.locator("#words")

    @property
    def hits(self) -> Locator:
        """What was found; where two lists are compared, by both stages."""
        return self.page.locator("#hits > li.hit")

    @property
    def matching_hits(self) -> Locator:
        """What matching alone found, where the two are compared."""
        return self.page.locator("#matching-hits > li.hit")

    @property
    def status(self) -> Locator:
        """What the page is doing, or what came of it."""
        return self.page.locator("#status")

    @property
    def error(self) -> Locator:
        """What went wrong."""
        return self.page.locator("#error")

    @property
    def evidence(self) -> Locator:
        """The dialog that shows why a hit was found."""
        return self.page.locator("dialog#evidence")

    def open(self, fragment: str = "") -> SearchPage:
        """Go to the page, to the search of `fragment`, as in the address after #."""
        self.page.goto(f"{self.url}/#{fragment}" if fragment else f"{self.url}/")
        return self

    def open_state(self) -> None:
        """Go to the page of the index's state; return when all of it is shown."""
        self.page.goto(f"{self.url}/state")
        expect(self.page.locator("#left-out-body")).not_to_be_empty()
        expect(self.page.locator("#slow-body")).not_to_be_empty()

    def open_api(self, operation: str) -> None:
        """Go to the page of the API; return when an operation is unfolded."""
        self.page.goto(f"{self.url}/docs#{operation}")
        expect(self.page.locator(f"#{operation}")).to_have_attribute("open", "")

    def choose_target(self, target: Target) -> None:
        """Choose what is to be found."""
        self.page.locator(f"input[name=target][value={target}]").check()

    def ask(self, words: str) -> None:
        """Type words and Enter, whatever comes of it."""
        self.words.fill(words)
        self.words.press("Enter")

    def find(self, words: str) -> Answer:
        """Search with words; return the answer that is shown then."""
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
        """Ask why a hit was found; return when the words are there."""
        hit.locator("button.open").click()
        expect(self.evidence.locator(".word").first).to_be_visible()

    def point_at_strongest_word(self) -> None:
        """Point at the word that the score owes most to."""
        words = self.evidence.locator(".word")
        scores = [float(score) for score in data_of(words, "score")]
        words.nth(scores.index(max(scores))).hover()

    @contextmanager
    def answer_shown(self, rerank: bool = True) -> Generator[Answer]:
        """Have something done that searches; what is yielded is the answer, once it is shown.

            with page.answer_shown() as answer:
                page.words.press("Enter")
            answer["hits"]

        Args:
            rerank: wait for the search of both stages; otherwise for the one of matching alone.
        """
        answer: Answer = {}
        with self.page.expect_response(_is_search(rerank)) as caught:
            yield answer
        answer |= caught.value.json()
        self.expect_hits([hit["id"] for hit in answer.get("hits", [])])

    def expect_hits(self, ids: Sequence[str]) -> None:
        """Wait until just these are shown, in their order."""
        self.page.wait_for_function(_SHOWN_IDS, arg=list(ids))

    def expect_photos(self) -> None:
        """Wait until the photos of all hits in view are there."""
        self.page.wait_for_function(_PHOTOS_ARE_THERE)

    def filter_by(self, fields: Mapping[str, Any]) -> Answer:
        """Have only hits with these metadata found."""
        form = self.page.locator("#filter-form")
        if not form.is_visible():
            self.page.locator("#filter-toggle").click()
        json_field = form.locator("#filter-json")
        if not json_field.is_visible():
            form.locator("summary").click()
        json_field.fill(json.dumps(fields))
        with self.answer_shown() as answer:
            form.locator("button[type=submit]").click()
        return answer

    def ids(self) -> list[str]:
        """Return the ids of the hits that are shown now."""
        return data_of(self.hits, "id")


def data_of(elements: Locator, name: str) -> list[str]:
    """Return what each of some elements has in its attribute ``data-NAME``."""
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
