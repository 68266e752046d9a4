"""JSON files with a schema version."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypeVar

from aladin_network.config import parse_config
from aladin_network.errors import ConfigError, IndexCorruptError, IndexMismatchError

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
