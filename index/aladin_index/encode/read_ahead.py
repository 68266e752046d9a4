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

from aladin_index.encode.item_encoders import ItemEncoder, Prepared
from aladin_index.encode.source_items import ImageItem, SourceItem
from aladin_index.format.skipped import SkippedItem
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


NumberedItem = tuple[int, SourceItem]


class EncodedItems(NamedTuple):
    """Items of one batch.

    Attributes:
        items: Items in order, those that cannot be used with the reason; the input of the network
            is not kept.
        encoding: Encoding of the usable items in their order, or None if there are none.
    """

    items: list[Prepared | SkippedItem]
    encoding: Encoding | None

    @property
    def usable(self) -> list[Prepared]:
        """Items that were encoded, in order."""
        return [each for each in self.items if isinstance(each, Prepared)]

    @property
    def skipped(self) -> list[SkippedItem]:
        """Items that cannot be used, in order."""
        return [each for each in self.items if isinstance(each, SkippedItem)]


def encoded_batches(
    encoder: ItemEncoder,
    batches: Iterable[Sequence[NumberedItem]],
    readers: int,
    seconds: StageSeconds,
    progress: Progress,
) -> Generator[EncodedItems]:
    """Encode items batch by batch, `BATCHES_AHEAD` of the one that the caller is at.

    Args:
        encoder: Encoder of the items.
        batches: Rows and items of each batch; fetched on demand by the caller's thread.
        readers: Number of threads that read and decode while as many as the network allows encode.
        seconds: Receives the time that the caller waits here, split between the stages "read",
            "decode" and "encode" in proportion to the time that the threads spend on each.
        progress: Progress, advanced by the items as they are encoded: a batch may take minutes.

    Yields:
        The batches in order.
    """
    threads, turns = StageSeconds(), threading.Semaphore(encoder.callers)

    def prepare(row: int, item: SourceItem) -> Prepared | SkippedItem:
        try:
            with threads.measure("read"):
                data = encoder.read(item)
            with threads.measure("decode"):
                return encoder.decode(row, item, data)
        except InputError as error:
            return SkippedItem(item.id, _reason(item, error))

    def encode(items: Sequence[NumberedItem]) -> EncodedItems:
        prepared = EncodedItems([prepare(row, item) for row, item in items], None)
        if not prepared.usable:
            return prepared
        with turns, threads.measure("encode"):
            encoding = encoder.encode(prepared.usable)
        kept = [
            each._replace(data=None) if isinstance(each, Prepared) else each
            for each in prepared.items
        ]
        return EncodedItems(kept, encoding)

    pool = ThreadPoolExecutor(readers + encoder.callers, thread_name_prefix="encoder")
    most_ahead = max(BATCHES_AHEAD, encoder.callers)
    try:
        ahead: deque[list[Future[EncodedItems]]] = deque()
        for batch in batches:
            size = encoder.items_a_call or len(batch)
            ahead.append(
                [
                    pool.submit(encode, batch[start : start + size])
                    for start in range(0, len(batch), size)
                ]
            )
            if len(ahead) > most_ahead:
                yield _joined(ahead.popleft(), seconds, threads, progress)
        while ahead:
            yield _joined(ahead.popleft(), seconds, threads, progress)
    finally:
        pool.shutdown(cancel_futures=True)


def _reason(item: SourceItem, error: InputError) -> str:
    """Say why an item is skipped, by the name that its source gave it: paths are not shown."""
    if not isinstance(error, ImageError):
        return str(error)
    shown = item.uri if isinstance(item, ImageItem) and item.uri != item.id else None
    return error.reason if shown is None else f"{shown}: {error.reason}"


def _joined(
    futures: Sequence[Future[EncodedItems]],
    seconds: StageSeconds,
    threads: StageSeconds,
    progress: Progress,
) -> EncodedItems:
    parts: list[EncodedItems] = []
    for future in futures:
        with seconds.waiting_for(threads):
            parts.append(future.result())
        progress.advance(len(parts[-1].items))
    progress.note(**seconds.notes())
    encodings = [part.encoding for part in parts if part.encoding is not None]
    return EncodedItems(
        items=[item for part in parts for item in part.items],
        encoding=Encoding.concatenate(encodings) if encodings else None,
    )
