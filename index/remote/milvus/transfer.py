"""How much goes into one message to Milvus."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

# The server takes messages of 64 MiB, and Pulsar, which may keep its log, 5 MB. Items are taken in
# as fast in batches of 1 MiB as in larger ones.
_BATCH_BYTES = 4 * 2**20
_BATCH_ROWS = 2000
# Keys in one condition: 35 letters each.
_KEYS_AT_A_TIME = 1000


def batches(rows: Sequence[Mapping[str, Any]]) -> Iterator[list[Mapping[str, Any]]]:
    """Yield rows in batches that one message takes; their order stays."""
    batch: list[Mapping[str, Any]] = []
    size = 0
    for row in rows:
        row_bytes = sum(_size(value) for value in row.values())
        if batch and (size + row_bytes > _BATCH_BYTES or len(batch) == _BATCH_ROWS):
            yield batch
            batch, size = [], 0
        batch.append(row)
        size += row_bytes
    if batch:
        yield batch


def parts_of(keys: Sequence[str], most: int = _KEYS_AT_A_TIME) -> Iterator[Sequence[str]]:
    """Yield keys in as many as one condition takes, and one answer: `most`."""
    most = min(most, _KEYS_AT_A_TIME)
    for start in range(0, len(keys), most):
        yield keys[start : start + most]


def _size(value: Any) -> int:
    """Return about how many bytes a value takes in a message; a number takes four."""
    if isinstance(value, (list, tuple)):
        return sum(_size(each) if isinstance(each, str) else 4 for each in value)
    if isinstance(value, dict):
        return sum(_size(name) + _size(each) for name, each in value.items())
    return len(value.encode("utf-8"))
