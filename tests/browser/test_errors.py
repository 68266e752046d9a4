"""What the page says when it does not get what was asked for, and how it goes on."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from playwright.sync_api import Route, expect

from benchmarks.service.page_answers import refuse
from benchmarks.service.search_page import SearchPage
from tests.browser.conftest import OpenPage, OpenService, PageOf, ids_of

pytestmark = pytest.mark.browser

WORDS = "a striped star in the snow"


def said_of(answer: httpx.Response) -> str:
    """The message of an error, as a sentence of the page."""
    message = str(answer.json()["error"]["message"]).removeprefix("image: ")
    return message[0].upper() + message[1:]


@pytest.mark.parametrize("what", ["a file that is no photo", "a filter that is none"])
def test_what_the_service_refuses_is_said_in_its_words(
    page: SearchPage, api: httpx.Client, no_photo: Path, what: str
) -> None:
    page.open().find(WORDS)
    if what == "a filter that is none":
        wanted = {"number": {"near": 3}}
        refused = api.post("/v1/search/images", json={"text": WORDS, "filter": wanted})
        page.filter_by(wanted)
    else:
        refused = api.post("/v1/search/images", files={"image": no_photo.read_bytes()})
        page.page.locator("#photo").set_input_files(no_photo)
    assert refused.status_code in (415, 422)
    expect(page.error).to_contain_text(said_of(refused))
    expect(page.hits).to_have_count(0)
    page.complaints.expect(f"status of {refused.status_code}")


def test_a_photo_that_is_too_large_is_not_even_sent(page_of: PageOf, photo: Path) -> None:
    with page_of(max_image_bytes=100) as page:
        expect(page.open().page.locator("#index-info")).not_to_be_empty()
        page.page.locator("#photo").set_input_files(photo)
        expect(page.error).to_contain_text("This photo cannot be used")


def test_a_filter_that_is_no_json_is_not_sent(page: SearchPage) -> None:
    hits = ids_of(page.open().find(WORDS))
    page.page.locator("#filter-toggle").click()
    form = page.page.locator("#filter-form")
    page.unfold_json().fill('{"number": ')
    form.locator("button[type=submit]").click()
    expect(form.locator("#filter-wrong")).to_contain_text("Invalid JSON")
    expect(form.locator("#filter-json")).to_have_value('{"number": ')
    page.expect_hits(hits)


def bad_gateway(route: Route) -> None:
    route.fulfill(status=502, body="<h1>Bad gateway</h1>")


@pytest.mark.parametrize(
    ("status", "answer", "says"),
    [
        (429, refuse(429, "overloaded", {"Retry-After": "1"}), "This is how it is refused"),
        (503, refuse(503, "index_not_ready", {"Retry-After": "1"}), "This is how it is refused"),
        (502, bad_gateway, "502"),
    ],
)
def test_a_service_that_cannot_answer_now_is_asked_again(
    page: SearchPage, status: int, answer: Callable[[Route], None], says: str
) -> None:
    page.open().page.route("**/v1/search/**", answer, times=1)
    page.ask(WORDS)
    expect(page.error).to_contain_text(says)
    page.complaints.expect(f"status of {status}")
    if status == 502:  # something else has answered
        return
    again = page.error.get_by_role("button")
    expect(again).to_be_disabled()  # for as long as the service asks for
    expect(again).to_be_enabled()
    with page.answer_shown():
        again.click()
    expect(page.error).to_be_hidden()


def test_a_service_that_goes_and_comes_back(open_service: OpenService, open_page: OpenPage) -> None:
    with ExitStack() as running:
        url = running.enter_context(open_service())
        page = open_page(url).open()
        first = page.find(WORDS)
        running.close()
        page.complaints.expect("net::ERR_CONNECTION")
        offline = page.page.locator("#offline")
        expect(offline).to_contain_text("The service does not respond.")  # unasked
        page.ask("a blue circle")
        running.enter_context(open_service(port=urlsplit(url).port))
        expect(offline).to_be_hidden()
        expect(page.hits).to_have_count(24)
        assert page.ids() != ids_of(first)


def test_no_network_is_said_at_once(page: SearchPage) -> None:
    page.open().choose_target("texts")
    page.find(WORDS)
    page.page.wait_for_load_state("networkidle")  # photos of the library may be on their way
    page.page.context.set_offline(True)
    expect(page.page.locator("#offline")).to_contain_text("offline")
    page.page.context.set_offline(False)
    expect(page.page.locator("#offline")).to_be_hidden()
    page.find("a red circle")
