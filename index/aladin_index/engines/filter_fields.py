"""Metadata as stored in vector databases; filters mean the same as in an index of files.

The rules are those of `aladin_index.items.filters`: the values of a field are those of its list,
values of different kinds are never equal and never ordered, and each bound of a range may be
satisfied by another value. An engine therefore stores for each field

* its values as terms, strings that are equal if the values are: Equal matches one of several
  terms, Exists matches the field's own term, and an item without values has none of them;
* the minimum and the maximum of its numbers and of its texts: some value is above x if the maximum
  is, and some value is below y if the minimum is.

Engines evaluate Not, And and Or themselves. Field names are hashed: a name may be any text, and
engines read dots and brackets in a key as a path.
"""

from __future__ import annotations

import hashlib
import math
import struct
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from aladin_index.items.filters import Equal, Exists, Scalar, field_scalars
from aladin_network.errors import InputError, brief

# Vector databases limit the length of strings: the term of a longer text has its digest.
MAX_TERM_BYTES = 256
# Only the beginning of a longer text is ordered, which is enough for shorter bounds.
MAX_ORDERED_CHARS = 256


class NumberKey(NamedTuple):
    """A number in a form that any database compares exactly: by both parts in turn.

    Engines compare numbers as floats, which hold integers up to 2**53 only; times in
    nanoseconds are larger.

    Attributes:
        rounded: The nearest finite float.
        rest: Remainder of an integer after rounding, -512 to 512; sign of an infinity; otherwise 0.
    """

    rounded: float
    rest: int

    @property
    def text(self) -> str:
        """Text of 20 characters with the order of the numbers, for databases that compare text."""
        bits = int.from_bytes(struct.pack(">d", self.rounded))
        # The order of the bits is that of positive floats, and the reverse for negative ones.
        bits = bits ^ (2**64 - 1) if bits >> 63 else bits | 2**63
        return f"{bits:016x}{self.rest + 2**15:04x}"


class NumberExtent(NamedTuple):
    """Smallest and greatest number of a field."""

    least: NumberKey
    greatest: NumberKey


class TextExtent(NamedTuple):
    """First and last text of a field by code points, possibly truncated."""

    least: str
    greatest: str


@dataclass(frozen=True, kw_only=True)
class FilterFields:
    """Form of an item's metadata in a vector database.

    Attributes:
        values: Terms of all fields, each once.
        numbers: Extent of the numbers of each field, by its `field_key`.
        texts: Extent of the texts of each field, by its `field_key`.
    """

    values: list[str]
    numbers: dict[str, NumberExtent]
    texts: dict[str, TextExtent]


def filter_fields(metadata: Mapping[str, Any]) -> FilterFields:
    """Encode an item's metadata."""
    values: dict[str, None] = {}
    numbers: dict[str, NumberExtent] = {}
    texts: dict[str, TextExtent] = {}
    for field, value in metadata.items():
        scalars = list(field_scalars(value))
        if not scalars:
            continue
        key = field_key(field)
        values[_exists_term(field)] = None
        values.update((_term(field, each), None) for each in scalars)
        keys = [number_key(each.value) for each in scalars if each.kind == "number"]
        if keys:
            numbers[key] = NumberExtent(min(keys), max(keys))
        ordered = [str(each.value)[:MAX_ORDERED_CHARS] for each in scalars if each.kind == "text"]
        if ordered:
            texts[key] = TextExtent(min(ordered), max(ordered))
    return FilterFields(values=list(values), numbers=numbers, texts=texts)


def terms_of(test: Equal | Exists) -> list[str]:
    """Return the terms of which a passing item has at least one."""
    if isinstance(test, Exists):
        return [_exists_term(test.field)]
    return list(dict.fromkeys(_term(test.field, value) for value in test.values))


def field_key(field: str) -> str:
    """Return the name of a field in a vector database: a letter and 16 hexadecimal digits."""
    return "f" + hashlib.sha256(field.encode("utf-8")).hexdigest()[:16]


def number_key(value: float | str) -> NumberKey:
    """Return the form in which a number of an item, or of a bound, is compared.

    Args:
        value: Value of a `Scalar` of the kind "number": an integer of 64 bits, or a float that is
            not NaN.
    """
    if isinstance(value, int):
        rounded = float(value)
        return NumberKey(rounded, value - int(rounded))
    number = float(value)
    if math.isinf(number):
        # JSON has no infinity. Bounds are finite, so its key has to be beyond the last of them.
        return NumberKey(*((sys.float_info.max, 1) if number > 0 else (-sys.float_info.max, -1)))
    return NumberKey(number + 0.0, 0)  # -0.0 is 0


def text_bound(field: str, value: Scalar) -> str:
    """Return the text that a bound compares with.

    Raises:
        InputError: If the text is longer than the stored beginning of a text.
    """
    text = str(value.value)
    if len(text) >= MAX_ORDERED_CHARS:
        raise InputError(
            f"filter field {brief(field)}: expected a text of less than {MAX_ORDERED_CHARS} "
            f"characters to compare with, got {len(text)}; an engine orders texts by their "
            "beginnings"
        )
    return text


def _exists_term(field: str) -> str:
    return field_key(field) + ":"


def _term(field: str, value: Scalar) -> str:
    prefix = field_key(field)
    if value.kind == "text":
        encoded = str(value.value).encode("utf-8")
        if len(encoded) > MAX_TERM_BYTES:
            return f"{prefix}:sha256:{hashlib.sha256(encoded).hexdigest()}"
        return f"{prefix}:text:{value.value}"
    if value.kind == "bool":
        return f"{prefix}:bool:{value.value}"
    key = number_key(value.value)
    return f"{prefix}:number:{brief(key.rounded)}{key.rest:+d}"
