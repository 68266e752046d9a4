"""Layout of an index folder, and location of an index that a vector database stores.

INDEX/
  CURRENT               names the live generation; replaced atomically
  .publishing           names the generation that is about to become live; removed afterwards
  model/                the checkpoint that the index was built with
  models/0123456789ab/  the checkpoint of an upgrade, named by the sha256 of its weights
  generations/000001/   a published generation; never changed again
  .build/               the intermediate files of an unfinished build; removed afterwards
  .catalogue.partial/   the items that a build was given; each build writes it anew
  .generation.partial/  a generation that is being written; useless once its writer has ended
  changes/000001/       items added to a generation and removed from it since it was built
  .upgrade/             what an unfinished upgrade has encoded by another model; removed afterwards
  photos/               photos that were uploaded, named by the sha256 of their bytes
  .lock                 held by the process that builds
  .changes.lock         held by the process that adds, removes or makes a generation live

The folder of an index in a vector database has ``engine.json`` in the place of generations and
changes: the location of the index. ``model/``, ``models/`` and ``photos/`` are as in a folder of
files; what is searched is in the engine. The file has no secrets: a token comes from the
environment.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, TypeVar
from urllib.parse import urlsplit

from pydantic import ConfigDict

from aladin_network.config import STRICT, dump_config, parse_config
from aladin_network.errors import (
    ConfigError,
    IndexCorruptError,
    IndexMismatchError,
    IndexNotReadyError,
    InputError,
)
from aladin_network.files import atomic_file, write_json

T = TypeVar("T")


def parse_versioned(schema: type[T], content: bytes, path: Path, version: int, otherwise: str) -> T:
    """Build the strict dataclass `schema` from the content of a file.

    Raises `IndexMismatchError` for another version, and `IndexCorruptError`, with the reason
    `otherwise` if there is no version, for anything else.
    """
    try:
        data: Any = json.loads(content)
        found = data["schema_version"]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise IndexCorruptError(path, otherwise) from error
    if found != version:
        raise IndexMismatchError(f"{path}: schema version", version, found)
    try:
        return parse_config(schema, data, path.name)
    except ConfigError as error:
        raise IndexCorruptError(path, str(error)) from error


ENGINE_FILE = "engine.json"
SCHEMA_VERSION = 1

# Names of collections that Milvus accepts, with room for suffixes.
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")

PUBLISHING = ".publishing"


SKIPPED = "skipped.json"


@dataclass(frozen=True, kw_only=True)
class EngineLocation:
    """An index in Milvus; None or empty means the default of `aladin_index.engines`.

    Attributes:
        schema_version: Schema version of this file.
        url: ``http://host:port`` or ``https://host:port``. See `aladin_index.open` for how far it
            is trusted.
        name: Name of the index there: letters, digits and underscores. It is the prefix of all its
            collections.
        shards: Number of shards of each collection of a new generation.
        replicas: Number of replicas of each shard.
        index: First stage that Milvus builds: "hnsw", "ivf_flat" ..., see
            `aladin_index.engines.collections`.
        index_params: Parameters of building the vector index.
        search_params: Parameters of searching the vector index.
        consistency: Consistency of reads, see `aladin_index.engines.connection`.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    schema_version: int = SCHEMA_VERSION
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
        check_url(self.url)
        if not _NAME.fullmatch(self.name):
            raise ConfigError(
                "name: expected at most 100 letters, digits and underscores that do not begin "
                f"with a digit, got {self.name!r}"
            )
        for name in ("shards", "replicas"):
            value: int | None = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name}: expected at least 1, got {value}")


def check_url(url: str) -> None:
    """Reject an address that is invalid for Milvus."""
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018  # reading it is what checks it
    except ValueError as error:
        raise ConfigError(f"url: expected an address, got {url!r} ({error})") from None
    if parts.username is not None or parts.password is not None:
        # Not repeated: the message may end up in a log.
        raise ConfigError("url: expected no user or password in it; see ALADIN_ENGINE_TOKEN")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"url: expected http://host:port or https://host:port, got {url!r}")


def location_of(path: Path) -> EngineLocation | None:
    """Return the location of a folder's index, or None if it is in the folder's own files.

    Raises:
        IndexMismatchError: If the file has another schema version.
        IndexCorruptError: If the file was not written by `write_location`.
    """
    file = path / ENGINE_FILE
    try:
        content = file.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise IndexCorruptError(file, f"cannot be read ({error.strerror})") from error
    otherwise = "does not give the location of the index"
    return parse_versioned(EngineLocation, content, file, SCHEMA_VERSION, otherwise)


def write_location(path: Path, location: EngineLocation) -> None:
    """Write ``engine.json`` into a folder, atomically."""
    write_json(path / ENGINE_FILE, dump_config(location))


CURRENT, MODEL, GENERATIONS, BUILD, LOCK = "CURRENT", "model", "generations", ".build", ".lock"
NEW_CATALOGUE, NEW_GENERATION = ".catalogue.partial", ".generation.partial"
CHANGES, PHOTOS, CHANGES_LOCK = "changes", "photos", ".changes.lock"
MODELS, UPGRADE = "models", ".upgrade"
# Files of the images or the texts of a generation; those of the tokens: `tokens.store`.
ANN, EMBEDDINGS, ITEMS = "ann.faiss", "embeddings.npy", "items.sqlite"


def generation_folder(root: Path, generation: int) -> Path:
    return root / GENERATIONS / f"{generation:06d}"


def published_generations(root: Path) -> list[int]:
    """List the generations of an index, oldest first."""
    folder = root / GENERATIONS
    if not folder.is_dir():
        return []
    names = (entry.name for entry in folder.iterdir() if entry.is_dir())
    return sorted(int(name) for name in names if re.fullmatch(r"\d{6,}", name))


def check_kept_in_files(root: Path) -> None:
    """Reject operations of indexes of files if a vector database stores the index."""
    if (root / ENGINE_FILE).exists():
        raise InputError(
            f"{root}: expected an index of files, got one that a vector database stores "
            f"({ENGINE_FILE}); run this on the index that was pushed, and push it again"
        )


def live_generation(root: Path) -> int:
    """Return the number of the live generation of an index of files.

    Raises:
        InputError: If the index is kept in a vector database.
        IndexNotReadyError: If there is no index, or nothing was published yet.
        IndexCorruptError: If CURRENT names no generation of this index.
    """
    path = root / CURRENT
    try:
        name = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        check_kept_in_files(root)
        reason = f"no index here, it has no {CURRENT}"
        if (root / BUILD).is_dir():
            reason += (
                "; an interrupted build is here, which `aladin index build --resume` continues"
            )
        raise IndexNotReadyError(f"{root}: {reason}") from None
    except (OSError, ValueError) as error:
        raise IndexCorruptError(path, f"cannot be read ({error})") from error
    if not re.fullmatch(r"\d{6,}\n", name):
        raise IndexCorruptError(path, f"expected the number of a generation, got {name!r}")
    generation = int(name)
    if not generation_folder(root, generation).is_dir():
        raise IndexCorruptError(path, f"names generation {generation}, which does not exist")
    return generation


def check_index(root: Path) -> None:
    """Check that a folder is an index, in its own files or in a vector database.

    It takes milliseconds: no network is loaded and no database asked.

    Raises:
        IndexNotReadyError: If there is no index, or nothing was published yet.
        IndexCorruptError: If the index's first file is not what was written.
        IndexMismatchError: If the file that names the database has another schema version.
    """
    if location_of(root) is None:
        live_generation(root)


def set_live_generation(root: Path, generation: int) -> None:
    """Make a published generation the live one, atomically."""
    with atomic_file(root / CURRENT) as partial:
        partial.write_text(f"{generation:06d}\n", encoding="utf-8")
