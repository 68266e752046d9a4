"""Photos into an index on a card, and what limits them: a step of `python -m benchmarks.card`.

Photos are drawn (500 x 375 px, JPEG); the network is a MobileNetV2 of random weights at 384 px.

readers     threads, or processes, that decode
decoding    photos a second read and decoded, by threads and by processes, and nothing else
network     photos a second of the network alone on pixels that are ready, by photos of a call and
            threads that call it, in half and in single precision
build       photos a second of a whole build without its start, in seconds; seconds by stage
ratio       build over the smaller one of decoding in processes and the network as a build calls it
"""

from __future__ import annotations

import itertools
import os
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from PIL import Image

import aladin_network.model
from aladin_index.building.builder import build_index
from aladin_index.encode.decoding_processes import decoding
from aladin_index.encode.item_encoders import ImageReader, PhotoDecoder, PhotoEncoder, item_encoder
from aladin_index.encode.source_items import ImageItem
from aladin_index.settings import BuildSettings
from aladin_network.checkpoint import load_checkpoint, save_checkpoint
from aladin_network.inference import encode_images
from aladin_network.model import AladinModel
from aladin_network.photos.memory import SharedDecodingMemory
from benchmarks.lib.served_index import SIZES, real_size_model
from benchmarks.lib.steps import Report, Setup
from benchmarks.search.gpu import device_of

_COLOURS, _SIZE_PX = (16, 12), (500, 375)
_NETWORK_PX, _QUICK_PX = 384, 64
_AT_A_TIME = 64
_BATCHES, _QUICK_BATCHES = (16, 64, 256), (2,)


def encoding(setup: Setup, report: Report) -> None:
    """Measure decoding, the network and a build; `setup.items` is the number of photos."""
    device, readers = device_of(setup), os.cpu_count() or 1
    report("readers", readers)
    items = draw_photos(setup.folder / "photos", setup.items, readers)
    checkpoint = setup.folder / "encoding-checkpoint"
    side_px = _QUICK_PX if setup.is_quick else _NETWORK_PX
    save_checkpoint(checkpoint, real_size_model(["a photo"], SIZES["minilm"], side_px))
    model = load_checkpoint(checkpoint, device).model
    settings = BuildSettings(device=device, readers=readers, ann="Flat")
    encoder = cast(PhotoEncoder, item_encoder("images", model, settings))
    decoded = {
        "threads": _decoding(replace(encoder, elsewhere=None), items, readers),
        "processes": _decoding(replace(encoder, elsewhere=_elsewhere(model)), items, readers),
    }
    report("decoding", decoded)
    network = dict(_network(encoder, items[0], setup))
    report("network", network)
    build = _build(checkpoint, items, settings, report)
    limits = decoded["processes"], network[_name("half", encoder.items_a_call, encoder.callers)]
    report("ratio", build / min(limits))


def draw_photos(folder: Path, count: int, threads: int) -> list[ImageItem]:
    """Draw smooth photos with some noise, as JPEGs of 50 kB."""
    folder.mkdir()

    def draw(number: int) -> ImageItem:
        random, path = np.random.default_rng(number), folder / f"{number:05d}.jpg"
        colours = random.integers(0, 256, (*_COLOURS[::-1], 3), dtype=np.uint8)
        smooth = Image.fromarray(colours).resize(_SIZE_PX, Image.Resampling.BICUBIC)
        noise = random.integers(-12, 13, (*_SIZE_PX[::-1], 1))
        pixels = (np.asarray(smooth) + noise).clip(0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(path, quality=85)
        return ImageItem(id=path.stem, path=path, uri=path.name)

    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(draw, range(count)))


def _elsewhere(model: AladinModel) -> PhotoDecoder:
    reader = model.image.encoder.pixel_reader()
    assert reader is not None  # of a network of the encoder hf
    memory = SharedDecodingMemory(2**31)
    return PhotoDecoder(encoder=reader, images=ImageReader(memory=memory))


def _decoding(encoder: PhotoEncoder, items: Sequence[ImageItem], readers: int) -> float:
    """Return photos a second, once every thread or process has begun."""
    parts = [items[at : at + _AT_A_TIME] for at in range(0, len(items), _AT_A_TIME)]
    with decoding(encoder, readers) as decode, ThreadPoolExecutor(readers + 1) as pool:
        first = [items[number % len(items)] for number in range(2 * readers)]
        list(pool.map(decode, [[each] for each in first]))
        started = time.perf_counter()
        for done in pool.map(decode, parts):
            del done
        return len(items) / (time.perf_counter() - started)


def _network(encoder: PhotoEncoder, item: ImageItem, setup: Setup) -> Iterator[tuple[str, float]]:
    pixels = encoder.decode(item, encoder.read(item)).value
    sizes = sorted({encoder.items_a_call, *(_QUICK_BATCHES if setup.is_quick else _BATCHES)})
    variants = list(itertools.product(("half", "single"), sizes, sorted({1, 2, encoder.callers})))
    for precision, size, callers in variants:
        run = partial(encode_images, encoder.model, [pixels] * size, size)
        with _precision(precision), torch.inference_mode():
            rate = _rate(run, callers, setup.measuring_s / len(variants))
        yield _name(precision, size, callers), size * rate


def _name(precision: str, size: int, callers: int) -> str:
    return f"{precision}, {size} photos, {callers} callers"


@contextmanager
def _precision(name: str) -> Generator[None]:
    before = aladin_network.model.HALF_ON
    if name == "single":
        aladin_network.model.HALF_ON = frozenset()
    try:
        yield
    finally:
        aladin_network.model.HALF_ON = before


def _rate(run: Callable[[], object], callers: int, seconds: float) -> float:
    """Return calls a second of some threads."""
    with ThreadPoolExecutor(callers) as pool:
        wait([pool.submit(run) for _ in range(callers)])  # to warm up
        end = (started := time.perf_counter()) + seconds

        def call(_: int) -> int:
            count = 0
            while count == 0 or time.perf_counter() < end:
                run()
                count += 1
            return count

        calls = sum(pool.map(call, range(callers)))
        return calls / (time.perf_counter() - started)


def _build(
    checkpoint: Path, items: Sequence[ImageItem], settings: BuildSettings, report: Report
) -> float:
    took: list[float] = []
    stages: dict[str, Any] = {}
    for some in (items[:2], items):
        with tempfile.TemporaryDirectory() as folder:
            started = time.perf_counter()
            built = build_index(checkpoint, Path(folder) / "index", some, None, settings)
            took.append(time.perf_counter() - started)
            stages = {name: round(each, 2) for name, each in built.seconds.items()}
    rate = (len(items) - 2) / (took[1] - took[0])
    report("build", {"photos_per_s": rate, "start_s": took[0], "stages_s": stages})
    return rate
