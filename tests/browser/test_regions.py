"""An index of photos that are known by their regions: boxes of the regions' own on the page."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Browser, expect

from aladin_network.model import AladinModel
from benchmarks.service.search_page import SearchPage
from tests.service.region_world import World, build_world, region_model, save_detector

pytestmark = pytest.mark.browser

OpenPage = Callable[..., SearchPage]
OpenService = Callable[..., AbstractContextManager[str]]

WORDS = "two dogs run on the green grass"
_CAPTIONS = [
    ("a red dog runs", "the small dog is red"),
    ("two men ride a motorcycle", "a motorcycle in the street"),
    ("green grass and a yellow star", "a star on the grass"),
    ("a white triangle left of a star", "the triangle is white"),
]
_GONE = "photo-3"  # its file is missing
# Boxes are kept in 16 bits, and drawn in pixels with a border.
_CLOSE = 0.01
# Below the folder that the tests are started in; people look at what is there.
_SCREENSHOTS = Path("runs/screenshots")


def gradient(width: int, height: int) -> Image.Image:
    """Draw a photo on which places can be told apart."""
    across, down = np.linspace(0, 255, width), np.linspace(0, 255, height)
    red, green = np.meshgrid(across, down)
    pixels = np.stack([red, green, np.full_like(red, 128)], axis=-1)
    return Image.fromarray(pixels.astype(np.uint8))


@pytest.fixture(scope="module")
def world(
    build_tiny: Callable[..., AladinModel], tmp_path_factory: pytest.TempPathFactory
) -> World:
    """An index of tables of regions; the photos are there, but for one."""
    folder = tmp_path_factory.mktemp("world")
    for number in range(len(_CAPTIONS)):
        if f"photo-{number}" != _GONE:
            gradient(320, 240).save(folder / f"photo-{number}.jpg")
    return build_world(folder, region_model(build_tiny), _CAPTIONS)


@pytest.fixture(scope="module")
def own_photo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A photo of the user's."""
    file = tmp_path_factory.mktemp("own") / "own.png"
    gradient(300, 200).save(file)
    return file


@pytest.fixture(scope="module")
def plain_url(browser: Browser, open_service: OpenService, world: World) -> Iterator[str]:
    """Of a service of the index that has no detector."""
    del browser
    with open_service(index=world.index) as address:
        yield address


def check_boxes(page: SearchPage, evidence: list[dict[str, Any]]) -> None:
    """Compare what is drawn with the boxes of an answer."""
    frame = page.viewer.locator(".regions").bounding_box()
    assert frame is not None
    assert frame["width"] > 100
    assert frame["height"] > 100
    for entry in evidence:
        box = page.viewer.locator(f".region[data-region='{entry['region']}']").bounding_box()
        assert box is not None
        left = (box["x"] - frame["x"]) / frame["width"]
        top = (box["y"] - frame["y"]) / frame["height"]
        right, bottom = left + box["width"] / frame["width"], top + box["height"] / frame["height"]
        assert [left, top, right, bottom] == pytest.approx(entry["box"], abs=_CLOSE)


def evidence_of(answer: httpx.Response, item_id: str) -> list[dict[str, Any]]:
    """Return a hit's evidence."""
    hits = answer.raise_for_status().json()["hits"]
    return next(hit["evidence"] for hit in hits if hit["id"] == item_id)


@pytest.mark.parametrize("item_id", ["photo-2", _GONE])
def test_words_find_the_regions_own_boxes(
    open_page: OpenPage, plain_url: str, world: World, item_id: str
) -> None:
    page = open_page(plain_url)
    page.complaints.expect("status of 404")  # of the photo that is missing
    page.open().find(WORDS)

    page.open_evidence(page.page.locator(f"#hits > li[data-id='{item_id}']"))

    body = {"text": WORDS, "explain": True}
    evidence = evidence_of(httpx.post(f"{plain_url}/v1/search/images", json=body), item_id)
    boxes = world.photos[item_id].boxes
    assert boxes is not None
    for entry in evidence:
        assert entry["box"] == pytest.approx(boxes[entry["region"]].tolist(), abs=_CLOSE)
    photo = page.viewer.locator(".frame img")
    if item_id == _GONE:
        expect(photo).to_have_css("visibility", "hidden")  # no picture of a broken one
    else:
        expect(photo).to_be_visible()
        expect(photo).to_have_js_property("naturalWidth", 320)
    check_boxes(page, evidence)
    page.point_at_strongest_word()
    expect(page.viewer.locator(".region.lit")).to_be_visible()
    page.page.screenshot(path=_SCREENSHOTS / f"regions-{item_id}.png")


def test_a_detector_finds_the_regions_of_a_photo(
    open_page: OpenPage, open_service: OpenService, world: World, own_photo: Path, tmp_path: Path
) -> None:
    save_detector(tmp_path)
    named = f"objects={tmp_path},min_regions=4,max_regions=4"
    with open_service(index=world.index, detector=named) as url:
        page = open_page(url).open()
        page.complaints.expect("status of 404")  # of the photo that is missing
        page.choose_target("texts")
        item_id = page.find_photo(own_photo)["hits"][0]["id"]

        page.open_evidence(page.hits.first)

        files = {"image": own_photo.read_bytes()}
        answer = httpx.post(f"{url}/v1/search/texts", files=files, data={"explain": "true"})
        photo = page.viewer.locator(".frame img")
        expect(photo).to_be_visible()
        expect(photo).to_have_js_property("naturalWidth", 300)
        check_boxes(page, evidence_of(answer, item_id))
        page.page.screenshot(path=_SCREENSHOTS / "regions-own-photo.png")


def test_without_a_detector_the_page_says_what_is_needed(
    open_page: OpenPage, plain_url: str, own_photo: Path
) -> None:
    page = open_page(plain_url).open()
    page.complaints.expect("status of 404")  # of the photo that is missing
    page.choose_target("texts")

    page.page.locator("#photo").set_input_files(own_photo)

    expect(page.error).to_contain_text("no detector is set up here; send the regions of the photo")
    expect(page.hits).to_have_count(0)
    page.complaints.expect("status of 422")
