"""Chromium for the benchmarks and tests of the page, without a contact to its manufacturer."""

from __future__ import annotations

import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Playwright, sync_playwright

NO_CHROMIUM = (
    "no Chromium: expected its file in ALADIN_CHROMIUM, chromium or google-chrome on the PATH, "
    "or playwright's own (playwright install chromium)"
)
_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# In a container there is no sandbox and no graphics card; the other options keep the browser from
# contacting its manufacturer. Only the host names of this machine are resolved.
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


def find_chromium(driver: Playwright) -> Path | None:
    """Return the path of the named, the system's or playwright's browser, or None."""
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
    """Start Chromium and end it afterwards; yields None if it is not installed."""
    with sync_playwright() as driver:
        file = find_chromium(driver)
        if file is None:
            yield None
            return
        with driver.chromium.launch(executable_path=file, args=_ARGUMENTS) as browser:
            yield browser
