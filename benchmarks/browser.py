"""Chromium, for what looks at the page as people do: where it is, how it starts, what it minds."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Playwright,
    Request,
    sync_playwright,
)

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
