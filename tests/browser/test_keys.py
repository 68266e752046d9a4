"""The page of a service that wants a key."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from playwright.sync_api import expect

from aladin_service.keys_file import add_key
from benchmarks.service.search_page import SearchPage

pytestmark = pytest.mark.browser

OpenPage = Callable[..., SearchPage]
OpenService = Callable[..., AbstractContextManager[str]]

WORDS = "a plain square at sunset"


@pytest.fixture
def keys_file(tmp_path: Path) -> Path:
    return tmp_path / "keys.json"


@pytest.fixture
def secret(keys_file: Path) -> str:
    return add_key(keys_file, "reader", ["read"])


@pytest.fixture
def locked(
    secret: str, keys_file: Path, open_service: OpenService, open_page: OpenPage
) -> Iterator[SearchPage]:
    """The page of a service that answers nobody without the key."""
    del secret  # it is in the file
    with open_service(keys_file=keys_file) as url:
        page = open_page(url)
        page.complaints.expect("status of 401")
        yield page.open()
        page.page.goto("about:blank")  # it asks for nothing more when the service ends


def give(page: SearchPage, key: str) -> None:
    page.page.locator("#key").fill(key)
    page.page.locator("#key-form button").click()


def test_with_its_key_all_is_shown(locked: SearchPage, secret: str) -> None:
    expect(locked.page.locator("#key")).to_be_focused()
    expect(locked.error).to_be_hidden()  # that one is missing is no fault yet
    expect(locked.page.locator("#filter-toggle")).to_be_hidden()  # nothing can be chosen

    give(locked, secret)
    expect(locked.page.locator("#key-form")).to_be_hidden()
    expect(locked.page.locator("#index-info")).not_to_be_empty()
    expect(locked.page.locator("#filter-toggle")).to_be_visible()

    locked.find(WORDS)
    locked.expect_photos()  # which no <img> can ask for
    locked.open_evidence(locked.hits.first)


def test_a_wrong_key_is_said_to_be_wrong(locked: SearchPage, secret: str) -> None:
    expect(locked.page.locator("#key-form")).to_be_visible()

    give(locked, "aladin_wrong")

    expect(locked.error).to_be_visible()
    expect(locked.page.locator("#key-form")).to_be_visible()
    give(locked, secret)
    expect(locked.page.locator("#index-info")).not_to_be_empty()
    locked.find(WORDS)


def test_a_shared_search_waits_for_the_key(locked: SearchPage, secret: str) -> None:
    locked.page.goto("about:blank")
    locked.open("text=a+plain+square")
    expect(locked.page.locator("#key-form")).to_be_visible()

    with locked.answer_shown():
        give(locked, secret)

    expect(locked.hits).to_have_count(24)


def test_the_key_goes_with_its_tab_and_into_no_address(locked: SearchPage, secret: str) -> None:
    give(locked, secret)
    locked.find(WORDS)

    assert secret not in locked.page.url
    assert locked.page.context.cookies() == []
    assert secret not in locked.page.evaluate("JSON.stringify(localStorage)")


def test_the_key_of_an_address_is_kept_for_all_tabs_and_leaves_the_address(
    secret: str, keys_file: Path, open_service: OpenService, open_page: OpenPage
) -> None:
    with open_service(keys_file=keys_file) as url:
        page = open_page(url)
        page.page.goto(f"{url}/?token={secret}#text=a+plain+square")
        expect(page.hits.first).to_be_visible()
        page.expect_photos()
        assert page.page.url == f"{url}/#text=a+plain+square"

        tab = page.page.context.new_page()
        tab.goto(f"{url}/")
        expect(tab.locator("#library li.hit").first).to_be_visible()
        expect(tab.locator("#key-form")).to_be_hidden()
        assert page.page.context.cookies() == []  # which other services of the machine would get

        page.complaints.expect("status of 401")
        tab.goto(f"{url}/?token=aladin_wrong")
        expect(tab.locator("#key-form")).to_be_visible()
        for each in (tab, page.page):
            each.goto("about:blank")
