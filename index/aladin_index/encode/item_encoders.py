"""From items to encodings: each is read and decoded by itself, then encoded in a batch.

Where the time of a build goes.

Threads read and decode items ahead of the network, in order and by a bounded number.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from aladin_index.encode.source_items import ImageItem, SourceItem, TextItem
from aladin_index.format.records import SkippedItem
from aladin_network.encoders.base import RegionInput
from aladin_network.errors import ImageError, InputError
from aladin_network.inference import encode_images, encode_texts, tokenize
from aladin_network.model import AladinModel
from aladin_network.photos.decoding import ImageLimits, decoded_image
from aladin_network.photos.memory import DecodingMemory
from aladin_network.photos.regions import RegionSet
from aladin_network.scoring.scores import Encoding
from aladin_network.types import Target


class Prepared(NamedTuple):
    """An item that is ready for the network.

    Attributes:
        row: of the item in the build's input.
        data: what the encoder's `encode` takes.
        size_px: width and height of an upright photo; None for a text, or not known.
        boxes: (regions, 4) of a photo's regions, in fractions of it; None: not known, or the
            network reads photos.
    """

    row: int
    data: Any
    size_px: tuple[int, int] | None
    boxes: NDArray[np.float32] | None = None


class ItemEncoder(Protocol):
    """Encodes the items of one side; `read` and `decode` are called by several threads at once."""

    def read(self, item: Any) -> Any:
        """Read what the item names.

        Raises:
            InputError: it cannot be used.
        """
        ...

    def decode(self, row: int, item: Any, data: Any) -> Prepared:
        """Bring what was read into the network's form.

        Raises:
            InputError: it cannot be used.
        """
        ...

    def encode(self, batch: Sequence[Prepared]) -> Encoding:
        """Encode items of this encoder's `decode`; the result is in the processor's memory."""
        ...


class RegionReader(Protocol):
    """Where the regions of photos come from; any number of threads may read."""

    @property
    def fingerprint(self) -> str:
        """Identify all regions that there are."""
        ...

    def read(self, key: str) -> RegionSet:
        """Return the regions of a photo.

        Raises:
            InputError: there are none, or they cannot be used.
        """
        ...


class PhotoEncoder:
    """Reads, decodes and encodes photos."""

    def __init__(self, model: AladinModel, limits: ImageLimits) -> None:
        """Encode with `model`; photos over the limits are refused."""
        self._model = model
        self._limits = limits
        self._memory = DecodingMemory()

    def read(self, item: ImageItem) -> bytes:
        """Read a photo's bytes."""
        return item.photo.read(self._limits.max_bytes)

    def decode(self, row: int, item: ImageItem, data: bytes) -> Prepared:
        """Bring a photo to the network's size; the photo itself is let go."""
        with decoded_image(data, self._memory, item.photo.source, self._limits) as photo:
            return Prepared(row, self._model.image.encoder.preprocess(photo), photo.size)

    def encode(self, batch: Sequence[Prepared]) -> Encoding:
        """Encode photos."""
        return encode_images(self._model, [prepared.data for prepared in batch]).to("cpu")


class RegionsEncoder:
    """Reads and encodes the regions of photos; the photos themselves are only shown."""

    def __init__(self, model: AladinModel, regions: RegionReader) -> None:
        """Encode with `model`."""
        self._model = model
        self._regions = regions

    def read(self, item: ImageItem) -> RegionSet:
        """Read the regions of a photo."""
        if item.regions_key is None:
            raise InputError("expected the key of its regions, got none")
        return self._regions.read(item.regions_key)

    def decode(self, row: int, item: ImageItem, data: RegionSet) -> Prepared:  # noqa: ARG002
        """Bring regions to the network's form."""
        value = self._model.image.encoder.preprocess(data)
        assert isinstance(value, RegionInput)  # this network's encoder reads regions
        boxes = None if data.boxes is None else data.boxes[: len(value.vectors)]
        return Prepared(row, value, data.size_px, boxes)

    def encode(self, batch: Sequence[Prepared]) -> Encoding:
        """Encode regions."""
        return encode_images(self._model, [prepared.data for prepared in batch]).to("cpu")


class SentenceEncoder:
    """Encodes texts."""

    def __init__(self, model: AladinModel) -> None:
        """Encode with `model`."""
        self._model = model

    def read(self, item: TextItem) -> str:
        """Return the text, which is there already."""
        return item.text

    def decode(self, row: int, item: TextItem, data: str) -> Prepared:  # noqa: ARG002
        """Refuse a text that is blank or too long for the network."""
        tokenize(self._model, [data])
        return Prepared(row, data, None)

    def encode(self, batch: Sequence[Prepared]) -> Encoding:
        """Encode texts."""
        return encode_texts(self._model, [prepared.data for prepared in batch]).to("cpu")


def encoder_of(
    target: Target, model: AladinModel, limits: ImageLimits, regions: RegionReader | None = None
) -> ItemEncoder:
    """Return the encoder of one side.

    Args:
        target: the side.
        model: that encodes it.
        limits: what a photo may cost.
        regions: of the photos, for a network that reads regions; None for one that reads photos.

    Raises:
        InputError: the regions are missing, or the network reads none.
    """
    if target == "texts":
        return SentenceEncoder(model)
    check_regions(model, regions)
    return PhotoEncoder(model, limits) if regions is None else RegionsEncoder(model, regions)


def check_regions(model: AladinModel, regions: RegionReader | None) -> None:
    """Refuse regions for a network of photos, and a network of regions without any.

    Raises:
        InputError: the two do not go together.
    """
    reads = model.image.encoder.reads
    if (reads == "regions") != (regions is not None):
        expected, found = ("regions", "none") if regions is None else ("photos", "regions")
        raise InputError(f"images: this network reads {expected}, got {found}")


class StageSeconds:
    """Adds up the seconds spent in named stages; several threads may add at once."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._lock = threading.Lock()

    def add(self, stage: str, seconds: float) -> None:
        """Add to `stage`."""
        with self._lock:
            self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds

    @contextmanager
    def measure(self, stage: str) -> Generator[None]:
        """Add the time inside the block to `stage`."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.add(stage, time.perf_counter() - started)

    @contextmanager
    def waiting_for(self, others: StageSeconds) -> Generator[None]:
        """Add the time inside the block, spent waiting for threads, to what they are doing.

        Stages that run beside each other cannot be added up. This way they can: each gets, of the
        time that was lost to the threads, the share that it has of their work. The stage with the
        most seconds is then the one to speed up, and all of them together are the elapsed time.

        Args:
            others: what the threads have measured so far.
        """
        started = time.perf_counter()
        try:
            yield
        finally:
            waited = time.perf_counter() - started
            with others._lock:
                theirs = dict(others.seconds)
            total = sum(theirs.values())
            for stage, seconds in theirs.items():
                self.add(stage, waited * seconds / total if total else 0.0)

    def notes(self) -> dict[str, float]:
        """Return the figures for `Progress.note`: ``read_s=1.2`` and so on."""
        with self._lock:
            return {f"{stage}_s": round(seconds, 1) for stage, seconds in self.seconds.items()}


# Batches that are being read and decoded while one is being encoded. With one of them the threads
# would have nothing to do while the last photo of a batch, a large one maybe, is decoded.
BATCHES_AHEAD = 2

NumberedItem = tuple[int, SourceItem]
Batch = list[Prepared | SkippedItem]


def prepared_batches(
    encoder: ItemEncoder,
    batches: Iterable[Sequence[NumberedItem]],
    readers: int,
    seconds: StageSeconds,
) -> Generator[Batch]:
    """Prepare items batch by batch, `BATCHES_AHEAD` of the one that is being encoded.

    Args:
        encoder: of the items.
        batches: rows and items; taken when they are needed, by the caller's thread.
        readers: threads.
        seconds: gets the time that the caller waits here, as that of the stages "read" and
            "decode", by what share the threads spend on each.

    Yields:
        The items of a batch in order, those that cannot be used with the reason.
    """
    threads = StageSeconds()

    def prepare(row: int, item: SourceItem) -> Prepared | SkippedItem:
        try:
            with threads.measure("read"):
                data = encoder.read(item)
            with threads.measure("decode"):
                return encoder.decode(row, item, data)
        except InputError as error:
            return SkippedItem(item.id, _reason(item, error))

    pool = ThreadPoolExecutor(readers, thread_name_prefix="reader")
    try:
        ahead: deque[list[Future[Prepared | SkippedItem]]] = deque()
        for batch in batches:
            ahead.append([pool.submit(prepare, row, item) for row, item in batch])
            if len(ahead) > BATCHES_AHEAD:
                yield _results(ahead.popleft(), seconds, threads)
        while ahead:
            yield _results(ahead.popleft(), seconds, threads)
    finally:
        pool.shutdown(cancel_futures=True)


def _reason(item: SourceItem, error: InputError) -> str:
    """Say why an item is left out, by the name that its source gave it: paths are not shown."""
    if not isinstance(error, ImageError):
        return str(error)
    shown = item.uri if isinstance(item, ImageItem) and item.uri != item.id else None
    return error.reason if shown is None else f"{shown}: {error.reason}"


def _results(
    futures: list[Future[Prepared | SkippedItem]], seconds: StageSeconds, threads: StageSeconds
) -> Batch:
    with seconds.waiting_for(threads):
        return [future.result() for future in futures]
