"""Every main state of the page, in every look: usable by all, quiet, no wider than its window."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser

from benchmarks.service.page_states import STATES, Asked
from benchmarks.service.page_visits import LOOKS, visit

pytestmark = pytest.mark.browser

# Below the folder that the tests are started in; people look at what is there.
_SCREENSHOTS = Path("runs/screenshots")


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("state", STATES)
def test_a_state(
    browser: Browser, url: str, photo: Path, no_photo: Path, state: str, look: str
) -> None:
    asked = Asked("a small red star above a blue square", photo, no_photo)

    seen = visit(browser, url, state, look, asked, _SCREENSHOTS)

    assert seen.violations == []
    assert seen.complaints == []
    assert seen.elsewhere == []
    assert seen.overflow_px == 0
    assert sum(seen.files.values()) > 0
