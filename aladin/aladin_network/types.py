"""The seam through which long work reports how far it is.

Libraries call a `Progress`; the command line passes one that draws a bar or logs lines.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable


@runtime_checkable
class Progress(Protocol):
    """Receives the progress of one piece of long work at a time."""

    def start(self, total: int | None, unit: str) -> None:
        """Begin a piece of work of `total` units (None: unknown)."""
        ...

    def advance(self, count: int = 1) -> None:
        """Report `count` more units done."""
        ...

    def note(self, **numbers: float | str) -> None:
        """Report figures worth reading beside the bar, e.g. ``loss=1.2``."""
        ...


class NullProgress:
    """Reports nothing."""

    def start(self, total: int | None, unit: str) -> None:
        """Ignore the start."""

    def advance(self, count: int = 1) -> None:
        """Ignore the units."""

    def note(self, **numbers: float | str) -> None:
        """Ignore the figures."""
