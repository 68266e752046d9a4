"""Metadata as stored in Milvus; filters mean the same as in an index of files.

The rules are those of `aladin_index.items.filters`: the values of a field are those of its list,
values of different kinds are never equal and never ordered, and each bound of a range may be
satisfied by another value. An item therefore has for each field

* its values as terms, strings that are equal if the values are: Equal matches one of several
  terms, Exists matches the field's own term, and an item without values has none of them;
* the least and the greatest of its numbers and of its texts: some value is above x if the greatest
  is, and some value is below y if the least is. Numbers are texts of the same order, since Milvus
  compares numbers in JSON as floats.

Milvus evaluates Not, And and Or itself. Field names are hashed: a name may be any text, and Milvus
reads dots and brackets in a key as a path.
"""

from __future__ import annotations

import hashlib
import math
import struct
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

from aladin_index.items.filters import (
    And,
    Bound,
    Comparison,
    Equal,
    Exists,
    Filter,
    Not,
    Or,
    Range,
    Scalar,
    field_scalars,
)
from aladin_network.errors import InputError, brief

TERMS, EXTENTS = "terms", "extents"
_ESCAPES = {'"': '\\"', "\\": "\\\\"} | {chr(code): f"\\x{code:02x}" for code in (*range(32), 127)}

# The length of terms is limited: that of a longer text has its digest.
MAX_TERM_BYTES = 256
# Only the beginning of a longer text is ordered, which is enough for shorter bounds.
MAX_ORDERED_CHARS = 256

# One of a field's values satisfies a bound exactly if the greatest, or the least, does.
_COMPARISONS: dict[Comparison, tuple[str, str]] = {
    "gt": ("greatest", ">"),
    "gte": ("greatest", ">="),
    "lt": ("least", "<"),
    "lte": ("least", "<="),
}


class FilterFields(NamedTuple):
    """Form of an item's metadata in Milvus.

    Attributes:
        terms: Terms of all fields, each once.
        extents: Least and greatest numbers and texts of all fields, by the names of `limit_of`.
    """

    terms: list[str]
    extents: dict[str, str]


class Limit(NamedTuple):
    """A bound in Milvus: the extent `name` of an item compared with `text` by `sign`."""

    name: str
    sign: str
    text: str


def filter_fields(metadata: Mapping[str, Any]) -> FilterFields:
    """Encode an item's metadata."""
    terms: dict[str, None] = {}
    extents: dict[str, str] = {}
    for field, value in metadata.items():
        scalars = list(field_scalars(value))
        if scalars:
            terms[_exists_term(field)] = None
        ordered: dict[str, list[str]] = {"number": [], "text": []}
        for scalar in scalars:
            terms[_term(field, scalar)] = None
            if scalar.kind == "number":
                ordered["number"].append(number_text(scalar.value))
            elif scalar.kind == "text":
                ordered["text"].append(str(scalar.value)[:MAX_ORDERED_CHARS])
        for kind, texts in ordered.items():
            if texts:
                extents[_extent_name(field, kind, "least")] = min(texts)
                extents[_extent_name(field, kind, "greatest")] = max(texts)
    return FilterFields(list(terms), extents)


def terms_of(test: Equal | Exists) -> list[str]:
    """Return the terms of which a passing item has at least one."""
    if isinstance(test, Exists):
        return [_exists_term(test.field)]
    return list(dict.fromkeys(_term(test.field, value) for value in test.values))


def limit_of(field: str, bound: Bound) -> Limit:
    end, sign = _COMPARISONS[bound.comparison]
    name = _extent_name(field, bound.value.kind, end)
    if bound.value.kind == "number":
        return Limit(name, sign, number_text(bound.value.value))
    text = str(bound.value.value)
    if len(text) >= MAX_ORDERED_CHARS:
        raise InputError(
            f"filter field {brief(field)}: expected a text of less than {MAX_ORDERED_CHARS} "
            f"characters to compare with, got {len(text)}; an engine orders texts by their "
            "beginnings"
        )
    return Limit(name, sign, text)


def expression(filter: Filter) -> str:
    """Write a filter as an expression of Milvus."""
    if isinstance(filter, Not):
        return f"not ({expression(filter.part)})"
    if isinstance(filter, And):
        return " and ".join(f"({expression(part)})" for part in filter.parts)
    if isinstance(filter, Or):
        return " or ".join(f"({expression(part)})" for part in filter.parts)
    if isinstance(filter, Range):
        limits = [limit_of(filter.field, bound) for bound in filter.bounds]
        return " and ".join(
            f'({EXTENTS}["{limit.name}"] {limit.sign} {quoted(limit.text)})' for limit in limits
        )
    wanted = ", ".join(quoted(term) for term in terms_of(filter))
    return f"array_contains_any({TERMS}, [{wanted}])"


def quoted(text: str) -> str:
    """Write a text as a literal; characters that are not printable are escaped."""
    return '"' + "".join(_ESCAPES.get(letter, letter) for letter in text) + '"'


def field_key(field: str) -> str:
    """Return the name of a field in Milvus: a letter and 16 hexadecimal digits."""
    return "f" + hashlib.sha256(field.encode("utf-8")).hexdigest()[:16]


def number_text(value: float | str) -> str:
    """Return a text of 20 characters that has the order of the numbers.

    It is the nearest finite float and what an integer of 64 bits exceeds it by, -512 to 512: times
    in nanoseconds are beyond the 2**53 that floats hold exactly. An infinity is beyond the last
    finite number.
    """
    if isinstance(value, int):
        rounded = float(value)
        rest = value - int(rounded)
    elif math.isinf(number := float(value)):
        rounded, rest = math.copysign(sys.float_info.max, number), int(math.copysign(1, number))
    else:
        rounded, rest = number + 0.0, 0  # -0.0 is 0
    bits = int.from_bytes(struct.pack(">d", rounded))
    # The order of the bits is that of positive floats, and the reverse for negative ones.
    bits = bits ^ (2**64 - 1) if bits >> 63 else bits | 2**63
    return f"{bits:016x}{rest + 2**15:04x}"


def _extent_name(field: str, kind: str, end: str) -> str:
    return f"{field_key(field)}_{kind}_{end}"


def _exists_term(field: str) -> str:
    return field_key(field) + ":"


def _term(field: str, value: Scalar) -> str:
    prefix = field_key(field)
    if value.kind == "number":
        return f"{prefix}:number:{number_text(value.value)}"
    text = str(value.value)
    if len(text.encode("utf-8")) > MAX_TERM_BYTES:
        return f"{prefix}:sha256:{hashlib.sha256(text.encode('utf-8')).hexdigest()}"
    return f"{prefix}:{value.kind}:{text}"
