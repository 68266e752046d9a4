"""One look at one state of the page: what it took, what is wrong with it, a picture of it."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, NamedTuple
from urllib.parse import urlsplit

from playwright.sync_api import Browser, BrowserContext, Page, Request

from benchmarks.accessibility import find_violations
from benchmarks.page_states import STATES, Asked
from benchmarks.search_page import SearchPage

_API = "/v1/"
_JPEG_QUALITY = 70


class Look(NamedTuple):
    """How the page is looked at.

    Attributes:
        scheme: of colours, as the system is set.
        width_px: of the window.
        height_px: of the window.
    """

    scheme: Literal["light", "dark"]
    width_px: int
    height_px: int


# The narrowest is that of the smallest telephones in use, and of 400 % zoom on a desktop.
LOOKS: dict[str, Look] = {
    "light": Look("light", 1280, 800),
    "dark": Look("dark", 1280, 800),
    "phone": Look("light", 320, 640),
}


class Visit(NamedTuple):
    """What came of one look at one state.

    Attributes:
        violations: that axe found.
        complaints: of the browser, that the state does not bring with it.
        elsewhere: hosts that were asked besides the service.
        overflow_px: by which the page is wider than its window.
        files: what the page is made of, bytes as transferred by path.
    """

    violations: list[str]
    complaints: list[str]
    elsewhere: list[str]
    overflow_px: int
    files: dict[str, int]


def visit(
    browser: Browser, url: str, state: str, look: str, asked: Asked, screenshots: Path | None = None
) -> Visit:
    """Bring a page that knows nothing to a state, and look at it.

    Args:
        browser: that gets a context of its own for it.
        url: of the service.
        state: one of `STATES`.
        look: one of `LOOKS`.
        asked: what is searched for.
        screenshots: folder that gets a picture ``STATE-LOOK.jpg``, of the window.
    """
    with open_look(browser, LOOKS[look]) as context:
        requests: list[Request] = []
        context.on("requestfinished", lambda request: requests.append(request))
        search = SearchPage(context, url)
        page, complaints = search.page, search.complaints
        STATES[state].reach(search, asked)
        if screenshots is not None:
            screenshots.mkdir(parents=True, exist_ok=True)
            file = screenshots / f"{state}-{look}.jpg"
            page.screenshot(path=file, quality=_JPEG_QUALITY, type="jpeg")
        for pattern in STATES[state].complaints:
            complaints.expect(pattern)
        return Visit(
            violations=find_violations(page),
            complaints=complaints.unexpected(),
            elsewhere=sorted(complaints.hosts - {urlsplit(url).netloc}),
            overflow_px=_overflow_px(page),
            files=_files(requests),
        )


def open_look(browser: Browser, look: Look) -> BrowserContext:
    """Open a context of the browser that looks so; nothing moves in it."""
    return browser.new_context(
        color_scheme=look.scheme,
        reduced_motion="reduce",  # in the middle of a change, no colour is the one that is meant
        viewport={"width": look.width_px, "height": look.height_px},
    )


def _overflow_px(page: Page) -> int:
    root = "document.documentElement"
    return int(page.evaluate(f"{root}.scrollWidth - {root}.clientWidth"))


def _files(requests: list[Request]) -> dict[str, int]:
    files: dict[str, int] = {}
    for request in requests:
        address = urlsplit(request.url)
        if address.scheme in ("http", "https") and not address.path.startswith(_API):
            sizes = request.sizes()
            files[address.path] = sizes["responseHeadersSize"] + sizes["responseBodySize"]
    return files
