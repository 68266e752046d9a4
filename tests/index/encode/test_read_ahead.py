import threading
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from aladin_index.encode.item_encoders import Prepared
from aladin_index.encode.read_ahead import BATCHES_AHEAD, StageSeconds, prepared_batches
from aladin_index.format.records import SkippedItem
from aladin_network.errors import InputError
from aladin_network.scoring.encoding import Encoding


class Numbers:
    """Prepares numbers; refuses multiples of five."""

    def __init__(self) -> None:
        self.decoded: list[int] = []
        self._lock = threading.Lock()

    def read(self, item: Any) -> str:
        return f"bytes of {item.id}"

    def decode(self, row: int, item: Any, data: str) -> Prepared:
        assert data == f"bytes of {item.id}"
        with self._lock:
            self.decoded.append(row)
        if row % 5 == 0:
            raise InputError(f"{row} is a multiple of five")
        return Prepared(row, item.id, None)

    def encode(self, batch: Sequence[Prepared]) -> Encoding:
        raise NotImplementedError


def numbered(rows: range, size: int) -> Iterator[list[Any]]:
    """Rows and items, so many a batch."""
    for start in range(rows.start, rows.stop, size):
        batch = range(start, min(start + size, rows.stop))
        yield [(row, SimpleNamespace(id=f"number {row}")) for row in batch]


@pytest.mark.parametrize("size", [1, 4, 30])
@pytest.mark.parametrize("readers", [1, 4])
def test_items_come_in_order_with_those_that_cannot_be_used(size: int, readers: int) -> None:
    encoder, seconds = Numbers(), StageSeconds()
    batches = list(prepared_batches(encoder, numbered(range(3, 22), size), readers, seconds))
    assert [len(batch) for batch in batches] == [len(b) for b in numbered(range(3, 22), size)]
    assert [entry for batch in batches for entry in batch] == [
        Prepared(row, f"number {row}", None)
        if row % 5
        else SkippedItem(f"number {row}", f"{row} is a multiple of five")
        for row in range(3, 22)
    ]
    assert sorted(encoder.decoded) == list(range(3, 22))
    assert set(seconds.seconds) == {"read", "decode"}


def test_so_many_batches_are_ahead_and_no_more() -> None:
    """20,000 items are taken from their source as the network goes on, not before."""
    encoder, taken = Numbers(), [0]

    def source() -> Iterator[list[Any]]:
        for batch in numbered(range(20_000), 50):
            taken[0] += 1
            yield batch

    batches = prepared_batches(encoder, source(), 2, StageSeconds())
    for number, _ in enumerate(batches, start=1):
        assert taken[0] == min(number + BATCHES_AHEAD, 400)
        assert len(encoder.decoded) <= 50 * (number + BATCHES_AHEAD)
    assert len(encoder.decoded) == 20_000


def test_the_next_batches_are_decoded_while_one_is_encoded() -> None:
    started = {row: threading.Event() for row in range(1, 31)}

    class Watched(Numbers):
        def decode(self, row: int, item: Any, data: str) -> Prepared:
            started[row].set()
            return super().decode(row, item, data)

    batches = prepared_batches(Watched(), numbered(range(1, 31), 5), 1, StageSeconds())
    next(batches)
    # The caller, at work on the first batch, asks for nothing.
    assert started[5 * (1 + BATCHES_AHEAD)].wait(timeout=5)
    assert not started[5 * (1 + BATCHES_AHEAD) + 1].is_set()
    batches.close()


def test_what_breaks_in_a_thread_reaches_the_caller_and_ends_the_rest() -> None:
    class Broken(Numbers):
        def decode(self, row: int, item: Any, data: str) -> Prepared:
            super().decode(row, item, data)
            raise MemoryError(row)

    encoder = Broken()
    batches = prepared_batches(encoder, numbered(range(1, 1000), 300), 1, StageSeconds())
    with pytest.raises(MemoryError, match="1"):
        next(batches)
    assert len(encoder.decoded) < 900  # what nobody waits for any more was called off


def test_nothing_to_prepare_gives_nothing() -> None:
    assert list(prepared_batches(Numbers(), iter([]), 2, StageSeconds())) == []
