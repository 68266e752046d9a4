"""The page /docs: the OpenAPI document, read and tried without any other host."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Locator, expect

from aladin_service.keys_file import add_key
from benchmarks.service.search_page import SearchPage

pytestmark = pytest.mark.browser

OpenService = Callable[..., AbstractContextManager[str]]
OpenPage = Callable[..., SearchPage]

WORDS = "a small red star"


def try_form(page: SearchPage, operation: str) -> Locator:
    """The form of an operation that is unfolded."""
    page.open_api(operation)
    return page.page.locator(f"#{operation} form.try")


def send(form: Locator) -> Locator:
    """Send a form's request; what is shown of the answer's body."""
    form.get_by_role("button", name="Send").click()
    expect(form.locator(".answer strong")).to_be_visible()
    return form.locator(".answer pre")


def test_every_operation_and_schema_is_there(page: SearchPage, api: httpx.Client) -> None:
    described = api.get("/openapi.json").json()
    page.page.goto(f"{page.url}/docs")

    shown = page.page.locator("details.operation")
    operations = [one for methods in described["paths"].values() for one in methods.values()]
    expect(shown).to_have_count(len(operations))
    for one in operations:
        operation = page.page.locator(f"#{one['operationId']}")
        expect(operation.locator("summary")).to_contain_text(one["summary"])
    expect(page.page.locator("details.schema")).to_have_count(
        len(described["components"]["schemas"])
    )
    assert page.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_each_unfolds_into_what_it_takes_and_answers(page: SearchPage, api: httpx.Client) -> None:
    described = api.get("/openapi.json").json()
    page.page.goto(f"{page.url}/docs")
    for details in page.page.locator("details.operation, details.schema").all():
        details.locator("summary").click()
    for methods in described["paths"].values():
        for one in methods.values():
            operation = page.page.locator(f"#{one['operationId']}")
            answers = operation.get_by_role("table", name="Responses of")
            expect(answers.locator("tbody tr")).to_have_count(len(one["responses"]))
    fields = page.page.locator("#SearchBody tbody tr")
    expect(fields).to_have_count(
        len(described["components"]["schemas"]["SearchBody"]["properties"])
    )
    expect(fields.filter(has_text="Number of hits.")).to_contain_text("At least 1, at most 1000.")


def test_the_body_of_an_operation_leads_to_its_schema(page: SearchPage) -> None:
    page.open_api("search_images")

    page.page.locator("#search_images").get_by_role("link", name="SearchBody").click()

    expect(page.page.locator("#SearchBody")).to_have_attribute("open", "")


def test_a_search_is_tried(page: SearchPage, api: httpx.Client) -> None:
    form = try_form(page, "search_images")
    form.locator("textarea").fill(json.dumps({"text": WORDS, "k": 3}))
    expect(form.locator(".command")).to_contain_text(WORDS)

    shown = json.loads(send(form).text_content() or "")

    expected = api.post("/v1/search/images", json={"text": WORDS, "k": 3}).json()
    assert [hit["id"] for hit in shown["hits"]] == [hit["id"] for hit in expected["hits"]]


def test_an_item_and_its_photo_are_tried(page: SearchPage, api: httpx.Client) -> None:
    hit = api.post("/v1/search/images", json={"text": WORDS, "k": 1}).json()["hits"][0]
    form = try_form(page, "get_item")
    form.get_by_label("target").select_option("images")
    form.get_by_label("item_id").fill(hit["id"])
    assert json.loads(send(form).text_content() or "")["id"] == hit["id"]

    form = try_form(page, "get_photo")
    form.get_by_label("item_id").fill(hit["id"])
    form.get_by_label("size").fill("64")
    send(form)
    expect(form.get_by_role("img")).to_be_visible()
    assert form.get_by_role("img").evaluate("image => image.naturalWidth") == 64


def test_an_error_is_shown_as_it_came(page: SearchPage) -> None:
    form = try_form(page, "search_images")
    form.locator("textarea").fill('{"text": "a star", "k": 0}')

    expect(send(form)).to_contain_text('"invalid_field"')

    expect(form.locator(".answer strong")).to_contain_text("422")
    page.complaints.expect("status of 422")


def test_a_key_is_sent_with_what_is_tried(
    open_service: OpenService, open_page: OpenPage, tmp_path: Path
) -> None:
    keys_file = tmp_path / "keys.json"
    key = add_key(keys_file, "reader", ["read"])
    with open_service(keys_file=keys_file) as url:
        page = open_page(url)
        form = try_form(page, "get_index")
        expect(send(form)).to_contain_text('"unauthorized"')
        page.complaints.expect("status of 401")

        page.page.locator("#key").fill(key)
        page.page.get_by_role("button", name="Use").click()

        expect(page.page.locator("#key-note")).to_contain_text("Sent with each request")
        expect(send(form)).to_contain_text('"default_candidates"')
        page.page.goto("about:blank")
