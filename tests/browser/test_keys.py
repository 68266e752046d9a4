"""The page of a service that wants a key."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from aladin_service.keys_file import add_key
from benchmarks.service.search_page import SearchPage
from tests.browser.conftest import PageOf

pytestmark = pytest.mark.browser

WORDS = "a plain square at sunset"


@pytest.fixture
def secret(tmp_path: Path) -> str:
    return add_key(tmp_path / "keys.json", "reader", ["read"])


@pytest.fixture
def locked(secret: str, tmp_path: Path, page_of: PageOf) -> Iterator[SearchPage]:
    """The page of a service that answers nobody without the key."""
    del secret  # it is in the file
    with page_of(keys_file=tmp_path / "keys.json") as page:
        page.complaints.expect("status of 401")
        yield page


def give(page: SearchPage, key: str) -> None:
    page.page.locator("#key").fill(key)
    page.page.locator("#key-form button").click()


def test_with_its_key_all_is_shown_and_the_key_goes_with_its_tab(
    locked: SearchPage, secret: str
) -> None:
    form, filters = locked.open().page.locator("#key-form"), locked.page.locator("#filter-toggle")
    expect(locked.page.locator("#key")).to_be_focused()
    expect(locked.error).to_be_hidden()  # that one is missing is no fault yet
    expect(filters).to_be_hidden()  # nothing can be chosen
    give(locked, "aladin_wrong")
    expect(locked.error).to_be_visible()
    expect(form).to_be_visible()
    give(locked, secret)
    expect(form).to_be_hidden()
    expect(locked.page.locator("#index-info")).not_to_be_empty()
    expect(filters).to_be_visible()
    locked.find(WORDS)
    locked.expect_photos()  # which no <img> can ask for
    locked.open_evidence(locked.hits.first)
    assert secret not in locked.page.url
    assert locked.page.context.cookies() == []
    assert secret not in locked.page.evaluate("JSON.stringify(localStorage)")


def test_a_shared_search_waits_for_the_key(locked: SearchPage, secret: str) -> None:
    locked.open("text=a+plain+square")
    expect(locked.page.locator("#key-form")).to_be_visible()
    with locked.answer_shown():
        give(locked, secret)
    expect(locked.hits).to_have_count(24)


def test_the_key_of_an_address_is_kept_for_all_tabs_and_leaves_the_address(
    locked: SearchPage, secret: str
) -> None:
    page, url = locked.page, locked.url
    page.goto(f"{url}/?token={secret}#text=a+plain+square")
    expect(locked.hits.first).to_be_visible()
    locked.expect_photos()
    assert page.url == f"{url}/#text=a+plain+square"
    tab = page.context.new_page()
    tab.goto(f"{url}/")
    expect(tab.locator("#library li.hit").first).to_be_visible()
    expect(tab.locator("#key-form")).to_be_hidden()
    assert page.context.cookies() == []  # which other services of the machine would get
    tab.goto(f"{url}/?token=aladin_wrong")
    expect(tab.locator("#key-form")).to_be_visible()
    tab.goto("about:blank")
