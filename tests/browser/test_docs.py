"""The page /docs: the OpenAPI document, read and tried without any other host."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Locator, expect

from aladin_service.keys_file import add_key
from benchmarks.service.search_page import SearchPage
from tests.browser.conftest import PageOf, asked, ids_of, is_too_wide

pytestmark = pytest.mark.browser

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


def sent(form: Locator) -> Any:
    return json.loads(send(form).text_content() or "")


def test_every_operation_and_schema_unfolds_into_what_it_takes_and_answers(
    page: SearchPage, api: httpx.Client
) -> None:
    described = api.get("/openapi.json").json()
    schemas = described["components"]["schemas"]
    page.page.goto(f"{page.url}/docs")
    operations = [one for methods in described["paths"].values() for one in methods.values()]
    expect(page.page.locator("details.operation")).to_have_count(len(operations))
    expect(page.page.locator("details.schema")).to_have_count(len(schemas))
    assert not is_too_wide(page)
    for details in page.page.locator("details.operation, details.schema").all():
        details.locator("summary").click()
    for one in operations:
        operation = page.page.locator(f"#{one['operationId']}")
        expect(operation.locator("summary")).to_contain_text(one["summary"])
        answers = operation.get_by_role("table", name="Responses of")
        expect(answers.locator("tbody tr")).to_have_count(len(one["responses"]))
    fields = page.page.locator("#SearchBody tbody tr")
    expect(fields).to_have_count(len(schemas["SearchBody"]["properties"]))
    expect(fields.filter(has_text="Number of hits.")).to_contain_text("At least 1, at most 1000.")


def test_a_search_and_its_errors_are_tried(page: SearchPage, api: httpx.Client) -> None:
    form = try_form(page, "search_images")
    form.locator("textarea").fill(json.dumps({"text": WORDS, "k": 3}))
    expect(form.locator(".command")).to_contain_text(WORDS)
    assert ids_of(sent(form)) == ids_of(asked(api, text=WORDS, k=3))
    form.locator("textarea").fill('{"text": "a star", "k": 0}')
    form.get_by_role("button", name="Send").click()
    expect(form.locator(".answer pre")).to_contain_text('"invalid_field"')
    expect(form.locator(".answer strong")).to_contain_text("422")
    page.complaints.expect("status of 422")
    page.page.locator("#search_images").get_by_role("link", name="SearchBody").click()
    expect(page.page.locator("#SearchBody")).to_have_attribute("open", "")


def test_an_item_and_its_photo_are_tried(page: SearchPage, api: httpx.Client) -> None:
    item_id = asked(api, text=WORDS)["hits"][0]["id"]
    form = try_form(page, "get_item")
    form.get_by_label("target").select_option("images")
    form.get_by_label("item_id").fill(item_id)
    assert sent(form)["id"] == item_id
    form = try_form(page, "get_photo")
    form.get_by_label("item_id").fill(item_id)
    form.get_by_label("size").fill("64")
    send(form)
    expect(form.get_by_role("img")).to_be_visible()
    assert form.get_by_role("img").evaluate("image => image.naturalWidth") == 64


def test_a_key_is_sent_with_what_is_tried(page_of: PageOf, tmp_path: Path) -> None:
    key = add_key(tmp_path / "keys.json", "reader", ["read"])
    with page_of(keys_file=tmp_path / "keys.json") as page:
        form = try_form(page, "get_index")
        expect(send(form)).to_contain_text('"unauthorized"')
        page.complaints.expect("status of 401")
        page.page.locator("#key").fill(key)
        page.page.get_by_role("button", name="Use").click()
        expect(page.page.locator("#key-note")).to_contain_text("Sent with each request")
        expect(send(form)).to_contain_text('"default_candidates"')
