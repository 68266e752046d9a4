"""Photos that are added while the page is open: counts, the list, and what is offered."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Locator, expect

from aladin_index.building.builder import build_index
from aladin_service.item_sources import image_items
from benchmarks.service.search_page import SearchPage, data_of
from tests.browser.conftest import OpenPage, OpenService, is_too_wide

pytestmark = pytest.mark.browser

_BUILT = 12
_LARGE = {"width": 1280, "height": 900}
LOOKS: dict[str, dict[str, Any]] = {
    "light": {"viewport": _LARGE},
    "dark": {"viewport": _LARGE, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 390, "height": 844}},
}


@pytest.fixture
def growing_url(
    index_folder: Path, data_file: Path, tmp_path: Path, open_service: OpenService
) -> Iterator[str]:
    """Of an index of a few photos, to which others can be added."""
    lines = data_file.read_text(encoding="utf-8").splitlines()[:_BUILT]
    file = data_file.parent / f"{tmp_path.name}.jsonl"
    file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    build_index(index_folder / "model", tmp_path / "index", image_items(file, None), None)
    with open_service(index=tmp_path / "index") as url:
        yield url


@pytest.fixture
def growing(growing_url: str, open_page: OpenPage) -> Iterator[SearchPage]:
    """The page of that index; its timers run only as far as a test lets them."""
    page = open_page(growing_url)
    page.page.clock.install()
    page.open()
    expect(page.listed).to_have_count(_BUILT)
    yield page
    page.page.goto("about:blank")  # it asks for nothing more when the service ends


def add(page: SearchPage, data_file: Path, first: int, number: int) -> list[str]:
    """Add photos of the data file, and return their ids."""
    lines = data_file.read_text(encoding="utf-8").splitlines()
    ids: list[str] = []
    for line in lines[first : first + number]:
        ids.append(f"new-{len(ids)}-{first}")
        photo = (data_file.parent / json.loads(line)["image"]).read_bytes()
        address = f"{page.url}/v1/items/images"
        answer = httpx.post(address, files={"image": photo}, data={"id": ids[-1]}, timeout=30)
        assert answer.is_success, answer.text
    return ids


def offered(page: SearchPage) -> Locator:
    return page.page.locator("#arrived").get_by_role("button")


def look(page: SearchPage, seconds: float = 2.5) -> None:
    """Let the time pass after which the page looks at the index."""
    with page.page.expect_response("**/v1/index"):
        page.page.clock.run_for(round(1000 * seconds))


def looks(page: SearchPage) -> list[str]:
    """Collect the page's looks at the index from now on."""
    seen: list[str] = []
    page.page.on(
        "request", lambda each: seen.append(each.url) if each.url.endswith("/v1/index") else None
    )
    return seen


def test_new_photos_appear_at_the_top_of_the_list(growing: SearchPage, data_file: Path) -> None:
    info = growing.page.locator("#index-info")
    kept = growing.listed.first.element_handle()
    ids = add(growing, data_file, 20, 2)
    look(growing)
    expect(growing.listed).to_have_count(_BUILT + 2)
    assert data_of(growing.listed, "id")[:2] == ids[::-1]
    expect(info).to_have_text("14 photos · more are being added")
    expect(growing.status).to_have_text("14 photos.")
    assert kept.evaluate("each => each.isConnected"), "photos that stay keep their elements"
    expect(offered(growing)).to_have_count(0)
    look(growing)
    expect(info).to_have_text("14 photos")
    growing.listed.nth(2).get_by_role("button").first.click()
    expect(growing.viewer.locator("#viewer-place")).to_have_text("3 of 14")
    growing.viewer.get_by_role("button", name="Previous").click()
    expect(growing.viewer.locator("#viewer-place")).to_have_text("2 of 14")


def test_a_list_that_could_not_be_read_is_read_again(growing: SearchPage, data_file: Path) -> None:
    look(growing)
    add(growing, data_file, 20, 1)
    growing.complaints.expect("503")
    growing.page.route("**/v1/items/images?*", lambda route: route.fulfill(status=503), times=1)
    with growing.page.expect_response("**/v1/items/images?*"):
        look(growing)
    growing.page.evaluate("fetch('healthz').then(() => null)")  # the answer was dealt with
    expect(growing.listed).to_have_count(_BUILT)
    look(growing, 31)
    expect(growing.listed).to_have_count(_BUILT + 1)


def test_further_down_they_are_offered_and_nothing_moves(
    growing: SearchPage, data_file: Path
) -> None:
    growing.page.set_viewport_size({"width": 500, "height": 400})
    growing.page.evaluate("scrollTo(0, 300)")
    before = growing.listed.nth(4).bounding_box()
    ids: list[str] = []
    for first, says in ((20, "1 new photo"), (30, "2 new photos")):
        ids += add(growing, data_file, first, 1)
        look(growing)
        expect(offered(growing)).to_have_text(says)
    assert growing.listed.nth(4).bounding_box() == before
    expect(growing.listed).to_have_count(_BUILT)
    offered(growing).click()
    expect(growing.listed).to_have_count(_BUILT + 2)
    assert set(data_of(growing.listed, "id")[:2]) == set(ids)
    assert growing.page.evaluate("scrollY") == 0
    expect(offered(growing)).to_have_count(0)


def test_a_search_stays_and_can_be_repeated(growing: SearchPage, data_file: Path) -> None:
    growing.find("a red star")
    look(growing)  # what the search has found is known
    shown = growing.ids()
    add(growing, data_file, 20, 2)
    look(growing, 10)
    expect(offered(growing)).to_have_text("New photos since this search: search again")
    assert growing.ids() == shown
    with growing.answer_shown() as answer:
        offered(growing).click()
    assert len(answer["hits"]) == _BUILT + 2
    expect(offered(growing)).to_have_count(0)


def test_an_unchanged_index_is_looked_at_less_and_less(growing: SearchPage) -> None:
    seen = looks(growing)
    for _ in range(120):  # the answers come in real time
        growing.page.clock.run_for(1000)
        growing.page.evaluate("fetch('healthz').then(() => null)")
    assert 5 <= len(seen) <= 9  # after 2, 3, 4.5, 6.8, 10, 15, 23 and 30 s


def test_a_hidden_page_asks_for_nothing(growing: SearchPage, data_file: Path) -> None:
    hide = """hidden => {
      Object.defineProperty(document, 'hidden', {value: hidden, configurable: true});
      document.dispatchEvent(new Event('visibilitychange'));
    }"""
    growing.page.evaluate(hide, True)
    seen = looks(growing)
    add(growing, data_file, 20, 1)
    growing.page.clock.run_for(60_000)
    assert seen == []
    growing.page.evaluate(hide, False)
    expect(growing.listed).to_have_count(_BUILT + 1)


@pytest.mark.parametrize("look", LOOKS)
def test_what_is_offered_is_accessible(
    growing_url: str, open_page: OpenPage, data_file: Path, look: str
) -> None:
    # What the page's policy forbids of axe is no fault of the page.
    page = open_page(growing_url, bypass_csp=True, **LOOKS[look])
    page.open().find("a red star")
    page.page.wait_for_timeout(2500)
    add(page, data_file, 20, 2)
    expect(page.page.locator("#arrived")).to_have_attribute("role", "status")
    expect(offered(page)).to_be_in_viewport()
    report = Axe().run(page.page)
    assert report.violations_count == 0, report.generate_report()
    assert not is_too_wide(page)
    page.page.goto("about:blank")
