"""Location of an index that a vector database stores: ``INDEX/engine.json``.

The folder has the index's model in ``model/`` and uploaded photos in ``photos/``, as a folder of
files has; what is searched is in the engine. There are no secrets in the file: a token comes from
the environment.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

from pydantic import ConfigDict

from aladin_network.config import STRICT, dump_config, parse_config
from aladin_network.errors import ConfigError, IndexCorruptError, IndexMismatchError
from aladin_network.files import write_json
from aladin_network.types import ENGINE_KINDS, EngineKind

ENGINE_FILE = "engine.json"
SCHEMA_VERSION = 1

# Some of these are read by this process, from a folder.
_SCHEMES: dict[EngineKind, tuple[str, ...]] = {
    "milvus": ("http", "https"),
    "qdrant": ("http", "https", "file"),
    "qdrant-edge": ("file",),
}
# Names of collections that every vector database accepts, with room for suffixes.
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")


@dataclass(frozen=True, kw_only=True)
class EngineLocation:
    """An index in a vector database; None or empty means the default of the database.

    Attributes:
        schema_version: Schema version of this file.
        engine: Kind of the vector database.
        url: ``http://host:port`` or ``https://host:port``; ``file:///folder`` for Qdrant in this
            process. See `aladin_index.engines.connect` for how far it is trusted.
        name: Name of the index there: letters, digits and underscores. It is the prefix of all its
            collections.
        shards: Number of shards of each collection of a new generation.
        replicas: Number of replicas of each shard.
        index: the first stage that the engine builds: "hnsw", "ivf_flat" ...; each engine has
            its own.
        index_params: Parameters of building the vector index.
        search_params: Parameters of searching the vector index.
        consistency: Consistency of reads, by the name that the vector database uses.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    schema_version: int = SCHEMA_VERSION
    engine: EngineKind
    url: str
    name: str
    shards: int | None = None
    replicas: int | None = None
    index: str | None = None
    index_params: dict[str, int | float | str] = field(default_factory=dict[str, int | float | str])
    search_params: dict[str, int | float | str] = field(
        default_factory=dict[str, int | float | str]
    )
    consistency: str | None = None

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            ConfigError: If there is no such vector database, it does not accept the address or the
                name, or a number is below 1.
        """
        if self.engine not in ENGINE_KINDS:
            known = ", ".join(ENGINE_KINDS)
            raise ConfigError(f"engine: expected one of {known}, got {self.engine!r}")
        check_url(self.engine, self.url)
        if not _NAME.fullmatch(self.name):
            raise ConfigError(
                "name: expected at most 100 letters, digits and underscores that do not begin "
                f"with a digit, got {self.name!r}"
            )
        for name in ("shards", "replicas"):
            value: int | None = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name}: expected at least 1, got {value}")


def check_url(engine: EngineKind, url: str) -> None:
    """Reject an address that is invalid for a vector database.

    Raises:
        ConfigError: If the address has another form, or contains a password.
    """
    schemes = _SCHEMES[engine]
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018  # reading it is what checks it
    except ValueError as error:
        raise ConfigError(f"url: expected an address, got {url!r} ({error})") from None
    if parts.username is not None or parts.password is not None:
        # Not repeated: the message may end up in a log.
        raise ConfigError("url: expected no user or password in it; see ALADIN_ENGINE_TOKEN")
    in_folder = parts.scheme == "file"
    whole = parts.path.startswith("/") and not parts.netloc if in_folder else parts.hostname
    if parts.scheme not in schemes or not whole:
        forms = ["file:///folder" if each == "file" else f"{each}://host:port" for each in schemes]
        raise ConfigError(f"url of {engine}: expected {' or '.join(forms)}, got {url!r}")


def is_folder(url: str) -> bool:
    """Return whether an address is a folder that this process reads."""
    return urlsplit(url).scheme == "file"


def location_of(path: Path) -> EngineLocation | None:
    """Return the location of a folder's index, or None if it is in the folder's own files.

    Raises:
        IndexMismatchError: the file is of another schema version.
        IndexCorruptError: If the file was not written by `write_location`.
    """
    file = path / ENGINE_FILE
    try:
        data: Any = json.loads(file.read_bytes())
        version = data["schema_version"]
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise IndexCorruptError(file, f"cannot be read ({error.strerror})") from error
    except (ValueError, TypeError, KeyError) as error:
        raise IndexCorruptError(file, "does not say where the index is") from error
    if version != SCHEMA_VERSION:
        raise IndexMismatchError(f"{file}: schema version", SCHEMA_VERSION, version)
    try:
        return parse_config(EngineLocation, data, ENGINE_FILE)
    except ConfigError as error:
        raise IndexCorruptError(file, str(error)) from error


def write_location(path: Path, location: EngineLocation) -> None:
    """Write ``engine.json`` into a folder, atomically."""
    write_json(path / ENGINE_FILE, dump_config(location))
