"""The photo libraries of a user: which folders, which model, where the index is, who serves it.

LIBRARIES/NAME/library.json   folders, what is excluded, model and the place of the index
LIBRARIES/NAME/index/         the index, unless it is elsewhere
LIBRARIES/NAME/served         locked by the process that serves the library; contains its address
LIBRARIES/NAME/keys.json      API keys of the service: that of the page, and others of the user
LIBRARIES/NAME/secret         the key of the page, which its address contains

Only the user may look into the folder of a library.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TextIO

from pydantic import ConfigDict

from aladin_network.config import STRICT, parse_config
from aladin_network.errors import ConfigError, IndexNotReadyError
from aladin_network.files import atomic_file, lock_to_write, make_folder, write_json
from aladin_service.api_key import SCOPES, digest
from aladin_service.keys_file import add_key, read_keys
from aladin_service.library.places import checked_folders, libraries_folder

_DESCRIPTION, _INDEX, _SERVED = "library.json", "index", "served"
_KEYS, _SECRET, _PAGE = "keys.json", "secret", "page"
_OWNER_ONLY = 0o700
# Time for which other processes may hold the lock to look who serves the library.
_LOOK_S = 0.2
SCHEMA_VERSION = 1
# Libraries that an error names.
_MOST_NAMED = 10


class LibraryInUseError(ConfigError):
    """Another process serves the library at `address`, or does not listen yet (None)."""

    def __init__(self, name: str, address: str | None) -> None:
        """Describe the library by its name."""
        self.address = address
        where = "and does not listen yet" if address is None else f"at {address}"
        super().__init__(f"{name}: another process serves this library {where}")


@dataclass(frozen=True, kw_only=True)
class LibraryPlace:
    """The folder of a library, which can be claimed and removed whatever its description says."""

    place: Path

    @property
    def name(self) -> str:
        """Name of the first folder, and a digest that tells libraries apart."""
        return self.place.name

    @contextmanager
    def claimed(self) -> Generator[Claim]:
        """Keep other processes from serving the library; the kernel ends this with the process.

        The folder of the library is created if it does not exist.
        """
        try:
            _make_private(self.place)
            file = (self.place / _SERVED).open("a+", encoding="utf-8")
        except OSError as error:
            raise _not_writable(self.place, error) from error
        with file:
            deadline_s = time.monotonic() + _LOOK_S
            while not self._try_lock(file):
                if time.monotonic() > deadline_s:
                    file.seek(0)
                    raise LibraryInUseError(self.name, file.read().strip() or None)
                time.sleep(_LOOK_S / 10)
            file.truncate(0)
            try:
                yield Claim(file.fileno())
            finally:
                file.truncate(0)

    def keys(self) -> tuple[Path, str]:
        """Return the file of the service's keys, and the key of the page; made if they are missing.

        The key stays the same, so that a page that is open works on after a restart.
        """
        file, secret_file = self.place / _KEYS, self.place / _SECRET
        try:
            secret = secret_file.read_text(encoding="utf-8").strip()
            if digest(secret) in {key.sha256 for key in read_keys(file)}:
                return file, secret
        except (OSError, ConfigError):
            pass
        file.unlink(missing_ok=True)
        secret = add_key(file, _PAGE, SCOPES)
        try:
            with atomic_file(secret_file) as partial:
                partial.touch(mode=0o600)
                partial.write_text(f"{secret}\n", encoding="utf-8")
        except OSError as error:
            raise _not_writable(self.place, error) from error
        return file, secret

    def served_at(self) -> str | None:
        """Return the address of the process that serves the library, or None if there is none."""
        try:
            with (self.place / _SERVED).open(encoding="utf-8") as file:
                try:
                    # A shared lock: several processes may look at once.
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except BlockingIOError:
                    return file.read().strip() or "starting"
        except OSError:  # not there; or its disk has no locks, where no library can be served
            pass
        return None

    def _try_lock(self, file: TextIO) -> bool:
        """Lock a file until it is closed; returns False if another process holds a lock."""
        try:
            lock_to_write(file.fileno(), self.place, wait=False)
        except BlockingIOError:
            return False
        except OSError as error:
            raise _not_writable(self.place, error) from error
        return True

    def remove(self) -> None:
        """Remove the folder, with the index unless that is elsewhere; photos are not touched."""
        with self.claimed():
            # Moved first: what a kill leaves is no library any more.
            doomed = self.place.with_name(f".{self.name}.{os.getpid()}.removed")
            self.place.rename(doomed)
            shutil.rmtree(doomed)


@dataclass(frozen=True, kw_only=True)
class FollowedFolders:
    """Folders of photos that an index follows.

    Attributes:
        index: Folder of the index.
        folders: Folders of photos, absolute paths, none inside another.
        exclude: Patterns of files and folders that are skipped, see `FolderRules`.
    """

    index: Path
    folders: tuple[Path, ...]
    exclude: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Library(LibraryPlace, FollowedFolders):
    """The index of some folders of photos by a model as the user named it, absolute if a folder."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    model: str

    @property
    def is_elsewhere(self) -> bool:
        """Whether the index is outside of the library's folder."""
        return self.index != self.place / _INDEX

    def save(self) -> None:
        """Write the description; an existing one is replaced."""
        description = {
            "schema_version": SCHEMA_VERSION,
            "folders": [str(folder) for folder in self.folders],
            "model": self.model,
            "index": str(self.index) if self.is_elsewhere else None,
            "exclude": list(self.exclude),
        }
        try:
            _make_private(self.place)
            write_json(self.place / _DESCRIPTION, description)
        except OSError as error:
            raise _not_writable(self.place, error) from error


class Claim:
    """The right to serve a library."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def announce(self, address: str) -> None:
        """Tell other processes the address of the page."""
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"{address}\n".encode(), 0)


def _make_private(place: Path) -> None:
    """Create the folder of a library, or take it from others: its items tell paths and places."""
    if not place.parent.exists():
        make_folder(place.parent.parent)
        place.parent.mkdir(mode=_OWNER_ONLY, exist_ok=True)
    make_folder(place)
    place.chmod(_OWNER_ONLY)


def _not_writable(place: Path, error: OSError) -> ConfigError:
    reason = f"{error.strerror}; ALADIN_LIBRARIES_DIR names another folder"
    return ConfigError(f"{place}: a library cannot be kept here ({reason})")


def library_of(
    folders: Sequence[Path], model: str, libraries: Path, index: Path | None = None
) -> Library:
    """Return the library of some folders and a model; it may not exist yet."""
    places = checked_folders(folders)
    base, *variant = [model] if Path(model).expanduser().is_dir() else model.split(":")
    if Path(base).expanduser().is_dir():
        model = ":".join([str(Path(base).expanduser().resolve()), *variant])
    wanted = None if index is None else index.expanduser().resolve()
    identity = json.dumps([[str(each) for each in places], model, wanted and str(wanted)])
    digest = hashlib.sha256(identity.encode("utf-8", "surrogateescape")).hexdigest()[:8]
    plain = re.sub(r"[^\w.-]+", "-", places[0].name).strip("-.") or "photos"
    more = f"-and-{len(places) - 1}-more" if len(places) > 1 else ""
    place = libraries / f"{plain}{more}-{digest}"
    return Library(place=place, folders=places, model=model, index=wanted or place / _INDEX)


def check_output(out: Path, libraries: Path, *, replace: bool) -> None:
    """Reject a folder for a new index that holds another one.

    Args:
        out: Folder of the index.
        libraries: Folder of all libraries.
        replace: Whether an index may be replaced that is there, other than that of a library,
            which follows its folders.

    Raises:
        ConfigError: If the folder holds an index that may not be replaced.
        IndexCorruptError: If the index there is damaged.
    """
    from aladin_index.generations.history import check_replaceable

    known, _ = all_libraries(libraries)
    for library in (*known, *all_libraries(out.absolute().parent.parent)[0]):
        if library.index.resolve() == out.resolve():
            folders = ", ".join(map(str, library.folders))
            raise ConfigError(
                f"{out}: this is the index of the library {library.name}, which follows "
                f"{folders}; choose another folder (`aladin photos --remove {library.name}` "
                "removes the library)"
            )
    check_replaceable(out, replace=replace)


def all_libraries(libraries: Path) -> tuple[list[Library], dict[LibraryPlace, ConfigError]]:
    """Return the libraries of a user by name, and why the others cannot be used."""
    found: list[Library] = []
    faults: dict[LibraryPlace, ConfigError] = {}
    for file in sorted(libraries.glob(f"[!.]*/{_DESCRIPTION}")):
        try:
            found.append(_read_library(file))
        except ConfigError as error:
            faults[LibraryPlace(place=file.parent)] = error
    return found, faults


def find_index(given: str | os.PathLike[str]) -> Path:
    """Return the index that a person means, wherever one is read; it takes milliseconds.

    Args:
        given: Folder of an index, name of a library, or a folder that only one library follows.

    Raises:
        IndexNotReadyError: If there is no such index, or nothing was published there yet; it names
            the libraries that there are.
        IndexCorruptError: If the index's first file is not what was written.
        IndexMismatchError: If the file that names a database has another schema version.
    """
    from aladin_index.format.layout import check_index

    index = Path(given).expanduser()
    try:
        check_index(index)
        return index
    except IndexNotReadyError as error:
        fault = error
    libraries, _ = all_libraries(libraries_folder())
    place = index.resolve()
    found = [
        each
        for each in libraries
        if each.name == str(given) or place == each.place or place in each.folders
    ]
    if len(found) == 1:
        check_index(found[0].index)
        return found[0].index
    several = "" if not found else "; several libraries follow this folder, give one's name"
    named = [f"{each.name} ({', '.join(map(str, each.folders))})" for each in found or libraries]
    more = f" and {len(named) - _MOST_NAMED} more" if len(named) > _MOST_NAMED else ""
    known = f"libraries are {', '.join(named[:_MOST_NAMED])}{more}" if named else "nor any library"
    raise IndexNotReadyError(f"{fault}{several}; {known}") from None


def _read_library(file: Path) -> Library:
    """Read a library's description."""
    try:
        data: Any = json.loads(file.read_text(encoding="utf-8"))
        version = data.pop("schema_version")
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise ConfigError(f"{file}: not the description of a library ({error})") from error
    if version != SCHEMA_VERSION:
        raise ConfigError(f"{file}: schema version {version}, expected {SCHEMA_VERSION}")
    place = {"place": str(file.parent), "index": data.get("index") or str(file.parent / _INDEX)}
    return parse_config(Library, data | place, str(file))
