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
# Of a field in `numbers`: the least and the greatest, in a list, and what rounding left of each.
_ENDS, _LEAST_REST, _GREATEST_REST = "ends", "least_rest", "greatest_rest"
# All integers up to here are floats, and a number rounded to less is not rounded at all.
_EXACT = 2.0**53


def filtered_payload(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a payload has for filters to look at."""
    fields = filter_fields(metadata)
    numbers = {
        key: {
            _ENDS: sorted({extent.least.rounded, extent.greatest.rounded}),
            _LEAST_REST: extent.least.rest,
            _GREATEST_REST: extent.greatest.rest,
        }
        for key, extent in fields.numbers.items()
    }
    return {VALUES: fields.values, NUMBERS: numbers}


def number_paths(payload: Mapping[str, Any]) -> list[str]:
    """Return the paths of the numbers in a payload that ranges are compared with."""
    return [f"{NUMBERS}.{key}.{_ENDS}" for key in payload[NUMBERS]]


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
    path = f"{NUMBERS}.{field_key(field)}"
    if abs(key.rounded) < _EXACT:
        return {"key": f"{path}.{_ENDS}", "range": {bound.comparison: key.rounded}}
    # Where the other end has the same value, or the one that counts lies beyond, the first
    # condition says so already: the rest is that of the end that is compared.
    beyond = bound.comparison.removesuffix("e")
    end_rest = _GREATEST_REST if beyond == "gt" else _LEAST_REST
    same = {"key": f"{path}.{_ENDS}", "range": {"gte": key.rounded, "lte": key.rounded}}
    rest = {"key": f"{path}.{end_rest}", "range": {bound.comparison: key.rest}}
    further = {"key": f"{path}.{_ENDS}", "range": {beyond: key.rounded}}
    return {"should": [further, {"must": [same, rest]}]}
