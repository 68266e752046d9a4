"""The page of an index of photos alone: it offers nothing that asks for texts."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from playwright.sync_api import expect

from aladin_index.building.builder import build_index
from aladin_service.item_sources import image_items
from benchmarks.service.search_page import SearchPage

pytestmark = pytest.mark.browser

OpenService = Callable[..., AbstractContextManager[str]]
OpenPage = Callable[..., SearchPage]

WORDS = "a small red star above a blue square"


@pytest.fixture(scope="module")
def photos_alone(
    index_folder: Path, data_file: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """An index without texts."""
    folder = tmp_path_factory.mktemp("photos")
    shutil.copytree(index_folder / "model", folder / "model")
    build_index(folder / "model", folder / "index", image_items(data_file, None), None)
    return folder / "index"


@pytest.fixture
def page(
    photos_alone: Path, open_service: OpenService, open_page: OpenPage
) -> Iterator[SearchPage]:
    with open_service(index=photos_alone) as url:
        page = open_page(url)
        yield page
        page.page.goto("about:blank")  # it asks for nothing more when the service ends


def test_there_is_no_choice_of_what_to_find(page: SearchPage) -> None:
    page.open()

    expect(page.page.locator("#index-info")).to_have_text("64 photos")
    expect(page.page.get_by_role("group", name="What to find")).to_be_hidden()


def test_a_photo_offers_others_like_it_and_no_texts(page: SearchPage) -> None:
    found = page.open().find(WORDS)["hits"][0]["id"]
    page.open_evidence(page.hits.first)
    expect(page.page.locator("#index-info")).to_have_text("64 photos")
    actions = page.viewer.locator("#viewer-actions")
    expect(actions.get_by_role("button", name="Texts for this photo")).to_be_hidden()

    with page.answer_shown():
        actions.get_by_role("button", name="More like this").click()

    expect(page.hits).to_have_count(24)
    assert found not in page.ids()
