import threading
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from aladin.encoding import Encoding
from aladin.errors import InputError
from index.item_encoders import LeftOut, Prepared, prepared_batches


class Numbers:
    """Prepares numbers; refuses multiples of five."""

    def __init__(self) -> None:
        self.prepared: list[int] = []
        self._lock = threading.Lock()

    def prepare(self, row: int, item: Any) -> Prepared:
        with self._lock:
            self.prepared.append(row)
        if row % 5 == 0:
            raise InputError(f"{row} is a multiple of five")
        return Prepared(row, item.id, None)

    def encode(self, batch: Sequence[Prepared]) -> Encoding:
        raise NotImplementedError


ITEMS = [SimpleNamespace(id=f"number {row}") for row in range(30)]


@pytest.mark.parametrize("batch_size", [1, 4, 30, 100])
@pytest.mark.parametrize("readers", [1, 4])
def test_items_come_in_order_with_those_that_cannot_be_used(batch_size: int, readers: int) -> None:
    encoder = Numbers()
    batches = list(prepared_batches(encoder, ITEMS, range(3, 22), batch_size, readers))
    assert all(len(batch) == batch_size for batch in batches[:-1])
    assert [entry for batch in batches for entry in batch] == [
        Prepared(row, f"number {row}", None)
        if row % 5
        else LeftOut(f"number {row}", f"{row} is a multiple of five")
        for row in range(3, 22)
    ]
    assert sorted(encoder.prepared) == list(range(3, 22))


def test_no_more_than_one_batch_is_prepared_ahead() -> None:
    encoder = Numbers()
    batches = prepared_batches(encoder, ITEMS, range(30), 5, 2)
    for number, _ in enumerate(batches, start=1):
        assert max(encoder.prepared) < 5 * (number + 1)


def test_nothing_to_prepare_gives_nothing() -> None:
    assert list(prepared_batches(Numbers(), ITEMS, range(4, 4), 5, 2)) == []
