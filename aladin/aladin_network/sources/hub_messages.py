"""What is said about the hub: which names are none of its own, and its library's warnings once."""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

_LOG = logging.getLogger(__name__)
_LIBRARY = "huggingface_hub"

# Folders of a checkout whose contents this project's recipes name as the hub names its models,
# OWNER/NAME, and the document that says where these contents come from.
_OWN_FOLDERS = {"encoders": "training/FLICKR8K.md", "models": "training/BACKBONES.md"}


def missing_folder(name: str) -> str | None:
    """Describe what is missing if a name can only be a folder's; None if the hub may know it."""
    first, *others = name.split("/")
    may_be_on_hub = len(others) < 2 and first not in ("", ".", "..", "~", *_OWN_FOLDERS)
    if may_be_on_hub or Path(name).is_dir():
        return None
    found = "a file, expected a folder" if Path(name).exists() else "no such folder"
    hint = f" here, {_OWN_FOLDERS[first]} says how to make it" if first in _OWN_FOLDERS else ""
    return found + hint


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
