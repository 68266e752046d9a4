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
from math import ceil
from typing import TypeVar

from aladin_index.encode.decoding_processes import Decode, decoding
from aladin_index.encode.item_encoders import ItemEncoder, StreamedItems
from aladin_index.encode.source_items import Prepared, SourceItem
from aladin_index.settings import EncodeSettings
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


def encoded_batches(
    encoder: ItemEncoder,
    batches: Iterable[Sequence[SourceItem]],
    settings: EncodeSettings,
    seconds: StageSeconds,
    progress: Progress,
) -> Generator[StreamedItems]:
    """Encode items batch by batch, `BATCHES_AHEAD` of the one that the caller is at.

    Batches come in order, and are fetched on demand by the caller's thread. `seconds` receives the
    time that the caller waits here, split between "read", "decode" and "encode" in proportion to
    the time that the threads spend on each. Where the settings are strict, the first item of no use
    is an `InputError`.
    """
    threads = settings.readers + encoder.callers
    # All threads have something to do, whatever they take at a time.
    taken = threads * (encoder.items_a_call or 0)
    most_ahead = max(BATCHES_AHEAD, encoder.callers, ceil(taken / settings.batch_size))
    with decoding(encoder, settings.readers) as decode:
        stream = _Stream(encoder, decode, settings, seconds, progress)
        pool = ThreadPoolExecutor(threads, thread_name_prefix="encoder")
        try:
            ahead: deque[list[Future[StreamedItems]]] = deque()
            for batch in batches:
                size = encoder.items_a_call or len(batch)
                starts = range(0, len(batch), size)
                ahead.append([pool.submit(stream.encode, batch[at : at + size]) for at in starts])
                if len(ahead) > most_ahead:
                    yield stream.joined(ahead.popleft())
            while ahead:
                yield stream.joined(ahead.popleft())
        finally:
            pool.shutdown(cancel_futures=True)


class _Stream:
    """Encodes some items at a time in any thread, and joins them to batches in the caller's."""

    def __init__(
        self,
        encoder: ItemEncoder,
        decode: Decode,
        settings: EncodeSettings,
        seconds: StageSeconds,
        progress: Progress,
    ) -> None:
        self._encoder, self._decode, self._settings = encoder, decode, settings
        self._seconds, self._progress = seconds, progress
        self._threads, self._turns = StageSeconds(), threading.Semaphore(encoder.callers)

    def encode(self, items: Sequence[SourceItem]) -> StreamedItems:
        found, spent = self._decode(items)
        for stage, seconds in spent.items():
            self._threads.add(stage, seconds)
        usable = [each for each in found if isinstance(each, Prepared)]
        if not usable:
            return StreamedItems(list(items), found, None)
        with self._turns, self._threads.measure("encode"):
            encoding = self._encoder.encode(usable)
        bare = [each._replace(value=None) if isinstance(each, Prepared) else each for each in found]
        return StreamedItems(list(items), bare, encoding)

    def joined(self, futures: Sequence[Future[StreamedItems]]) -> StreamedItems:
        """Wait for the items of a batch; where the settings are strict, all must be usable."""
        parts: list[StreamedItems] = []
        for future in futures:
            with self._seconds.waiting_for(self._threads):
                parts.append(future.result())
            self._progress.advance(len(parts[-1].sources))
        self._progress.note(**self._seconds.notes())
        encodings = [part.encoding for part in parts if part.encoding is not None]
        batch = StreamedItems(
            sources=[item for part in parts for item in part.sources],
            found=[each for part in parts for each in part.found],
            encoding=Encoding.concatenate(encodings) if encodings else None,
        )
        if self._settings.strict and batch.skipped:
            raise batch.skipped[0].refused()
        return batch
