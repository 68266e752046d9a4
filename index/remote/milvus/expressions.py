"""Filters in the language of Milvus, over what `index.remote.milvus.rows` keeps of metadata."""

from __future__ import annotations

from index.items.filter_tree import And, Bound, Comparison, Equal, Exists, Filter, Not, Or, Range
from index.remote.filter_fields import field_key, number_key, terms_of, text_bound

TERMS, EXTENTS = "terms", "extents"

# A bound is passed by one of a field's values where it is passed by the greatest, or the least.
_COMPARISONS: dict[Comparison, tuple[str, str]] = {
    "gt": ("greatest", ">"),
    "gte": ("greatest", ">="),
    "lt": ("least", "<"),
    "lte": ("least", "<="),
}
_ESCAPES = {'"': '\\"', "\\": "\\\\"} | {chr(code): f"\\x{code:02x}" for code in (*range(32), 127)}


def extent_name(field: str, kind: str, end: str) -> str:
    """Return the key of `EXTENTS` under which an end of a field's values is kept.

    Args:
        field: its `field_key`.
        kind: "number" or "text".
        end: "least" or "greatest".
    """
    return f"{field}_{kind}_{end}"


def expression(filter: Filter) -> str:
    """Write a filter as Milvus reads it.

    Raises:
        InputError: a range compares with a text that is longer than what is kept of texts.
    """
    if isinstance(filter, Not):
        return f"not ({expression(filter.part)})"
    if isinstance(filter, And):
        return " and ".join(f"({expression(part)})" for part in filter.parts)
    if isinstance(filter, Or):
        return " or ".join(f"({expression(part)})" for part in filter.parts)
    if isinstance(filter, Range):
        return " and ".join(f"({_bound(filter.field, bound)})" for bound in filter.bounds)
    return _terms(filter)


def quoted(text: str) -> str:
    """Write a text as a literal; what is not printable is written by its code."""
    return '"' + "".join(_ESCAPES.get(letter, letter) for letter in text) + '"'


def _terms(test: Equal | Exists) -> str:
    wanted = ", ".join(quoted(term) for term in terms_of(test))
    return f"array_contains_any({TERMS}, [{wanted}])"


def _bound(field: str, bound: Bound) -> str:
    end, sign = _COMPARISONS[bound.comparison]
    kind = bound.value.kind
    # Numbers are kept as texts of the same order: Milvus compares numbers in JSON as floats.
    if kind == "number":
        limit = number_key(bound.value.value).text
    else:
        limit = text_bound(field, bound.value)
    name = extent_name(field_key(field), kind, end)
    return f'{EXTENTS}["{name}"] {sign} {quoted(limit)}'
