"""How large the metadata of an item may be."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from aladin.errors import InputError

MAX_METADATA_BYTES = 64 * 2**10
# Distinct names of metadata fields that the items of one side may have if all get an index.
MAX_FILTER_FIELDS = 100_000


@dataclass(frozen=True, kw_only=True)
class MetadataLimits:
    """Limits of the metadata of one item that is new to an index.

    Attributes:
        max_bytes: length as JSON in UTF-8.
        max_fields: number of fields.
        max_depth: levels of objects and lists, the metadata itself included.
    """

    max_bytes: int = MAX_METADATA_BYTES
    max_fields: int = 1000
    max_depth: int = 32


DEFAULT_METADATA_LIMITS = MetadataLimits()


def check_metadata(metadata: Mapping[str, Any], limits: MetadataLimits) -> None:
    """Refuse metadata over a limit.

    Args:
        metadata: by field name.
        limits: to be kept.

    Raises:
        InputError: it has too many fields, is too deep, or is too long.
        TypeError: a value cannot be written as JSON.
        ValueError: a number is not finite, or a text is not valid Unicode.
    """
    if len(metadata) > limits.max_fields:
        raise InputError(
            f"metadata: expected at most {limits.max_fields} fields, got {len(metadata)}"
        )
    _check_depth(metadata, limits.max_depth)
    text = json.dumps(dict(metadata), ensure_ascii=False, allow_nan=False)
    num_bytes = len(text.encode("utf-8"))
    if num_bytes > limits.max_bytes:
        raise InputError(
            f"metadata: expected at most {limits.max_bytes} bytes of JSON, got {num_bytes}"
        )


def _check_depth(metadata: Mapping[str, Any], most: int) -> None:
    level: list[object] = [metadata]
    for _ in range(most):
        level = [value for each in level for value in _inside(each) if _is_container(value)]
        if not level:
            return
    raise InputError(f"metadata: expected at most {most} levels of objects and lists")


def _inside(container: object) -> list[object]:
    if isinstance(container, Mapping):
        return list(cast(Mapping[str, object], container).values())
    return list(cast(list[object], container))


def _is_container(value: object) -> bool:
    return isinstance(value, (Mapping, list, tuple))
