"""File names as ids: which of them cannot be one, and how such a name is printed."""

from __future__ import annotations

import re

CONTROL_CHARACTER = re.compile(r"[\x00-\x1f\x7f-\x9f]")
# What Python makes of a byte of a file name that is not UTF-8, and any other half of a pair.
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_FIRST_UNDECODED, _LAST_UNDECODED = 0xDC80, 0xDCFF


def name_fault(name: str) -> str | None:
    """Return why a file name cannot be the id of an item.

    Args:
        name: the name or path, as Python decodes it.

    Returns:
        The reason in words, or None if the name can be an id.
    """
    if _SURROGATE.search(name):
        return "the file name is not UTF-8; rename the file"
    if CONTROL_CHARACTER.search(name):
        return "the file name has a line break or another control character; rename the file"
    return None


def printable(name: str) -> str:
    """Escape control characters, and bytes that are not UTF-8, as in a Python literal."""
    return _SURROGATE.sub(_escaped, CONTROL_CHARACTER.sub(_escaped, name))


def _escaped(found: re.Match[str]) -> str:
    code = ord(found.group())
    if _FIRST_UNDECODED <= code <= _LAST_UNDECODED:
        return f"\\x{code - 0xDC00:02x}"
    return found.group().encode("unicode_escape").decode("ascii")
