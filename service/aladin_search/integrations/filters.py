"""Filters of LangChain, LlamaIndex and Haystack in the filter language of this project.

None of the libraries is imported: their filters are read by the names of their fields. What the
tests mean is documented in `aladin_index.items.filters`. Two meanings differ from those of the
libraries: a field with a list passes where one of its values does, and values of different kinds
are never equal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, cast

from aladin_index.items.filters import parse_filter
from aladin_network.errors import InputError

Filter = dict[str, Any]

_LANGCHAIN = ("eq", "ne", "gt", "gte", "lt", "lte", "in", "nin")

_LLAMA_INDEX = {
    "==": "eq",
    "!=": "ne",
    ">": "gt",
    ">=": "gte",
    "<": "lt",
    "<=": "lte",
    "in": "in",
    "nin": "nin",
    # A metadata field that is a list, of which one value is equal.
    "contains": "eq",
    "any": "in",
}

_HAYSTACK = {
    "==": "eq",
    "!=": "ne",
    ">": "gt",
    ">=": "gte",
    "<": "lt",
    "<=": "lte",
    "in": "in",
    "not in": "nin",
}
# Fields of a Haystack document that are no metadata.
_DOCUMENT_FIELDS = {"id", "content", "blob", "meta", "score", "embedding", "sparse_embedding"}


def own_filter(given: Mapping[str, Any]) -> Filter:
    """Check a filter that is in the language of this project.

    Raises:
        InputError: If it is not.
    """
    parse_filter(given)
    return dict(given)


def langchain_filter(given: Any) -> Filter:
    """Translate a filter of LangChain.

    Args:
        given: A `FilterDirective` of `langchain_core.structured_query` (comparisons, and, or, not),
            a filter of this project, or None.

    Raises:
        InputError: If an operator is not supported (contain, like), or a value is not.
    """
    if given is None:
        return {}
    if isinstance(given, Mapping):
        return own_filter(cast(Mapping[str, Any], given))
    return own_filter(_langchain_part(given))


def llama_index_filter(given: Any) -> Filter:
    """Translate a filter of LlamaIndex.

    Args:
        given: `MetadataFilters`, a filter of this project, or None. No filters at all, joined by
            "and", let everything pass.

    Raises:
        InputError: If an operator is not supported (text_match, text_match_insensitive), or a value
            is not.
    """
    if given is None:
        return {}
    if isinstance(given, Mapping):
        return own_filter(cast(Mapping[str, Any], given))
    if hasattr(given, "filters") and not given.filters and _name(given.condition or "and") == "and":
        return {}
    return own_filter(_llama_index_part(given))


def haystack_filter(given: Mapping[str, Any] | None) -> Filter:
    """Translate a filter of Haystack.

    Args:
        given: Comparison or logical condition, or None or an empty one for everything. Fields are
            named ``meta.NAME`` or ``NAME``; ``== None`` passes where there is no value, and ``!=
            None`` where there is one.

    Raises:
        InputError: If it has another form, or an operator, a field or a value is not supported.
    """
    return own_filter(_haystack_part(given)) if given else {}


def _langchain_part(part: Any) -> Filter:
    if hasattr(part, "comparator"):
        comparator = _name(part.comparator)
        if comparator not in _LANGCHAIN:
            _unsupported(part.attribute, comparator, _LANGCHAIN)
        return _test(part.attribute, comparator, _langchain_value(part.value))
    if hasattr(part, "arguments"):
        return _joined(_name(part.operator), [_langchain_part(each) for each in part.arguments])
    raise InputError(
        f"filter: expected a Comparison, an Operation or a dictionary, got {type(part).__name__}"
    )


def _langchain_value(value: Any) -> Any:
    """Return dates, which the parser of structured queries makes objects of, as their text."""
    if isinstance(value, Mapping):
        fields = cast(Mapping[str, Any], value)
        kind = fields.get("type")
        if kind in ("date", "datetime") and isinstance(fields.get(kind), str):
            return fields[kind]
    return value


def _llama_index_part(part: Any) -> Filter:
    if hasattr(part, "filters"):
        parts = [_llama_index_part(each) for each in part.filters]
        condition = _name(part.condition or "and")
        # Passes where none of its parts does.
        return _not(_joined("or", parts)) if condition == "not" else _joined(condition, parts)
    if not hasattr(part, "operator"):
        raise InputError(f"filter: expected MetadataFilters, got {type(part).__name__}")
    operator = _name(part.operator)
    if operator == "is_empty":
        return _test(part.key, "exists", False)
    if operator == "all":
        if not isinstance(part.value, list) or not part.value:
            raise InputError(f"filter field {part.key!r}: all takes a list of values")
        values = cast(list[Any], part.value)
        return _joined("and", [_test(part.key, "eq", value) for value in values])
    if operator not in _LLAMA_INDEX:
        _unsupported(part.key, operator, (*_LLAMA_INDEX, "all", "is_empty"))
    return _test(part.key, _LLAMA_INDEX[operator], part.value)


def _haystack_part(part: Any) -> Filter:
    if not isinstance(part, Mapping):
        raise InputError(f"filter: expected a dictionary, got {type(part).__name__}")
    fields = cast(Mapping[str, Any], part)
    names = ("field", "operator", "value") if "field" in fields else ("operator", "conditions")
    if set(fields) != set(names):
        raise InputError(f"filter: expected the keys {', '.join(names)}, got {', '.join(fields)}")
    operator = fields["operator"]
    if "field" not in fields:
        if operator not in ("AND", "OR", "NOT"):
            raise InputError(f"filter: expected AND, OR or NOT, got {operator!r}")
        conditions = fields["conditions"]
        if not isinstance(conditions, list) or not conditions:
            raise InputError(f"filter {operator}: expected a list of at least one condition")
        parts = [_haystack_part(each) for each in cast(list[Any], conditions)]
        return _joined(operator.lower(), parts)
    field = str(fields["field"])
    name = field.removeprefix("meta.")
    if name == field and field in _DOCUMENT_FIELDS:
        raise InputError(f"filter field {field!r}: expected metadata, such as 'meta.year'")
    if operator not in _HAYSTACK:
        _unsupported(field, operator, tuple(_HAYSTACK))
    if fields["value"] is None and operator in ("==", "!="):
        return _test(name, "exists", operator == "!=")
    return _test(name, _HAYSTACK[operator], fields["value"])


# Operators are written with a dollar: a field may have the name of one.


def _test(field: str, operator: str, value: Any) -> Filter:
    return {field: {f"${operator}": value}}


def _joined(operator: str, parts: Sequence[Filter]) -> Filter:
    if operator == "not":
        return _not(_joined("and", parts))
    if operator not in ("and", "or"):
        raise InputError(f"filter: expected and, or or not, got {operator!r}")
    return parts[0] if len(parts) == 1 else {f"${operator}": list(parts)}


def _not(part: Filter) -> Filter:
    return {"$not": part}


def _unsupported(field: str, operator: str, known: Sequence[str]) -> NoReturn:
    raise InputError(
        f"filter field {field!r}: the operator {operator!r} is not supported; expected one of "
        f"{', '.join(known)}"
    )


def _name(operator: Any) -> str:
    """Return the name of an operator, which is a text or a member of an enumeration of texts."""
    return str(getattr(operator, "value", operator))
