"""Searching both ways, with words and with photos."""

from __future__ import annotations

import pytest

from benchmarks.search_page import SearchPage

pytestmark = pytest.mark.browser


def test_words_find_photos(page: SearchPage) -> None:
    page.open().words.fill("a red star")
    page.words.press("Enter")
    page.page.wait_for_selector("#hits li.hit")
    assert page.hits.count() == 24
