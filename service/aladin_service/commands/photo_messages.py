"""What ``aladin photos`` prints on stderr: for a person who started it, and looks now and then."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from aladin_network.types import NullProgress, Progress
from aladin_service.commands.pass_lines import PassLines
from aladin_service.commands.progress import stderr_progress

if TYPE_CHECKING:
    from aladin_index.sync.apply import SyncReport

_ENCODED = "photos"  # the unit of the work that takes long
_FEWEST = 64  # photos for which progress is shown


def photo_lines() -> PassLines:
    """Return what prints passes; can be sent to another process."""
    return PassLines(_print_pass, "cannot be used:")


def _print_pass(report: SyncReport) -> None:
    typer.echo(_summary(report), err=True)


def _summary(report: SyncReport) -> str:
    """Return a pass in one line: ``1,280 photos: 1,024 added; 1,720 are still to be added``."""
    there = report.unchanged + report.indexed
    done = [
        f"{len(ids):,} {what}"
        for what, ids in (
            ("added", report.added),
            ("changed", report.changed),
            ("moved", report.moved),
            ("removed", report.deleted),
        )
        if ids
    ]
    parts = [", ".join(done) or "nothing has changed"]
    if report.remaining:
        parts.append(f"{report.remaining:,} are still to be added")
    if report.skipped:
        parts.append(f"{_counted(len(report.skipped), 'file')} cannot be used")
    if report.other_files:
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in report.other_files.items())
        parts.append(f"not photos: {kinds}")
    return f"{_counted(there, 'photo')}: {'; '.join(parts)}"


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


@contextmanager
def photo_progress() -> Generator[Progress]:
    """Yield a display of the encoding of many photos, without that of shorter work."""
    with stderr_progress() as shown:
        yield _OnlyPhotos(shown)


class _OnlyPhotos(NullProgress):
    """Passes on the pieces of work that encode many photos."""

    def __init__(self, shown: Progress) -> None:
        self._shown = shown
        self._is_shown = False

    def start(self, total: int | None, unit: str) -> None:
        """Begin a piece of work."""
        self._is_shown = unit == _ENCODED and (total is None or total >= _FEWEST)
        if self._is_shown:
            self._shown.start(total, unit)

    def advance(self, count: int = 1) -> None:
        """Count."""
        if self._is_shown:
            self._shown.advance(count)
