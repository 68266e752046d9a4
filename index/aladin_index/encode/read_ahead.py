"""Threads read, decode and encode items ahead of who writes them, in order and in bounded number.

Each thread takes some items from the file to the encoding, so that decoded photos are few at any
time, and still in the processor's cache when they are encoded. `StageSeconds` measures where the
time goes: reading, decoding, encoding, writing.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from aladin_index.changes.encoded import ItemBatch
from aladin_index.encode.item_encoders import ItemEncoder
from aladin_index.encode.source_items import ImageItem, Prepared, SourceItem, stored_form
from aladin_index.format.skipped import SkippedItem
from aladin_index.settings import EncodeSettings
from aladin_network.errors import ImageError, InputError
from aladin_network.scoring.encoding import Encoding
from aladin_network.types import Progress

# Batches that threads are at work on while one is being written. With one of them the threads would
# have nothing to do while the last photo of a batch, a large one maybe, is decoded.
BATCHES_AHEAD = 2


T = TypeVar("T")


def batched(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield items in lists of `size`; the last one may be shorter."""
    rest = iter(items)
    while batch := list(islice(rest, size)):
        yield batch


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
            others: Measurements of the threads so far.
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


class StreamedItems(NamedTuple):
    """Items of one batch, encoded.

    Attributes:
        sources: Items in order.
        found: What became of each: how it was prepared, without the input of the network, or why
            it cannot be used.
        encoding: Encoding of the usable items in their order, or None if there are none.
    """

    sources: list[SourceItem]
    found: list[Prepared | SkippedItem]
    encoding: Encoding | None

    @property
    def usable(self) -> list[tuple[SourceItem, Prepared]]:
        """Items that were encoded, in order."""
        pairs = zip(self.sources, self.found, strict=True)
        return [(source, each) for source, each in pairs if isinstance(each, Prepared)]

    @property
    def skipped(self) -> list[SkippedItem]:
        """Items that cannot be used, in order."""
        return [each for each in self.found if isinstance(each, SkippedItem)]

    def stored(self) -> ItemBatch[NDArray[np.float32]] | None:
        """Return the usable items in the form that an index stores, or None if there are none."""
        if self.encoding is None:
            return None
        usable = self.usable
        images = [source for source, _ in usable if isinstance(source, ImageItem)]
        return ItemBatch(
            items=[stored_form(source, each) for source, each in usable],
            embeddings=self.encoding.embedding,
            tokens=self.encoding.tokens[self.encoding.mask],
            lengths=self.encoding.mask.sum(axis=1),
            photos=[each.upload for each in images if each.upload],
        )


def encoded_batches(
    encoder: ItemEncoder,
    batches: Iterable[Sequence[SourceItem]],
    settings: EncodeSettings,
    seconds: StageSeconds,
    progress: Progress,
) -> Generator[StreamedItems]:
    """Encode items batch by batch, `BATCHES_AHEAD` of the one that the caller is at.

    Args:
        encoder: Encoder of the items.
        batches: Items of each batch; fetched on demand by the caller's thread.
        settings: Number of threads that read and decode, while as many as the network allows
            encode; and whether to be strict.
        seconds: Receives the time that the caller waits here, split between the stages "read",
            "decode" and "encode" in proportion to the time that the threads spend on each.
        progress: Progress, advanced by the items as they are encoded: a batch may take minutes.

    Yields:
        The batches in order.

    Raises:
        InputError: If an item cannot be used, and the settings are strict.
    """
    threads, turns = StageSeconds(), threading.Semaphore(encoder.callers)

    def prepare(item: SourceItem) -> Prepared | SkippedItem:
        try:
            with threads.measure("read"):
                data = encoder.read(item)
            with threads.measure("decode"):
                return encoder.decode(item, data)
        except InputError as error:
            return SkippedItem(item.id, _reason(item, error))

    def encode(items: Sequence[SourceItem]) -> StreamedItems:
        found = [prepare(item) for item in items]
        usable = [each for each in found if isinstance(each, Prepared)]
        if not usable:
            return StreamedItems(list(items), found, None)
        with turns, threads.measure("encode"):
            encoding = encoder.encode(usable)
        bare = [each._replace(value=None) if isinstance(each, Prepared) else each for each in found]
        return StreamedItems(list(items), bare, encoding)

    def joined(futures: Sequence[Future[StreamedItems]]) -> StreamedItems:
        batch = _joined(futures, seconds, threads, progress)
        if settings.strict and batch.skipped:
            raise batch.skipped[0].refused()
        return batch

    pool = ThreadPoolExecutor(settings.readers + encoder.callers, thread_name_prefix="encoder")
    most_ahead = max(BATCHES_AHEAD, encoder.callers)
    try:
        ahead: deque[list[Future[StreamedItems]]] = deque()
        for batch in batches:
            size = encoder.items_a_call or len(batch)
            ahead.append(
                [
                    pool.submit(encode, batch[start : start + size])
                    for start in range(0, len(batch), size)
                ]
            )
            if len(ahead) > most_ahead:
                yield joined(ahead.popleft())
        while ahead:
            yield joined(ahead.popleft())
    finally:
        pool.shutdown(cancel_futures=True)


def _reason(item: SourceItem, error: InputError) -> str:
    """Say why an item is skipped, by the name that its source gave it: paths are not shown."""
    if not isinstance(error, ImageError):
        return str(error)
    shown = item.uri if isinstance(item, ImageItem) and item.uri != item.id else None
    return error.reason if shown is None else f"{shown}: {error.reason}"


def _joined(
    futures: Sequence[Future[StreamedItems]],
    seconds: StageSeconds,
    threads: StageSeconds,
    progress: Progress,
) -> StreamedItems:
    parts: list[StreamedItems] = []
    for future in futures:
        with seconds.waiting_for(threads):
            parts.append(future.result())
        progress.advance(len(parts[-1].sources))
    progress.note(**seconds.notes())
    encodings = [part.encoding for part in parts if part.encoding is not None]
    return StreamedItems(
        sources=[item for part in parts for item in part.sources],
        found=[each for part in parts for each in part.found],
        encoding=Encoding.concatenate(encodings) if encodings else None,
    )
