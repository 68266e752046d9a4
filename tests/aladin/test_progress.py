"""The seam for progress."""

from __future__ import annotations

from aladin_network.types import NullProgress, Progress


def test_the_silent_progress_is_one() -> None:
    progress = NullProgress()
    assert isinstance(progress, Progress)
    progress.start(None, "photos")
    progress.advance()
    progress.note(loss=1.0)
