"""A check of the file that a command is to write at its end, made before its work begins."""

from __future__ import annotations

import tempfile
from pathlib import Path

from aladin.errors import InputError


def check_writable(option: str, path: Path) -> None:
    """Refuse a file that could not be written.

    Nothing is created: missing folders are made when the file is written.

    Args:
        option: that names the file on the command line.
        path: of the file, which may exist.

    Raises:
        InputError: `path` is a folder, or its folder cannot be written to.
    """
    reason = "it is a folder" if path.is_dir() else _fault(path)
    if reason is not None:
        raise InputError(f"{option}: {path} cannot be written ({reason})")


def _fault(path: Path) -> str | None:
    folder = next(each for each in path.absolute().parents if each.exists())
    try:
        # Asking for permissions would not do: a file system may be read-only, or hold no files.
        with tempfile.TemporaryFile(dir=folder):
            return None
    except OSError as error:
        return f"{folder}: {error.strerror or type(error).__name__}"
