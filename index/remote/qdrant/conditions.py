"""A filter in Qdrant's language, as its REST interface takes it.

What is compared is in the payload beside an item's own fields, see `index.remote.filter_fields`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aladin.errors import InputError
from index.items.filter_tree import And, Bound, Equal, Exists, Filter, Not, Or, Range
from index.remote.filter_fields import field_key, filter_fields, number_key, terms_of

VALUES, NUMBERS = "values", "numbers"
# All integers up to here are floats, and a number rounded to less is not rounded at all.
_EXACT = 2.0**53


def filtered_payload(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a payload has for filters to look at."""
    fields = filter_fields(metadata)
    numbers = {
        key: {
            "least": extent.least.rounded,
            "least_rest": extent.least.rest,
            "greatest": extent.greatest.rounded,
            "greatest_rest": extent.greatest.rest,
        }
        for key, extent in fields.numbers.items()
    }
    return {VALUES: fields.values, NUMBERS: numbers}


def number_paths(payload: Mapping[str, Any]) -> list[str]:
    """Return the paths of the numbers in a payload that ranges are compared with."""
    return [f"{NUMBERS}.{key}.{end}" for key in payload[NUMBERS] for end in ("least", "greatest")]


def conditions(filter: Filter) -> dict[str, Any]:
    """Translate a filter.

    Raises:
        InputError: it orders texts, which Qdrant cannot do.
    """
    if isinstance(filter, And):
        return {"must": [conditions(part) for part in filter.parts]}
    if isinstance(filter, Or):
        return {"should": [conditions(part) for part in filter.parts]}
    if isinstance(filter, Not):
        return {"must_not": [conditions(filter.part)]}
    if isinstance(filter, Range):
        return {"must": [_within(filter.field, bound) for bound in filter.bounds]}
    return {"must": [_one_of(filter)]}


def _one_of(test: Equal | Exists) -> dict[str, Any]:
    return {"key": VALUES, "match": {"any": terms_of(test)}}


def _within(field: str, bound: Bound) -> dict[str, Any]:
    if bound.value.kind != "number":
        raise InputError(
            f"filter field {field!r}: {bound.comparison} takes a number in an index that Qdrant "
            f"keeps, got text"
        )
    key = number_key(bound.value.value)
    beyond = bound.comparison.removesuffix("e")
    end = f"{NUMBERS}.{field_key(field)}." + ("greatest" if beyond == "gt" else "least")
    if abs(key.rounded) < _EXACT:
        return {"key": end, "range": {bound.comparison: key.rounded}}
    same = {"key": end, "range": {"gte": key.rounded, "lte": key.rounded}}
    rest = {"key": f"{end}_rest", "range": {bound.comparison: key.rest}}
    return {"should": [{"key": end, "range": {beyond: key.rounded}}, {"must": [same, rest]}]}
