"""Messages of the hub's library: a warning about an unreachable hub once, not at every attempt."""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import contextmanager

_LOG = logging.getLogger(__name__)
_LIBRARY = "huggingface_hub"


class _OnceEach(logging.Handler):
    """Passes each warning on once, and none about the next attempt."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._seen: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        message = " ".join(record.getMessage().split())
        if message.startswith("Retrying in ") or message in self._seen:
            return
        self._seen.add(message)
        _LOG.log(record.levelno, "the hub's library: %s", message)


@contextmanager
def one_hub_warning() -> Generator[None]:
    """Log each warning of the hub's library once, with this project's handlers alone.

    The library logs every attempt to reach the hub, up to six for each file, with a handler of its
    own and with that of the program.
    """
    from huggingface_hub.utils.logging import get_logger  # adds the library's handler

    library = get_logger(_LIBRARY)
    handlers, propagate = library.handlers, library.propagate
    library.handlers, library.propagate = [_OnceEach()], False
    try:
        yield
    finally:
        library.handlers, library.propagate = handlers, propagate
