"""What the page says when it does not get what was asked for, and how it goes on."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from playwright.sync_api import expect

from benchmarks.service.page_answers import refuse
from benchmarks.service.search_page import SearchPage

pytestmark = pytest.mark.browser

OpenPage = Callable[..., SearchPage]
OpenService = Callable[..., AbstractContextManager[str]]

WORDS = "a striped star in the snow"
_SEARCHES = "**/v1/search/**"


def said_of(answer: httpx.Response) -> str:
    """The message of an error, as a sentence of the page."""
    message = str(answer.json()["error"]["message"]).removeprefix("image: ")
    return message[0].upper() + message[1:]


def test_a_file_that_is_no_photo(page: SearchPage, api: httpx.Client, no_photo: Path) -> None:
    refused = api.post("/v1/search/images", files={"image": no_photo.read_bytes()})
    assert refused.status_code == 415
    page.open().find(WORDS)

    page.page.locator("#photo").set_input_files(no_photo)

    expect(page.error).to_contain_text(said_of(refused))
    expect(page.hits).to_have_count(0)
    page.complaints.expect("status of 415")


def test_a_photo_that_is_too_large_is_not_even_sent(
    open_service: OpenService, open_page: OpenPage, photo: Path
) -> None:
    with open_service(max_image_bytes=100) as url:
        page = open_page(url).open()
        expect(page.page.locator("#index-info")).not_to_be_empty()
        page.page.locator("#photo").set_input_files(photo)
        expect(page.error).to_contain_text("This photo cannot be used")
        page.page.goto("about:blank")  # it asks for nothing more when the service ends


def test_a_filter_that_is_none(page: SearchPage, api: httpx.Client) -> None:
    wanted = {"number": {"near": 3}}
    refused = api.post("/v1/search/images", json={"text": WORDS, "filter": wanted})
    assert refused.status_code == 422
    page.open().find(WORDS)

    page.filter_by(wanted)

    expect(page.error).to_contain_text(said_of(refused))
    page.complaints.expect("status of 422")


def test_a_filter_that_is_no_json_is_not_sent(page: SearchPage) -> None:
    hits = page.open().find(WORDS)["hits"]
    page.page.locator("#filter-toggle").click()
    form = page.page.locator("#filter-form")
    page.unfold_json().fill('{"number": ')
    form.locator("button[type=submit]").click()

    expect(form.locator("#filter-wrong")).to_contain_text("Invalid JSON")
    expect(form.locator("#filter-json")).to_have_value('{"number": ')
    page.expect_hits([hit["id"] for hit in hits])


@pytest.mark.parametrize(("status", "code"), [(429, "overloaded"), (503, "index_not_ready")])
def test_a_service_that_cannot_answer_now(page: SearchPage, status: int, code: str) -> None:
    page.open()
    page.page.route(_SEARCHES, refuse(status, code, {"Retry-After": "1"}), times=1)

    page.ask(WORDS)

    expect(page.error).to_contain_text("This is how it is refused")
    again = page.error.get_by_role("button")
    expect(again).to_be_disabled()  # for as long as the service asks for
    expect(again).to_be_enabled()
    with page.answer_shown():
        again.click()
    expect(page.error).to_be_hidden()
    page.complaints.expect(f"status of {status}")


def test_something_else_answers(page: SearchPage) -> None:
    page.open()
    page.page.route(_SEARCHES, lambda route: route.fulfill(status=502, body="<h1>Bad gateway</h1>"))

    page.ask(WORDS)

    expect(page.error).to_contain_text("502")
    page.complaints.expect("status of 502")


def test_a_service_that_goes_and_comes_back(open_service: OpenService, open_page: OpenPage) -> None:
    offline = "#offline"
    with ExitStack() as running:
        url = running.enter_context(open_service())
        page = open_page(url).open()
        first = page.find(WORDS)
        running.close()

        page.ask("a blue circle")
        expect(page.page.locator(offline)).to_be_visible()

        running.enter_context(open_service(port=urlsplit(url).port))
        expect(page.page.locator(offline)).to_be_hidden()
        expect(page.hits).to_have_count(24)
        assert page.ids() != [hit["id"] for hit in first["hits"]]
    page.complaints.expect("net::ERR_CONNECTION")


def test_no_network_is_said_at_once(page: SearchPage) -> None:
    page.open().choose_target("texts")
    page.find(WORDS)
    notice = page.page.locator("#offline")

    page.page.wait_for_load_state("networkidle")  # photos of the library may be on their way
    page.page.context.set_offline(True)
    expect(notice).to_contain_text("offline")
    page.page.context.set_offline(False)
    expect(notice).to_be_hidden()
    page.find("a red circle")
