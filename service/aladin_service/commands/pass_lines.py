"""Which passes over folders the commands print, and which of the files that cannot be used."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from aladin_index.format.skipped import SkippedItem
    from aladin_index.sync.apply import SyncReport


# From this number on, files that are skipped for one reason share a line, which names the first.
_MANY, _NAMED = 4, 3


def skipped_lines(items: Sequence[SkippedItem]) -> list[str]:
    """Return what is skipped and why, a line each, or one for many of the same reason."""
    from aladin_index.format.skipped import by_reason

    lines: list[str] = []
    for group in by_reason(items, len(items), _MANY):
        if group.count < _MANY:
            lines += [f"{name}: {group.reason}" for name in group.names]
        else:
            named = ", ".join(group.names[:_NAMED])
            lines.append(f"{group.count:,} x {group.reason} ({named}, ...)")
    return lines


class PassLines:
    """Prints the first complete pass, those with changes, and skipped files once on stderr."""

    def __init__(self, print_pass: Callable[[SyncReport], None], skipped: str) -> None:
        """Start before the first pass."""
        self._print_pass = print_pass
        self._skipped = skipped
        self._is_first = True
        self._known: set[SkippedItem] = set()

    def __call__(self, report: SyncReport) -> None:
        """Print a pass, if it is one of those."""
        new = [item for item in report.skipped if item not in self._known]
        for line in skipped_lines(new):
            typer.echo(f"{self._skipped} {line}", err=True)
        self._known = set(report.skipped)
        if report.has_changes or (self._is_first and not report.waiting):
            self._is_first = False
            self._print_pass(report)
