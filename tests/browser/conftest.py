"""Chromium, and a service of a small index; a test fails on all that its pages complain of."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from playwright.sync_api import Browser, FloatRect, Locator, expect

from aladin_index.building.builder import build_index
from aladin_network.calibration.calibration import (
    Calibration,
    DirectionCalibration,
    write_calibration,
)
from aladin_network.calibration.judging import LogisticModel
from aladin_network.checkpoint_files import read_model_id
from aladin_network.types import Target
from aladin_service.http.app import create_app
from aladin_service.item_sources import image_items, text_items
from aladin_service.observe.metrics import Metrics
from aladin_service.settings import ServiceSettings
from aladin_service.work.worker import WorkerPlan
from aladin_service.work.workers import ThreadWorkers
from aladin_training.demo.scenes import draw_data_set
from benchmarks.service.chromium import NO_CHROMIUM, open_browser
from benchmarks.service.search_page import Answer, SearchPage

# Three pages of photos, and many of captions.
_PHOTOS, _PHOTO_PX = 64, 160
# Not what is expected: only on a busy machine anything takes so long.
_PATIENCE_MS = 15_000

OpenService = Callable[..., AbstractContextManager[str]]
OpenPage = Callable[..., SearchPage]
PageOf = Callable[..., AbstractContextManager[SearchPage]]
Shared = Callable[[SearchPage], SearchPage]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Chromium, for as long as these tests run: its driver has the event loop of this thread."""
    with open_browser() as chromium:
        if chromium is None:
            pytest.skip(NO_CHROMIUM)
        expect.set_options(timeout=_PATIENCE_MS)
        yield chromium


@pytest.fixture(scope="session")
def data_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Drawn scenes with captions and a metadata field ``number``; some captions are too long."""
    folder = tmp_path_factory.mktemp("data")
    file = draw_data_set(folder, scenes=_PHOTOS, val_scenes=1, test_scenes=1, size_px=_PHOTO_PX)
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    for number, line in enumerate(lines):
        line["metadata"] = {"number": number}
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return file


@pytest.fixture(scope="session")
def photo(data_file: Path) -> Path:
    """A photo to search with."""
    return sorted((data_file.parent / "images").iterdir())[7]


@pytest.fixture(scope="session")
def no_photo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file that is none."""
    file = tmp_path_factory.mktemp("other") / "notes.txt"
    file.write_text("This is no photo.\n", encoding="utf-8")
    return file


@pytest.fixture(scope="session")
def index_folder(
    tiny_checkpoint: Path,
    make_calibration: Callable[[str], Calibration],
    data_file: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """A calibrated index of all scenes and captions, for which one word alone matches nothing."""
    folder = tmp_path_factory.mktemp("index")
    checkpoint, out = folder / "checkpoint", folder / "index"
    shutil.copytree(tiny_checkpoint, checkpoint)
    calibration = make_calibration(read_model_id(checkpoint))
    told_by_length = _told_by_length(calibration.text_to_image)
    write_calibration(checkpoint, replace(calibration, text_to_image=told_by_length))
    build_index(checkpoint, out, image_items(data_file, None), text_items(data_file, None))
    return out


def _told_by_length(direction: DirectionCalibration) -> DirectionCalibration:
    """Have the number of words alone tell whether there is a match: none for a single one."""
    words = LogisticModel(intercept=-1.0, weights=[0.0, 0.0, 0.0, 0.0, 2.5, 0.0])
    return replace(direction, match=words, no_match_below=0.0)


@pytest.fixture(scope="session")
def open_service(
    index_folder: Path, serve_in_thread: Callable[..., AbstractContextManager[str]]
) -> OpenService:
    """Opens services of an index: ``with open_service(keys_file=FILE) as url``."""

    @contextmanager
    def run(port: int = 0, index: Path = index_folder, **changes: object) -> Generator[str]:
        # In float32, wherever the tests run: values are compared.
        settings = ServiceSettings(query_precision="float32", **changes)  # type: ignore[arg-type]
        metrics = Metrics()
        worker = WorkerPlan(index=index, settings=settings).make()
        app = create_app(ThreadWorkers(worker, settings, metrics), settings, metrics)
        with serve_in_thread(app, port) as url:
            yield url

    return run


@pytest.fixture(scope="session")
def url(browser: Browser, open_service: OpenService) -> Iterator[str]:
    """Of the service that most tests look at; made only where there is a browser."""
    del browser
    with open_service() as address:
        yield address


@pytest.fixture(scope="session")
def api(url: str) -> Iterator[httpx.Client]:
    """Asks the same service what the page has to show."""
    with httpx.Client(base_url=url, timeout=30) as client:
        yield client


@pytest.fixture
def open_page(browser: Browser) -> Iterator[OpenPage]:
    """Opens pages in contexts that know nothing: ``open_page(url, color_scheme="dark")``.

    After the test, all that they complained of must have been expected, all that was expected
    have come, and nobody but their services have been asked.
    """
    pages: list[SearchPage] = []

    def open_one(url: str, **options: object) -> SearchPage:
        context = browser.new_context(**options)  # type: ignore[arg-type]
        context.set_default_timeout(_PATIENCE_MS)
        pages.append(SearchPage(context, url))
        return pages[-1]

    yield open_one
    try:
        for page in pages:
            page.page.evaluate("null")  # what was said before this has come by then
            assert page.complaints.unexpected() == []
            for _ in range(_PATIENCE_MS // 100):  # answers to the page's last requests
                if not page.complaints.missing():
                    break
                page.page.wait_for_timeout(100)
            assert page.complaints.missing() == []
            assert page.complaints.hosts <= {urlsplit(page.url).netloc}
    finally:
        for page in pages:
            page.page.context.close()


@pytest.fixture
def page(open_page: OpenPage, url: str) -> SearchPage:
    """The page, not opened yet."""
    return open_page(url)


@pytest.fixture
def shared(open_page: OpenPage) -> Shared:
    """Opens the address of a page as somebody else who gets it."""

    def share(page: SearchPage) -> SearchPage:
        other = open_page(page.url)
        other.page.goto(page.page.url)
        return other

    return share


@pytest.fixture
def page_of(open_service: OpenService, open_page: OpenPage) -> PageOf:
    """The page of a service of its own, not opened yet: ``with page_of(index=FOLDER) as page``."""

    @contextmanager
    def run(**settings: Any) -> Generator[SearchPage]:
        with open_service(**settings) as url:
            page = open_page(url)
            yield page
            page.page.goto("about:blank")  # it asks for nothing more when the service ends

    return run


def asked(
    api: httpx.Client, target: Target = "images", photo: Path | None = None, **fields: Any
) -> Answer:
    """Ask the service for the page's first page of hits."""
    fields = {"k": 24, **fields}
    if photo is None:
        answer = api.post(f"/v1/search/{target}", json=fields)
    else:
        form = {name: json.dumps(value) for name, value in fields.items()}
        files = {"image": photo.read_bytes()}
        answer = api.post(f"/v1/search/{target}", files=files, data=form)
    return answer.raise_for_status().json()


def ids_of(answer: Answer) -> list[str]:
    return [hit["id"] for hit in answer["hits"]]


def place_of(element: Locator) -> FloatRect:
    """Return where something is shown."""
    box = element.bounding_box()
    assert box is not None
    return box


def is_too_wide(page: SearchPage) -> bool:
    """Whether the page is wider than its window."""
    return page.page.evaluate("document.documentElement.scrollWidth > window.innerWidth")
