"""What is on disk is either whole or not there.

A check of the file that a command is to write at its end, made before its work begins.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from aladin_network.errors import InputError


@contextmanager
def atomic_file(path: Path) -> Generator[Path]:
    """Yield a temporary path; on success it becomes `path`, on failure nothing is left."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        yield partial
        sync(partial)
        partial.replace(path)
        sync(path.parent)
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def atomic_folder(path: Path) -> Generator[Path]:
    """Yield a temporary folder; on success it replaces `path`, on failure nothing is left.

    A folder cannot be replaced in one step: the old one is moved aside first, and moved back
    by the next writer should a crash fall between the two renames.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    old = path.with_name(f".{path.name}.old")
    recover_folder(path)
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    try:
        yield partial
        # Subfolders are among these. A folder's entries are its own data: without them the
        # rename could reach the disk before the names of the files.
        for entry in partial.rglob("*"):
            sync(entry)
        sync(partial)
        if path.exists():
            path.rename(old)
        partial.rename(path)
        sync(path.parent)
        shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def recover_folder(path: Path) -> None:
    """Undo a replacement of `path` that was cut between its two renames."""
    old = path.with_name(f".{path.name}.old")
    if old.exists() and not path.exists():
        old.rename(path)
    shutil.rmtree(old, ignore_errors=True)


def make_folder(path: Path) -> None:
    """Make a folder and those above it that are missing; on the disk when it returns."""
    if not path.exists():
        make_folder(path.parent)
        path.mkdir(exist_ok=True)
        sync(path.parent)


def write_json(path: Path, data: Any) -> None:
    """Write readable JSON atomically."""
    with atomic_file(path) as partial:
        partial.write_text(json.dumps(data, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def sync(path: Path) -> None:
    """Force a file or folder to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


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
