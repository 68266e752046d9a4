import threading
import time
from collections.abc import Generator, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from aladin_index.encode.item_encoders import StreamedItems
from aladin_index.encode.read_ahead import BATCHES_AHEAD, StageSeconds, encoded_batches
from aladin_index.encode.source_items import Prepared
from aladin_index.format.skipped import SkippedItem
from aladin_index.settings import EncodeSettings
from aladin_network.errors import InputError
from aladin_network.scoring.encoding import Encoding
from aladin_network.types import NullProgress, Progress


class Numbers:
    """Encodes a number as itself, with as many tokens as its last digit; refuses multiples of 5."""

    def __init__(self, callers: int = 1, items_a_call: int | None = 2) -> None:
        self.callers, self.items_a_call, self.elsewhere = callers, items_a_call, None
        self.decoded: list[int] = []
        self.calls: list[list[int]] = []
        self.at_once, self.most_at_once = 0, 0
        self._lock = threading.Lock()

    def read(self, item: Any) -> str:
        return f"bytes of {item.id}"

    def decode(self, item: Any, data: str) -> Prepared:
        assert data == f"bytes of {item.id}"
        row = item.number
        with self._lock:
            self.decoded.append(row)
        if row % 5 == 0:
            raise InputError(f"{row} is a multiple of five")
        return Prepared(row, (row, 1))

    def encode(self, batch: Sequence[Prepared]) -> Encoding:
        rows = [each.value for each in batch]
        with self._lock:
            self.calls.append(rows)
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
        lengths = np.array([row % 10 for row in rows])
        mask = np.arange(lengths.max())[None] < lengths[:, None]
        numbers = np.array(rows, dtype=np.float32)[:, None]
        with self._lock:
            self.at_once -= 1
        return Encoding(numbers, numbers[:, None] * mask[:, :, None], mask)


def numbered(rows: range, size: int) -> Iterator[list[Any]]:
    """Items, so many a batch."""
    for start in range(rows.start, rows.stop, size):
        batch = range(start, min(start + size, rows.stop))
        yield [SimpleNamespace(id=f"number {row}", number=row) for row in batch]


def encoded(
    encoder: Any,
    batches: Iterator[list[Any]],
    readers: int = 1,
    seconds: StageSeconds | None = None,
    progress: Progress | None = None,
    **settings: Any,
) -> Generator[StreamedItems]:
    return encoded_batches(
        encoder,
        batches,
        EncodeSettings(readers=readers, **settings),
        seconds or StageSeconds(),
        progress or NullProgress(),
    )


@pytest.mark.parametrize("size", [1, 4, 30])
@pytest.mark.parametrize("readers", [1, 4])
@pytest.mark.parametrize(("callers", "items_a_call"), [(1, 2), (3, 1), (2, None)])
def test_items_come_in_order_with_those_that_cannot_be_used(
    size: int, readers: int, callers: int, items_a_call: int | None
) -> None:
    encoder, seconds, progress = Numbers(callers, items_a_call), StageSeconds(), NullProgress()
    steps: list[int] = []
    progress.advance = steps.append
    batches = list(encoded(encoder, numbered(range(3, 22), size), readers, seconds, progress))
    assert [len(batch.sources) for batch in batches] == [
        len(batch) for batch in numbered(range(3, 22), size)
    ]
    assert [entry for batch in batches for entry in batch.found] == [
        Prepared(None, (row, 1))
        if row % 5
        else SkippedItem(f"number {row}", f"{row} is a multiple of five")
        for row in range(3, 22)
    ]
    usable = [row for row in range(3, 22) if row % 5]
    assert [item.number for batch in batches for item, _ in batch.usable] == usable
    assert [each.id for batch in batches for each in batch.skipped] == [
        f"number {row}" for row in range(5, 22, 5)
    ]
    found: list[tuple[int, int]] = []
    for batch in batches:
        assert (batch.encoding is None) == (not batch.usable)
        if batch.encoding is not None:
            numbers, tokens, mask = batch.encoding
            assert np.array_equal(tokens[:, :, 0], numbers * mask)
            found += zip(numbers[:, 0].astype(int).tolist(), mask.sum(axis=1).tolist(), strict=True)
    assert found == [(row, row % 10) for row in usable]
    assert sorted(encoder.decoded) == list(range(3, 22))
    assert encoder.most_at_once <= callers
    assert max(map(len, encoder.calls)) <= (items_a_call or size)
    assert set(seconds.seconds) == {"read", "decode", "encode"}
    assert (sum(steps), max(steps) <= (items_a_call or size)) == (19, True)


def test_as_many_threads_encode_as_the_network_allows() -> None:
    both = threading.Barrier(2, timeout=5)

    class Met(Numbers):
        def encode(self, batch: Sequence[Prepared]) -> Encoding:
            both.wait()  # breaks unless another thread comes
            return super().encode(batch)

    encoder = Met(callers=2, items_a_call=1)
    rows = [row for row in range(1, 25) if row % 5]
    batches = encoded(encoder, numbered(range(1, 25), 24))
    assert [item.number for batch in batches for item, _ in batch.usable] == rows


def test_every_thread_has_photos_to_decode_however_small_the_batches() -> None:
    together = threading.Barrier(7, timeout=5)

    class Together(Numbers):
        def decode(self, item: Any, data: str) -> Prepared:
            together.wait()  # breaks unless six others come
            return super().decode(item, data)

    encoder = Together(callers=1, items_a_call=4)
    batches = encoded(encoder, numbered(range(1, 57), 2), readers=6, batch_size=2)
    assert sum(len(batch.sources) for batch in batches) == 56


def test_at_most_so_many_batches_are_ahead() -> None:
    """2,000 items are taken from their source as the files are written, not before."""
    encoder, taken = Numbers(), [0]

    def source() -> Iterator[list[Any]]:
        for batch in numbered(range(2_000), 50):
            taken[0] += 1
            yield batch

    batches = encoded(encoder, source(), 2)
    for number, _ in enumerate(batches, start=1):
        assert taken[0] == min(number + BATCHES_AHEAD, 40)
        assert len(encoder.decoded) <= 50 * (number + BATCHES_AHEAD)
    assert len(encoder.decoded) == 2_000


def test_the_next_batches_are_encoded_while_one_is_written() -> None:
    started = {row: threading.Event() for row in range(1, 31)}

    class Watched(Numbers):
        def encode(self, batch: Sequence[Prepared]) -> Encoding:
            for each in batch:
                started[each.value].set()
            return super().encode(batch)

    batches = encoded(Watched(), numbered(range(1, 31), 5))
    next(batches)
    # The caller, at work on the first batch, asks for nothing.
    assert started[5 * (1 + BATCHES_AHEAD) - 1].wait(timeout=5)
    assert not started[5 * (1 + BATCHES_AHEAD) + 1].is_set()
    batches.close()


@pytest.mark.parametrize("stage", ["decode", "encode"])
def test_an_error_in_a_thread_reaches_the_caller_and_ends_the_rest(stage: str) -> None:
    class Broken(Numbers):
        def decode(self, item: Any, data: str) -> Prepared:
            prepared = super().decode(item, data)
            if stage == "decode":
                raise MemoryError(prepared.value)
            return prepared

        def encode(self, batch: Sequence[Prepared]) -> Encoding:
            raise MemoryError(batch[0].value)

    encoder = Broken()
    batches = encoded(encoder, numbered(range(1, 1000), 300))
    with pytest.raises(MemoryError, match="1"):
        next(batches)
    assert len(encoder.decoded) < 900  # what nobody waits for any more was called off


def test_a_strict_job_ends_at_the_batch_with_an_item_of_no_use() -> None:
    batches = encoded(Numbers(), numbered(range(1, 9), 2), strict=True)
    assert [len(next(batches).usable) for _ in range(2)] == [2, 2]
    with pytest.raises(InputError, match="number 5: 5 is a multiple of five"):
        next(batches)
    assert list(encoded(Numbers(), iter([]))) == []


def test_the_time_of_a_stage_adds_up(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter([0.0, 2.0, 5.0, 6.25])
    monkeypatch.setattr(time, "perf_counter", lambda: next(ticks))
    seconds = StageSeconds()
    for _ in range(2):
        with seconds.measure("encode"):
            pass
    assert seconds.seconds == {"encode": 3.25}
    assert seconds.notes() == {"encode_s": 3.2}


def test_waiting_is_shared_out_by_what_the_threads_do(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter([0.0, 2.0, 2.0, 3.0])
    monkeypatch.setattr(time, "perf_counter", lambda: next(ticks))
    seconds, threads = StageSeconds(), StageSeconds()
    threads.add("read", 1.0)
    threads.add("decode", 3.0)
    with seconds.waiting_for(threads):
        pass
    assert seconds.seconds == {"read": 0.5, "decode": 1.5}
    threads.add("read", 2.0)  # now as much as decoding
    with seconds.waiting_for(threads):
        pass
    assert seconds.seconds == {"read": 1.0, "decode": 2.0}
