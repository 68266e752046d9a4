"""What is measured in each state of the page, in each of its looks.

For each: its layout, the accessibility violations that axe finds, the files that were loaded, and a
screenshot.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, NamedTuple
from urllib.parse import urlsplit

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Page, Request

from benchmarks.service.page_states import STATES, Asked
from benchmarks.service.search_page import SearchPage

_API = "/v1/"
_JPEG_QUALITY = 70


def find_violations(page: Page) -> list[str]:
    """Check the current state of the page.

    Returns:
        A line for each element that breaks a rule: the rule, the element, what is wrong.
    """
    violations = Axe().run(page).response["violations"]
    return [
        f"{violation['id']}: {node['html']}: {node['failureSummary']}"
        for violation in violations
        for node in violation["nodes"]
    ]


class Look(NamedTuple):
    """Appearance in which the page is viewed.

    Attributes:
        scheme: Colour scheme set in the system.
        width_px: Width of the window.
        height_px: Height of the window.
    """

    scheme: Literal["light", "dark"]
    width_px: int
    height_px: int


# The narrowest width is that of the smallest phones in use, and of 400 % zoom on a desktop.
LOOKS: dict[str, Look] = {
    "light": Look("light", 1280, 800),
    "dark": Look("dark", 1280, 800),
    "phone": Look("light", 320, 640),
}


class Visit(NamedTuple):
    """Result of viewing one state in one appearance.

    Attributes:
        violations: Violations found by axe.
        complaints: Messages of the browser that the state does not explain.
        elsewhere: Hosts other than the service that received requests.
        overflow_px: Number of pixels by which the page is wider than its window.
        files: Files of the page, bytes as transferred by path.
    """

    violations: list[str]
    complaints: list[str]
    elsewhere: list[str]
    overflow_px: int
    files: dict[str, int]


def visit(
    browser: Browser, url: str, state: str, look: str, asked: Asked, screenshots: Path | None = None
) -> Visit:
    """Bring a newly opened page to a state, and check it.

    Args:
        browser: Browser in which a new context is opened.
        url: URL of the service.
        state: Name of the state, one of `STATES`.
        look: Name of the look, one of `LOOKS`.
        asked: Input of the searches.
        screenshots: Folder for a picture ``STATE-LOOK.jpg`` of the window.
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
    """Open a browser context with an appearance, without animations."""
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
