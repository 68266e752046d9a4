"""Threads read and decode items ahead of the network, in order and by a bounded number."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from aladin.errors import ImageError, InputError
from index.building.item_encoders import ItemEncoder, LeftOut, Prepared
from index.building.source_items import ImageItem, SourceItem
from index.building.stage_seconds import StageSeconds

# Batches that are being read and decoded while one is being encoded. With one of them the threads
# would have nothing to do while the last photo of a batch, a large one maybe, is decoded.
BATCHES_AHEAD = 2

NumberedItem = tuple[int, SourceItem]
Batch = list[Prepared | LeftOut]


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

    def prepare(row: int, item: SourceItem) -> Prepared | LeftOut:
        try:
            with threads.measure("read"):
                data = encoder.read(item)
            with threads.measure("decode"):
                return encoder.decode(row, item, data)
        except InputError as error:
            return LeftOut(item.id, _reason(item, error))

    pool = ThreadPoolExecutor(readers, thread_name_prefix="reader")
    try:
        ahead: deque[list[Future[Prepared | LeftOut]]] = deque()
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
    futures: list[Future[Prepared | LeftOut]], seconds: StageSeconds, threads: StageSeconds
) -> Batch:
    with seconds.waiting_for(threads):
        return [future.result() for future in futures]
