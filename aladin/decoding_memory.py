"""One limit on the memory that decoding pictures may take at the same time."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from aladin.errors import AladinError, ImageTooLargeError, OverloadedError

# Enough for any picture of `aladin.images.MOST_PIXELS` pixels, of whatever format.
DEFAULT_BYTES = 2 * 2**30

# Between two looks at whether the result is still wanted, while a picture waits for memory.
_LOOK_S = 0.1
# Told to whoever waited in vain: other pictures are decoded by then, most likely.
_RETRY_AFTER_S = 1.0


class MemoryLimitError(ImageTooLargeError):
    """A picture that alone takes more memory to decode than all pictures may take together."""

    def __init__(self, source: str, needed: int, limit: int) -> None:
        super().__init__(source, f"decoding it takes {needed} bytes of memory, limit {limit}")


class WithdrawnError(AladinError):
    """The client for whom a picture was to be decoded has hung up."""

    def __init__(self) -> None:
        super().__init__("the request was withdrawn")


@dataclass(frozen=True)
class _Demand:
    """How long a result is wanted; see `wanted_while`."""

    is_wanted: Callable[[], bool]
    until_s: float


_DEMAND: ContextVar[_Demand | None] = ContextVar("demand", default=None)


@contextmanager
def wanted_while(is_wanted: Callable[[], bool], until_s: float = math.inf) -> Generator[None]:
    """Limit how long this thread waits for memory inside of the context.

    Args:
        is_wanted: Whether somebody still waits for the result; called from this thread.
        until_s: When waiting ends with an `OverloadedError`, by `time.monotonic`.
    """
    token = _DEMAND.set(_Demand(is_wanted, until_s))
    try:
        yield
    finally:
        _DEMAND.reset(token)


def is_still_wanted() -> Callable[[], bool]:
    """Return what tells whether the result of the current context is wanted, for other threads."""
    demand = _DEMAND.get()
    return _always if demand is None else demand.is_wanted


def _always() -> bool:
    return True


def check_wanted() -> None:
    """Stop work whose result nobody waits for any more.

    Raises:
        WithdrawnError: The context is one of `wanted_while`, and its result is not wanted.
    """
    demand = _DEMAND.get()
    if demand is not None and not demand.is_wanted():
        raise WithdrawnError


class DecodingMemory:
    """A number of bytes, reserved by whoever decodes a picture; safe to use from any thread.

    Reservations are granted in the order in which they were asked for, so a large picture is not
    overtaken by small ones for ever. A thread must not ask for a second reservation while it holds
    one: two such threads could wait for each other.

    Attributes:
        max_bytes: Sum of all reservations at any time.
        patience_s: Longest time that a reservation is waited for.
    """

    def __init__(self, max_bytes: int = DEFAULT_BYTES, patience_s: float = math.inf) -> None:
        """Have all of the memory free.

        Args:
            max_bytes: Sum of all reservations at any time.
            patience_s: Longest time that a reservation is waited for.
        """
        self.max_bytes = max_bytes
        self.patience_s = patience_s
        self._changed = threading.Condition()
        self._waiting: deque[object] = deque()
        self._held = 0

    @property
    def held_bytes(self) -> int:
        """Sum of the reservations that are held now."""
        return self._held

    @contextmanager
    def reserve(self, size: int, source: str) -> Generator[None]:
        """Hold memory for a picture inside of the context, once it is free.

        Args:
            size: Bytes to reserve.
            source: Names the picture in errors.

        Raises:
            MemoryLimitError: The picture alone needs more than there is.
            OverloadedError: The memory did not become free in time.
            WithdrawnError: Nobody waits for the result any more; see `wanted_while`.
        """
        if size > self.max_bytes:
            raise MemoryLimitError(source, size, self.max_bytes)
        self._take(size)
        try:
            yield
        finally:
            with self._changed:
                self._held -= size
                self._changed.notify_all()

    def _take(self, size: int) -> None:
        demand = _DEMAND.get()
        until_s = time.monotonic() + self.patience_s
        if demand is not None:
            until_s = min(until_s, demand.until_s)
        place = object()
        with self._changed:
            self._waiting.append(place)
            try:
                while self._waiting[0] is not place or self._held + size > self.max_bytes:
                    check_wanted()
                    left_s = until_s - time.monotonic()
                    if left_s <= 0:
                        raise OverloadedError(_RETRY_AFTER_S)
                    self._changed.wait(min(left_s, _LOOK_S))
                self._held += size
            finally:
                self._waiting.remove(place)
                self._changed.notify_all()
