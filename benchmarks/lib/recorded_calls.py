"""Functions of this repository that a request calls, in the order of their first calls."""

from __future__ import annotations

import asyncio
import sys
import tempfile
import threading
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple
from unittest.mock import patch

import httpx
import numpy as np

import aladin_service
from aladin_index.building.builder import build_index
from aladin_network.graphs.export import export_graphs
from aladin_service.http import shared_state
from aladin_service.http.app import create_app
from aladin_service.observe.metrics import Metrics
from aladin_service.settings import ServiceSettings
from aladin_service.work.worker import WorkerPlan
from aladin_service.work.workers import ThreadWorkers
from benchmarks.lib.small_collection import (
    make_texts,
    photo_fields,
    random_png,
    save_small_network,
    write_photos,
)
from benchmarks.lib.source_tree import PACKAGES

_ITEMS = 20
# The first request still loads modules and fills caches, and is not counted. Of the others the one
# with the fewest functions counts: a background thread may have run beside the rest.
_TEXTS = (
    *("a red dog runs", "the blue boat by the sea", "a green bird flies", "the dog by the boat"),
    *("a red boat", "the green dog runs", "a blue bird", "the bird by the sea", "a dog flies"),
)
# Comprehensions are functions in Python 3.11 and part of their function from 3.12 on.
_NOT_FUNCTIONS = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>", "<module>")


class Call(NamedTuple):
    """The first call of a function.

    Attributes:
        file: Path from the root of the repository.
        line: First line of the function.
        name: Qualified name of the function.
        depth: Number of the repository's functions below it on its thread's stack.
    """

    file: str
    line: int
    name: str
    depth: int


class RequestCalls(NamedTuple):
    """Calls of the requests that are counted.

    Attributes:
        query: Calls of a text query for photos.
        photo: Calls of a photo that is added to the index.
        explain: Calls of a text's explanation of a photo.
    """

    query: list[Call]
    photo: list[Call]
    explain: list[Call]


class CallRecorder:
    """Records the functions that run, on this thread and on those started after installation.

    This thread is watched only while it records: watching it takes several times as long.
    """

    def __init__(self, root: Path, folders: Sequence[str]) -> None:
        """Prepare to record the functions of some folders.

        Args:
            root: Root of the repository.
            folders: Paths of the folders from `root`.
        """
        self._root = f"{root}/"
        self._folders = tuple(f"{root}/{folder}/" for folder in folders)
        self._is_ours: dict[CodeType, bool] = {}
        self._calls: dict[CodeType, Call] = {}
        self._on = False

    @contextmanager
    def installed(self) -> Generator[None]:
        """Watch the calls of every thread that starts within the context."""
        before = threading.getprofile()
        threading.setprofile(self._profile)
        try:
            yield
        finally:
            threading.setprofile(before)  # type: ignore[arg-type]

    def start(self) -> None:
        """Forget what was recorded, and record from now on; also the calls of this thread."""
        self._calls = {}
        self._on = True
        sys.setprofile(self._profile)

    def stop(self) -> list[Call]:
        """Stop recording, and return each function's first call, in order."""
        sys.setprofile(None)
        self._on = False
        return list(self._calls.values())

    def _profile(self, frame: FrameType, event: str, argument: Any) -> None:
        del argument
        code = frame.f_code
        if self._on and event == "call" and code not in self._calls and self._ours(code):
            file = code.co_filename.removeprefix(self._root)
            depth = self._depth(frame)
            self._calls[code] = Call(file, code.co_firstlineno, code.co_qualname, depth)

    def _depth(self, frame: FrameType) -> int:
        depth, caller = 0, frame.f_back
        while caller is not None:
            depth += self._ours(caller.f_code)
            caller = caller.f_back
        return depth

    def _ours(self, code: CodeType) -> bool:
        ours = self._is_ours.get(code)
        if ours is None:
            ours = code.co_filename.startswith(self._folders) and code.co_name not in _NOT_FUNCTIONS
            self._is_ours[code] = ours
        return ours


def record_requests(
    root: Path, *, by_graphs: bool = True, model: Path | None = None
) -> RequestCalls:
    """Serve a small index of random photos by the real application, and record its requests.

    Args:
        root: Root of the repository.
        by_graphs: Whether graphs compute the network, the fastest way of a query, or torch.
        model: Small checkpoint, with its graphs if they compute; without one, it is made.

    Raises:
        SystemExit: If the installed packages are not those of the repository, whose functions are
            counted.
    """
    found = Path(aladin_service.__file__).parents[2]
    if found != root:
        raise SystemExit(
            f"expected the packages of {root}, got those of {found}: install this repository, "
            "pip install -e ."
        )
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        if model is None:
            model = folder / "model"
            save_small_network(model)
            if by_graphs:
                export_graphs(model)
        photos = write_photos(folder / "photos", _ITEMS)
        build_index(model, folder / "index", photos, make_texts(_ITEMS))
        return asyncio.run(_record(folder / "index", CallRecorder(root, tuple(PACKAGES))))


async def _record(index: Path, recorder: CallRecorder) -> RequestCalls:
    # Before the application: it starts the threads that are to be watched. On a busy machine every
    # request takes so long that its client is watched for hanging up, which is not counted.
    with recorder.installed(), patch.object(shared_state, "_LISTEN_AFTER_S", 60.0):
        settings, metrics = ServiceSettings(), Metrics()
        workers = ThreadWorkers(
            WorkerPlan(index=index, settings=settings).make(), settings, metrics
        )
        app = create_app(workers, settings, metrics)
        transport = httpx.ASGITransport(app)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://localhost") as client,
        ):

            def search(number: int) -> Awaitable[httpx.Response]:
                return client.post("/v1/search/images", json={"text": _TEXTS[number]})

            def add(number: int) -> Awaitable[httpx.Response]:
                photo = random_png(np.random.default_rng(100 + number), 64)
                body = photo_fields(f"added {number}", photo) | {"text": _TEXTS[number]}
                return client.post("/v1/items/images", json=body)

            def explain(number: int) -> Awaitable[httpx.Response]:
                return client.get("/v1/explain", params={"text": _TEXTS[number], "id": item_id})

            found = (await search(0)).raise_for_status().json()
            item_id = found["hits"][0]["id"]
            requests = [await _warm(recorder, each) for each in (search, add, explain)]
            return RequestCalls(*requests)


async def _warm(
    recorder: CallRecorder, request: Callable[[int], Awaitable[httpx.Response]]
) -> list[Call]:
    """Make a request several times, and return the calls of the warm one that had the fewest."""
    (await request(0)).raise_for_status()
    warm: list[list[Call]] = []
    for number in range(1, len(_TEXTS)):
        recorder.start()
        answer = await request(number)
        warm.append(recorder.stop())
        answer.raise_for_status()
    return min(warm, key=len)
