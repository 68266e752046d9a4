"""Progress of long calls, shown as the command line shows it, or passed to a caller's object."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aladin_network.types import Progress


@contextmanager
def reported(progress: bool | Progress) -> Generator[Progress]:
    """Yield the object that a long call reports to.

    Args:
        progress: True for a bar or lines on stderr, False for nothing, or an object with the
            methods of `aladin_network.types.Progress`.
    """
    from aladin_network.types import NullProgress

    if progress is True:
        from aladin_service.commands.progress import stderr_progress

        with stderr_progress() as shown:
            yield shown
    else:
        yield NullProgress() if progress is False else progress
