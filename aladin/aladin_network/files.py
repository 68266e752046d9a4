"""Atomic writes of files and folders, their checksums, and an early check of output paths."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import shutil
import tempfile
import threading
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aladin_network.errors import AladinError, InputError

_LINKED_BYTES = 2**20

# Locks of a disk that has none fail with one of these.
_WITHOUT_LOCKS = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP})


@contextmanager
def atomic_file(path: Path) -> Generator[Path]:
    """Yield a temporary path that replaces `path` on success and is removed on failure."""
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
    """Yield a temporary folder that replaces `path` on success and is removed on failure.

    A folder cannot be replaced in one step: the old one is first moved aside. If a crash occurs
    between the two renames, the next writer moves it back.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    old = path.with_name(f".{path.name}.old")
    recover_folder(path)
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    try:
        yield partial
        # The entries include subfolders. File names are data of their folder: without syncing it,
        # the rename could reach the disk before they do.
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
    """Undo a replacement of `path` that was interrupted between its two renames."""
    old = path.with_name(f".{path.name}.old")
    if old.exists() and not path.exists():
        old.rename(path)
    shutil.rmtree(old, ignore_errors=True)


@contextmanager
def removed_if_refused(
    *folders: Path, errors: tuple[type[Exception], ...] = (AladinError,)
) -> Generator[threading.Event]:
    """Remove the folders that did not exist before, and their new parents, on an error.

    What was there before stays, such as what an interrupted job has done.

    Args:
        *folders: Folders that the block may create.
        errors: Errors on which they are removed.

    Yields:
        To be set when nothing is to be removed any more.
    """
    created = [folder for folder in folders if not folder.exists()]
    parents = [parent for folder in created for parent in folder.parents if not parent.exists()]
    is_kept = threading.Event()
    try:
        yield is_kept
    except errors:
        if not is_kept.is_set():
            for folder in created:
                shutil.rmtree(folder, ignore_errors=True)
            for parent in sorted(parents, reverse=True):  # the inner ones first
                with suppress(OSError):  # something else was made in it, or it is gone
                    parent.rmdir()
        raise


def make_folder(path: Path) -> None:
    """Create a folder and its missing parents, and sync them to the disk."""
    if not path.exists():
        make_folder(path.parent)
        path.mkdir(exist_ok=True)
        sync(path.parent)


def link_or_copy(source: str | Path, target: str | Path) -> None:
    """Give a file that is never written to a second name, or copy it.

    It is copied on another disk, where links are not allowed, and where it is small: a short text
    may be edited in place. Links of the hub's cache are followed.
    """
    file = Path(source).resolve()
    if file.stat().st_size >= _LINKED_BYTES:
        with suppress(OSError):
            Path(target).hardlink_to(file)
            return
    shutil.copyfile(file, target)


def write_json(path: Path, data: Any) -> None:
    """Write indented JSON atomically."""
    with atomic_file(path) as partial:
        partial.write_text(json.dumps(data, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def read_json(path: Path) -> Any:
    """Read a JSON file."""
    return parse_json(path.read_text(encoding="utf-8"))


def parse_json(text: str | bytes) -> Any:
    """Parse JSON."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def is_without_locks(error: OSError) -> bool:
    """Return whether a lock failed because the disk has none."""
    return error.errno in _WITHOUT_LOCKS


def lock_to_write(descriptor: int, path: Path, *, wait: bool = True) -> None:
    """Lock a file exclusively; the kernel releases the lock if the process dies.

    Args:
        descriptor: The open file, which need not be that of `path`.
        path: What the lock protects, named in errors.
        wait: Whether to wait until others release it.

    Raises:
        BlockingIOError: If another process has it, and this does not wait.
        OSError: If the disk has no locks; it says what to do.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError as error:
        if not is_without_locks(error):
            raise
        reason = (
            f"this disk has no file locks ({error.strerror}), which writing needs: use a folder on "
            "a disk that has them, such as a local one or NFS version 4"
        )
        raise OSError(error.errno, reason, str(path)) from error


def sync(path: Path) -> None:
    """Flush a file or folder to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@dataclass(frozen=True, kw_only=True)
class FileEntry:
    """Expected size and checksum of a file.

    Attributes:
        bytes: Length of the file; checked whenever the file is used.
        sha256: SHA-256 of its content; checked on demand, since it requires reading the file.
    """

    bytes: int
    sha256: str


def describe_files(folder: Path, names: Iterable[str]) -> dict[str, FileEntry]:
    """Measure and hash files.

    Args:
        folder: Folder that the names are relative to.
        names: Names of the files.
    """
    return {
        name: FileEntry(bytes=(folder / name).stat().st_size, sha256=sha256_of(folder / name))
        for name in sorted(names)
    }


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_writable(option: str, path: Path) -> None:
    """Check that an output file can be written, before the work that produces it begins.

    Nothing is created: missing folders are made when the file is written.

    Args:
        option: Name of the command-line option that gives the file, for the error message.
        path: Path of the output file, which may exist.

    Raises:
        InputError: If `path` is a folder, or its folder cannot be written to.
    """
    reason = "it is a folder" if path.is_dir() else _fault(path)
    if reason is not None:
        raise InputError(f"{option}: {path} cannot be written ({reason})")


def check_folder_writable(path: Path) -> None:
    """Check that an output folder can be written, as `check_writable` does for a file.

    Raises:
        InputError: If the folder, or the one that it would be created in, cannot be written to.
    """
    reason = _fault(path / "file")
    if reason is not None:
        raise InputError(f"cannot write to {path} ({reason})")


def _fault(path: Path) -> str | None:
    folder = next(each for each in path.absolute().parents if each.exists())
    try:
        # A permission check is not enough: the file system may be read-only or not hold files.
        with tempfile.TemporaryFile(dir=folder):
            return None
    except OSError as error:
        return f"{folder}: {error.strerror or type(error).__name__}"
