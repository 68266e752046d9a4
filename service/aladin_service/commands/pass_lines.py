"""Which passes over folders the commands print, and which of the files that cannot be used."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from aladin_index.format.records import SkippedItem
    from aladin_index.sync.apply import SyncReport


class PassLines:
    """Prints the first complete pass, those with changes, and each skipped file once on stderr."""

    def __init__(self, print_pass: Callable[[SyncReport], None], skipped: str) -> None:
        """Start before the first pass.

        Args:
            print_pass: Prints a pass; can be sent to another process if this object is.
            skipped: Words before the id and the reason of a skipped file.
        """
        self._print_pass = print_pass
        self._skipped = skipped
        self._is_first = True
        self._known: set[SkippedItem] = set()

    def __call__(self, report: SyncReport) -> None:
        """Print a pass, if it is one of those."""
        for item in report.left_out:
            if item not in self._known:
                typer.echo(f"{self._skipped} {item.id}: {item.reason}", err=True)
        self._known = set(report.left_out)
        if report.has_changes or (self._is_first and not report.waiting):
            self._is_first = False
            self._print_pass(report)
