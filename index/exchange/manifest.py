"""The manifest of a folder of encodings: what made them, and what its files have to be."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import ConfigDict

from aladin.atomic import write_json
from aladin.calibration.calibration import Calibration
from aladin.errors import ConfigError, DataError, IndexMismatchError
from aladin.strict_config import STRICT, dump_config, parse_config
from index.exchange.layout import MANIFEST
from index.manifest import FileEntry, describe_files
from index.settings import Target, TokenDtype

SCHEMA_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class ExchangeSide:
    """The images, or the texts, of a folder.

    Attributes:
        count: number of items.
        part_rows: items of each part.
        embedding_dim: size of an embedding.
        token_dim: size of a token.
        token_dtype: form of the tokens.
    """

    count: int
    part_rows: list[int]
    embedding_dim: int
    token_dim: int
    token_dtype: TokenDtype


@dataclass(frozen=True, kw_only=True)
class ExchangeManifest:
    """A folder's ``manifest.json``.

    Attributes:
        schema_version: of the folder's layout.
        model_id: sha256 of the weights that made the encodings.
        metric: of the embeddings.
        images: None if there are none.
        texts: None if there are none.
        calibration: of the scores of such encodings; None: there is none.
        files: every other file by its path below the folder.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    schema_version: int
    model_id: str
    metric: Literal["inner_product"]
    images: ExchangeSide | None
    texts: ExchangeSide | None
    calibration: Calibration | None = None
    files: dict[str, FileEntry]

    def side(self, target: Target) -> ExchangeSide | None:
        """Return what is said of one side."""
        return self.images if target == "images" else self.texts


def write_exchange_manifest(folder: Path, manifest: ExchangeManifest) -> None:
    """Write a folder's manifest."""
    write_json(folder / MANIFEST, dump_config(manifest))


def read_exchange_manifest(folder: Path) -> ExchangeManifest | None:
    """Read a folder's manifest; None where there is none, as in what clip-retrieval writes.

    Raises:
        IndexMismatchError: of another schema version.
        DataError: not a manifest.
    """
    path = folder / MANIFEST
    if not path.exists():
        return None
    try:
        data: Any = json.loads(path.read_text(encoding="utf-8"))
        version = data["schema_version"]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise DataError(path, None, f"not a manifest of encodings ({error!r})") from error
    if version != SCHEMA_VERSION:
        raise IndexMismatchError(f"{path}: schema version", SCHEMA_VERSION, version)
    try:
        return parse_config(ExchangeManifest, data, str(path))
    except ConfigError as error:
        raise DataError(path, None, str(error)) from error


def check_files(folder: Path, manifest: ExchangeManifest, files: dict[str, FileEntry]) -> None:
    """Compare the files of a folder with its manifest.

    Args:
        folder: of encodings.
        manifest: of it.
        files: as they were found.

    Raises:
        IndexMismatchError: a file is missing, is one too many, or is not what it was.
    """
    for name in sorted(manifest.files.keys() | files.keys()):
        expected, found = manifest.files.get(name), files.get(name)
        if expected != found:
            raise IndexMismatchError(f"{folder / name}: sha256", _digest(expected), _digest(found))


def describe_paths(folder: Path, paths: Iterable[Path]) -> dict[str, FileEntry]:
    """Measure and hash files below a folder."""
    return describe_files(folder, {path.relative_to(folder).as_posix() for path in paths})


def _digest(entry: FileEntry | None) -> str:
    return "no such file" if entry is None else entry.sha256
