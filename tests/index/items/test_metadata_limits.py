from __future__ import annotations

import json
from typing import Any

import pytest

from aladin_index.settings import MetadataLimits, check_metadata
from aladin_network.errors import InputError
from aladin_network.types import MAX_STORED_BYTES

LIMITS = MetadataLimits(max_bytes=200, max_fields=10, max_depth=3)


def of_bytes(count: int) -> dict[str, Any]:
    """Metadata that is so long as JSON in UTF-8."""
    metadata = {"a": "é" * 10}
    metadata["b"] = "x" * (count - len(json.dumps({**metadata, "b": ""}, ensure_ascii=False)) - 10)
    return metadata


DEFAULT = MetadataLimits()


@pytest.mark.parametrize(
    ("metadata", "limits", "message"),
    [
        ({}, LIMITS, None),
        (of_bytes(200), LIMITS, None),
        (of_bytes(201), LIMITS, "expected at most 200 bytes of JSON, got 201"),
        ({f"f{number}": number for number in range(10)}, LIMITS, None),
        ({f"f{number}": 0 for number in range(11)}, LIMITS, "at most 10 fields, got 11"),
        ({"a": {"b": [1, "c", None]}, "d": [[], {}]}, LIMITS, None),
        ({"a": [[{}]]}, LIMITS, "expected at most 3 levels of objects and lists"),
        ({"a": {"b": {"c": []}}}, LIMITS, "expected at most 3 levels"),
        ({"a": ([()],)}, LIMITS, "expected at most 3 levels"),
        (of_bytes(MAX_STORED_BYTES), DEFAULT, None),
        ({f"f{number}": [1] for number in range(1000)}, DEFAULT, None),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_metadata_may_be_as_large_as_the_limits(
    metadata: dict[str, Any], limits: MetadataLimits, message: str | None
) -> None:
    if message is None:
        check_metadata(metadata, limits)
        return
    with pytest.raises(InputError, match=message):
        check_metadata(metadata, limits)


def test_depth_is_found_before_it_is_written_as_json() -> None:
    deep: list[Any] = []
    for _ in range(100_000):  # no encoder follows so far
        deep = [deep]
    with pytest.raises(InputError, match="expected at most 32 levels"):
        check_metadata({"a": deep}, DEFAULT)
    while deep:  # taken apart from outside, as the interpreter would do it by recursion
        deep = deep.pop()
