"""What an error's message says of a request, in bounded length whatever was sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

# Faults that are described one by one.
MAX_FAULTS = 10
_MAX_NAME_CHARS = 100
_MAX_MESSAGE_CHARS = 2000
# Messages name what was sent first and what is expected last: both ends are kept.
_MESSAGE_END_CHARS = 500


def describe_faults(faults: Sequence[Any]) -> str:
    """Say which fields are wrong and why, from the faults of a pydantic validation error.

    The first `MAX_FAULTS` are described, the others are counted.
    """
    described: list[str] = []
    for fault in faults[:MAX_FAULTS]:
        parts = (str(part) for part in fault["loc"] if part not in ("query", "path"))
        where = ".".join(_cut(part, _MAX_NAME_CHARS) for part in parts)
        what = str(fault["msg"]).removeprefix("Value error, ")
        if fault["type"] == "extra_forbidden":
            what = "unknown field"
        described.append(f"{where}: {what}" if where else what)
    if len(faults) > MAX_FAULTS:
        described.append(f"and {len(faults) - MAX_FAULTS} more")
    return "; ".join(described)


def cut_message(message: str) -> str:
    """Shorten a message that repeats a long value; its beginning and its end stay."""
    return _cut(message, _MAX_MESSAGE_CHARS, _MESSAGE_END_CHARS)


def _cut(text: str, most: int, end: int = 0) -> str:
    if len(text) <= most:
        return text
    return f"{text[: most - end - 1]}…{text[len(text) - end :]}"
