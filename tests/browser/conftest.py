"""Chromium, and a service of a small index; a test fails on all that the page complains of."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
import uvicorn
from playwright.sync_api import Browser, BrowserContext

from benchmarks.browser import NO_CHROMIUM, Complaints, open_browser
from benchmarks.search_page import SearchPage
from index.building.builder import build_index
from service.http.app import create_app
from service.metrics import Metrics
from service.settings import ServiceSettings
from service.sources import image_items, text_items
from service.work.thread_workers import ThreadWorkers
from service.work.worker_plan import WorkerPlan
from training.demo.scenes import draw_data_set

# Some pages of photos, and many of captions.
_PHOTOS, _PHOTO_PX = 64, 160
_PATIENCE_MS = 10_000
_LOOPBACK = "127.0.0.1"

OpenService = Callable[..., AbstractContextManager[str]]
OpenContext = Callable[..., BrowserContext]


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """Chromium, for as long as these tests run: its driver has the event loop of this thread."""
    with open_browser() as chromium:
        if chromium is None:
            pytest.skip(NO_CHROMIUM)
        yield chromium


@pytest.fixture(scope="package")
def data_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Drawn scenes with five captions each and a metadata field ``number``."""
    file = draw_data_set(
        tmp_path_factory.mktemp("data"),
        scenes=_PHOTOS,
        val_scenes=1,
        test_scenes=1,
        size_px=_PHOTO_PX,
    )
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    for number, line in enumerate(lines):
        line["metadata"] = {"number": number}
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return file


@pytest.fixture(scope="package")
def photo(data_file: Path) -> Path:
    """A photo to search with."""
    return sorted((data_file.parent / "images").iterdir())[7]


@pytest.fixture(scope="package")
def index_folder(
    tiny_checkpoint: Path, data_file: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """An index of all scenes and captions."""
    out = tmp_path_factory.mktemp("index") / "index"
    build_index(tiny_checkpoint, out, image_items(data_file, None), text_items(data_file, None))
    return out


@pytest.fixture(scope="package")
def open_service(index_folder: Path) -> OpenService:
    """Opens services of the index: ``with open_service(keys_file=FILE) as url``."""

    @contextmanager
    def run(port: int = 0, **changes: object) -> Generator[str]:
        # In float32, wherever the tests run: values are compared.
        settings = ServiceSettings(query_precision="float32", **changes)  # pyright: ignore
        metrics = Metrics()
        worker = WorkerPlan(index=index_folder, settings=settings).make()
        app = create_app(ThreadWorkers(worker, settings, metrics), settings, metrics)
        server = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="on"))
        with socket.create_server((_LOOPBACK, port)) as listener:
            thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
            thread.start()
            try:
                yield f"http://{_LOOPBACK}:{listener.getsockname()[1]}"
            finally:
                server.should_exit = True
                thread.join(timeout=20)
                assert not thread.is_alive()

    return run


@pytest.fixture(scope="package")
def url(browser: Browser, open_service: OpenService) -> Iterator[str]:
    """Of the service that most tests look at; made only where there is a browser."""
    del browser
    with open_service() as address:
        yield address


@pytest.fixture(scope="package")
def api(url: str) -> Iterator[httpx.Client]:
    """Asks the same service what the page has to show."""
    with httpx.Client(base_url=url, timeout=30) as client:
        yield client


@pytest.fixture
def open_context(browser: Browser) -> Iterator[OpenContext]:
    """Opens contexts of the browser, with what `Browser.new_context` takes, until the test ends."""
    opened: list[BrowserContext] = []

    def open_one(**options: object) -> BrowserContext:
        context = browser.new_context(**options)  # pyright: ignore[reportArgumentType]
        context.set_default_timeout(_PATIENCE_MS)
        opened.append(context)
        return context

    yield open_one
    for context in opened:
        context.close()


@pytest.fixture
def context(open_context: OpenContext) -> BrowserContext:
    """One that knows nothing."""
    return open_context()


@pytest.fixture
def complaints(context: BrowserContext, url: str) -> Iterator[Complaints]:
    """Of the test's pages; after it, all must have been expected, and nobody else asked."""
    heard = Complaints(context)
    yield heard
    for page in context.pages:
        page.evaluate("null")  # what it said before this has come by then
    assert heard.unexpected() == []
    assert heard.missing() == []
    assert heard.hosts <= {urlsplit(url).netloc}


@pytest.fixture
def page(context: BrowserContext, complaints: Complaints, url: str) -> SearchPage:
    """The page, not opened yet."""
    del complaints  # they are heard from the first request on
    return SearchPage(context.new_page(), url)
