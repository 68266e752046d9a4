"""The limit on the memory of pictures: who waits, who is next, and who is refused."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from aladin_network.errors import OverloadedError
from aladin_network.photos.memory import (
    DecodingMemory,
    MemoryBudget,
    MemoryLimitError,
    SharedDecodingMemory,
    WithdrawnError,
    check_wanted,
    wanted_while,
)

PATIENCE_S = 30.0


def until(holds: Callable[[], bool]) -> None:
    """Wait for something that another thread does."""
    end_s = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end_s
        time.sleep(0.005)


class Decoder(threading.Thread):
    """Reserves memory and holds it until it is let go."""

    def __init__(self, memory: MemoryBudget, size: int, granted: list[int]) -> None:
        super().__init__(daemon=True)
        self.memory, self.size, self.granted = memory, size, granted
        self.asked, self.go_on = threading.Event(), threading.Event()
        self.start()
        assert self.asked.wait(PATIENCE_S)
        # It is in the queue a moment after it said so.
        time.sleep(0.05)

    def run(self) -> None:
        self.asked.set()
        with self.memory.reserve(self.size, "photo"):
            self.granted.append(self.size)
            assert self.go_on.wait(PATIENCE_S)


EVERY = pytest.mark.parametrize("kind", [DecodingMemory, SharedDecodingMemory])


@EVERY
def test_reservations_never_exceed_the_limit_and_come_in_order(
    kind: Callable[[int], MemoryBudget],
) -> None:
    memory, granted = kind(64), list[int]()
    first = Decoder(memory, 40, granted)
    large = Decoder(memory, 60, granted)
    small = Decoder(memory, 4, granted)  # there is room, but the large one came before
    time.sleep(0.1)
    assert granted == [40]
    first.go_on.set()
    until(lambda: len(granted) == 3)
    assert granted == [40, 60, 4]
    last = Decoder(memory, 1, granted)  # nothing is left
    time.sleep(0.1)
    assert len(granted) == 3
    for decoder in (large, small, last):
        decoder.go_on.set()
        decoder.join(PATIENCE_S)
    with memory.reserve(64, "photo"):  # all of it was given back
        pass


@EVERY
def test_a_picture_larger_than_the_memory_is_refused_at_once(
    kind: Callable[[int], MemoryBudget],
) -> None:
    memory = kind(10)
    with pytest.raises(MemoryLimitError, match=r"photo-7: decoding it takes 11 bytes.* limit 10"):
        memory.reserve(11, "photo-7").__enter__()
    for _ in range(2):  # an error gives it back
        with pytest.raises(ZeroDivisionError), memory.reserve(10, "photo"):
            raise ZeroDivisionError


@pytest.mark.parametrize("patience_s", [0.05, PATIENCE_S])
def test_waiting_ends_with_the_patience_or_the_request(patience_s: float) -> None:
    memory = DecodingMemory(10, patience_s)
    with memory.reserve(5, "photo"):
        end_s = time.monotonic() + 0.05
        with (
            wanted_while(lambda: True, end_s),
            pytest.raises(OverloadedError),
            memory.reserve(6, "other"),
        ):
            pytest.fail("there is no room")
        with wanted_while(lambda: True, end_s), memory.reserve(5, "other"):
            assert memory.held_bytes == 10  # without waiting, the time does not matter
    assert memory.held_bytes == 0


def test_a_withdrawn_request_leaves_the_queue() -> None:
    memory, granted = DecodingMemory(10), list[int]()
    is_wanted, ended = threading.Event(), list[BaseException]()
    is_wanted.set()

    def wait_in_vain() -> None:
        try:
            with wanted_while(is_wanted.is_set), memory.reserve(8, "photo"):
                granted.append(8)
        except WithdrawnError as error:
            ended.append(error)

    first = Decoder(memory, 5, granted)
    withdrawn = threading.Thread(target=wait_in_vain, daemon=True)
    withdrawn.start()
    time.sleep(0.05)
    behind = Decoder(memory, 5, granted)
    assert granted == [5]
    is_wanted.clear()
    until(lambda: granted == [5, 5])
    withdrawn.join(PATIENCE_S)
    assert len(ended) == 1
    for decoder in (first, behind):
        decoder.go_on.set()
        decoder.join(PATIENCE_S)


def test_work_whose_result_nobody_wants_is_stopped() -> None:
    check_wanted()
    with wanted_while(lambda: True):
        check_wanted()
    with wanted_while(lambda: False), pytest.raises(WithdrawnError):
        check_wanted()
