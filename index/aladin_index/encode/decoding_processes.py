"""Photos are read and decoded by the threads that encode them, or in processes for a card.

A photo takes a third of a millisecond of Python: enough threads for a card wait for each other's,
and so does the one that starts the card's work. Processes hand their pixels over in memory of
theirs, without a copy.
"""

from __future__ import annotations

import mmap
import multiprocessing
import os
import pickle
import signal
import threading
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from itertools import accumulate, pairwise
from multiprocessing.reduction import DupFd
from typing import Any, NamedTuple

from aladin_index.encode.item_encoders import ItemDecoder, ItemEncoder
from aladin_index.encode.source_items import ImageItem, Prepared, SourceItem
from aladin_index.format.skipped import SkippedItem
from aladin_network.errors import DecodingProcessError, ImageError, InputError


class Decoded(NamedTuple):
    """What became of some items, in order, and the seconds that each stage took."""

    found: list[Prepared | SkippedItem]
    seconds: dict[str, float]


Decode = Callable[[Sequence[SourceItem]], Decoded]


@contextmanager
def decoding(encoder: ItemEncoder, readers: int) -> Generator[Decode]:
    """Yield what any thread reads and decodes items with: its own time, or one of some processes.

    Raises:
        DecodingProcessError: By the function, if a process ended before it was done.
    """
    if encoder.elsewhere is None:
        yield partial(decode_items, encoder)
        return
    processes = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(readers, processes, _start, (encoder.elsewhere,))

    def decode(items: Sequence[SourceItem]) -> Decoded:
        try:
            return _received(*pool.submit(_decode, items).result())
        except (BrokenProcessPool, OSError, EOFError) as error:
            raise DecodingProcessError from error

    try:
        yield decode
    finally:
        pool.shutdown(cancel_futures=True)


def decode_items(decoder: ItemDecoder, items: Sequence[SourceItem]) -> Decoded:
    """Read and decode items; those of no use are skipped."""
    found: list[Prepared | SkippedItem] = []
    seconds = {"read": 0.0, "decode": 0.0}
    for item in items:
        stage, started = "read", time.perf_counter()
        try:
            data = decoder.read(item)
            stage, read = "decode", time.perf_counter()
            seconds["read"] += read - started
            started = read
            found.append(decoder.decode(item, data))
        except InputError as error:
            found.append(SkippedItem(item.id, _reason(item, error)))
        seconds[stage] += time.perf_counter() - started
    return Decoded(found, seconds)


def _reason(item: SourceItem, error: InputError) -> str:
    """Say why an item is skipped, by the name that its source gave it: paths are not shown."""
    if not isinstance(error, ImageError):
        return str(error)
    shown = item.uri if isinstance(item, ImageItem) and item.uri != item.id else None
    return error.reason if shown is None else f"{shown}: {error.reason}"


# What this process decodes with, if it is one of `decoding`.
_decoder: ItemDecoder | None = None


def _start(decoder: ItemDecoder) -> None:
    global _decoder
    _decoder = decoder
    # An interrupted build ends its processes itself; one that is killed cannot.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _decode(items: Sequence[SourceItem]) -> tuple[list[int], Any]:
    assert _decoder is not None
    buffers: list[pickle.PickleBuffer] = []
    head = pickle.dumps(decode_items(_decoder, items), 5, buffer_callback=buffers.append)
    parts = [memoryview(head), *(buffer.raw() for buffer in buffers)]
    # Not in /dev/shm, of which a container has 64 MiB; and gone with the last who has it open.
    with os.fdopen(os.memfd_create("decoded photos"), "wb") as file:
        file.writelines(parts)
        return [part.nbytes for part in parts], DupFd(file.fileno())


def _received(sizes: Sequence[int], shared: Any) -> Decoded:
    descriptor = shared.detach()
    try:
        memory = memoryview(mmap.mmap(descriptor, sum(sizes)))
    finally:
        os.close(descriptor)
    head, *buffers = (memory[start:end] for start, end in pairwise(accumulate(sizes, initial=0)))
    return pickle.loads(head, buffers=buffers)
