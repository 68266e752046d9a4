"""A tiny index of real files, and the HTTP service of it."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
)
from pathlib import Path

import httpx
import numpy as np
import pytest
from PIL import Image

from aladin_index.building import builder
from aladin_index.building.builder import build_index
from aladin_index.generations import reader
from aladin_index.generations.info import describe
from aladin_index.generations.published import store_calibration
from aladin_network.calibration.calibration import Calibration, write_calibration
from aladin_network.checkpoint import Checkpoint
from aladin_network.checkpoint_files import read_model_id
from aladin_network.graphs.loading import load_for_inference
from aladin_network.types import Progress
from aladin_service.http.app import create_app
from aladin_service.item_sources import image_items, text_items
from aladin_service.measure.calibrate import CalibrateOptions
from aladin_service.measure.query_texts import RightAnswers
from aladin_service.observe.metrics import Metrics
from aladin_service.settings import ServiceSettings
from aladin_service.work.worker import WorkerPlan
from aladin_service.work.workers import ThreadWorkers
from aladin_training.data import read_records
from tests.service.engine_world import EngineWorld

CAPTIONS = [
    ("a red dog runs", "the small dog is red"),
    ("two men ride a motorcycle", "a motorcycle in the street"),
    ("a blue square above a circle", "the square is striped"),
    ("green grass and a yellow star", "a star on the grass"),
    ("a white triangle left of a star", "the triangle is white"),
    ("a man stands in the street", "the street is grey"),
]
# Ids with everything that a URL treats in its own way.
IDS = ["dogs/red#1", "bike 2?", "plain", "ünïcode", "a%2Fb", "../street"]


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """The event loop of asynchronous tests."""
    return "asyncio"


@pytest.fixture(scope="session", autouse=True)
def exact_queries() -> Iterator[None]:
    """Have services encode in float32 wherever the tests run: values are compared."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ALADIN_QUERY_PRECISION", "float32")
        yield


@pytest.fixture(scope="session", autouse=True)
def each_network_once() -> Iterator[None]:
    """Load each network once for all indexes: it takes nine tenths of the start of a service."""
    loaded: dict[tuple[str, str], Checkpoint] = {}

    def load(folder: Path, device: str = "cpu") -> Checkpoint:
        content = hashlib.sha256()
        for file in sorted(folder.rglob("*")):
            if file.is_file():
                content.update(f"{file.relative_to(folder)}\0".encode() + file.read_bytes())
        key = content.hexdigest(), device
        if key not in loaded:
            loaded[key] = load_for_inference(folder, device)
        return loaded[key]

    with pytest.MonkeyPatch.context() as patch:
        for module in (builder, reader):
            patch.setattr(module, "load_for_inference", load)
        yield


def make_photo(seed: int, size: tuple[int, int] = (48, 40)) -> Image.Image:
    """A picture of coloured blocks, another one for every seed."""
    colours = np.random.default_rng(seed).integers(0, 256, (5, 6, 3), dtype=np.uint8)
    return Image.fromarray(colours).resize(size, Image.Resampling.NEAREST)


@pytest.fixture(scope="session")
def captions() -> list[tuple[str, str]]:
    """Captions of each photo of `data_file`."""
    return CAPTIONS


@pytest.fixture(scope="session")
def image_ids() -> list[str]:
    """Ids of the photos of `data_file`."""
    return IDS


@pytest.fixture(scope="session")
def query_photo() -> Image.Image:
    """A picture that is not in the index."""
    return make_photo(99, (64, 48))


@pytest.fixture(scope="session")
def encoded() -> Callable[..., bytes]:
    """Writes a picture file: ``encoded(picture, "PNG")``."""

    def write(picture: Image.Image, format: str = "PNG", **options: object) -> bytes:
        target = io.BytesIO()
        picture.save(target, format, **options)
        return target.getvalue()

    return write


@pytest.fixture(scope="session")
def data_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six photos with two captions each; the last is in another split than the rest."""
    folder = tmp_path_factory.mktemp("data")
    lines: list[str] = []
    for number, (item_id, captions) in enumerate(zip(IDS, CAPTIONS, strict=True)):
        name = f"photo-{number}.png"
        make_photo(number, (48 + 8 * number, 40)).save(folder / name)
        line = {
            "image": name,
            "captions": captions,
            "split": "val" if number == 5 else "test",
            "id": item_id,
            "metadata": {"number": number, "tags": ["even" if number % 2 == 0 else "odd"]},
        }
        lines.append(json.dumps(line))
    file = folder / "data.jsonl"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


@pytest.fixture(scope="session")
def index_folder(
    tiny_checkpoint: Path, data_file: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """An index of all photos and captions of `data_file`."""
    out = tmp_path_factory.mktemp("index") / "index"
    build_index(tiny_checkpoint, out, image_items(data_file, None), text_items(data_file, None))
    return out


@pytest.fixture(scope="session")
def calibrated_index(
    index_folder: Path,
    tmp_path_factory: pytest.TempPathFactory,
    make_calibration: Callable[..., Calibration],
) -> Path:
    """The index of `index_folder`, with made-up probabilities."""
    root = tmp_path_factory.mktemp("calibrated") / "index"
    shutil.copytree(index_folder, root)
    store_calibration(root, make_calibration(describe(root).model.id))
    return root


@pytest.fixture(scope="session")
def pushed(index_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> EngineWorld:
    """An engine with the index of `index_folder`, for tests that change nothing."""
    world = EngineWorld(tmp_path_factory.mktemp("pushed") / "engine")
    world.push(index_folder)
    return world


@pytest.fixture
def world(pushed: EngineWorld, tmp_path: Path) -> EngineWorld:
    """An engine with the index of `index_folder`."""
    return pushed.copy(tmp_path / "engine")


@pytest.fixture(scope="session")
def service(index_folder: Path) -> Callable[..., AbstractAsyncContextManager[httpx.AsyncClient]]:
    """Opens the HTTP service: ``async with service(max_text_chars=10) as client``."""

    @asynccontextmanager
    async def run(index: Path = index_folder, **limits: int) -> AsyncGenerator[httpx.AsyncClient]:
        settings = ServiceSettings(**limits)  # pyright: ignore[reportArgumentType]
        worker, metrics = WorkerPlan(index=index, settings=settings).make(), Metrics()
        app = create_app(ThreadWorkers(worker, settings, metrics), settings, metrics)
        transport = httpx.ASGITransport(app)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://localhost") as client,
        ):
            yield client

    return run


@pytest.fixture(scope="module")
def url(
    index_folder: Path,
    tmp_path_factory: pytest.TempPathFactory,
    serve_in_thread: Callable[..., AbstractContextManager[str]],
) -> Iterator[str]:
    """Of a service on a socket of this machine, whose index may be changed."""
    index = tmp_path_factory.mktemp("served") / "index"
    shutil.copytree(index_folder, index)
    settings, metrics = ServiceSettings(), Metrics()
    workers = ThreadWorkers(WorkerPlan(index=index, settings=settings).make(), settings, metrics)
    app = create_app(workers, settings, metrics)
    with serve_in_thread(app) as url:
        yield url


@pytest.fixture(scope="session")
def calibrate_without_a_fit(make_calibration: Callable[..., Calibration]) -> Callable[..., None]:
    """Stands in for `calibrate_system`: stores a made-up calibration with the checkpoint."""

    def calibrate(
        checkpoint: Path,
        data: Path,
        options: CalibrateOptions,
        index: Path | None,
        progress: Progress,
        right_answers: RightAnswers | None = None,
    ) -> None:
        del progress, right_answers
        assert index is None
        photos = len(read_records(data, options.split))
        write_calibration(checkpoint, make_calibration(read_model_id(checkpoint), photos))

    return calibrate
