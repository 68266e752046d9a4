"""Threads read and decode items ahead of the network, in order and by a bounded number.

`StageSeconds` measures where the time goes: reading, decoding, encoding, writing.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

from aladin_index.encode.item_encoders import ItemEncoder, Prepared
from aladin_index.encode.source_items import ImageItem, SourceItem
from aladin_index.format.records import SkippedItem
from aladin_network.errors import ImageError, InputError

# Batches that are being read and decoded while one is being encoded. With one of them the threads
# would have nothing to do while the last photo of a batch, a large one maybe, is decoded.
BATCHES_AHEAD = 2


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
Batch = list[Prepared | SkippedItem]


def prepared_batches(
    encoder: ItemEncoder,
    batches: Iterable[Sequence[NumberedItem]],
    readers: int,
    seconds: StageSeconds,
) -> Generator[Batch]:
    """Prepare items batch by batch, `BATCHES_AHEAD` of the one that is being encoded.

    Args:
        encoder: Encoder of the items.
        batches: Rows and items of each batch; fetched on demand by the caller's thread.
        readers: Number of threads.
        seconds: Receives the time that the caller waits here, split between the stages "read" and
            "decode" in proportion to the time that the threads spend on each.

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
    """Say why an item is skipped, by the name that its source gave it: paths are not shown."""
    if not isinstance(error, ImageError):
        return str(error)
    shown = item.uri if isinstance(item, ImageItem) and item.uri != item.id else None
    return error.reason if shown is None else f"{shown}: {error.reason}"


def _results(
    futures: list[Future[Prepared | SkippedItem]], seconds: StageSeconds, threads: StageSeconds
) -> Batch:
    with seconds.waiting_for(threads):
        return [future.result() for future in futures]
