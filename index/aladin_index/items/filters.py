"""Metadata filters: their language, and the tree of tests that a filter is parsed into.

A filter is a mapping. Each of its entries is a test, and an item has to pass all of them:

    {"city": "Pisa"}                            equal
    {"year": [2019, 2020]}                      equal to one of them
    {"year": {"gte": 2019, "lt": 2021}}         eq, ne, in, nin, gt, gte, lt, lte, exists
    {"or": [{"city": "Pisa"}, {"year": 2020}]}  and, or: lists of filters; not: one filter

What the tests mean:

* The values of a field are its text, number or bool, or those in it where it is a list. An item
  without the field, or with null, an object or an empty list there, has no value.
* eq, in and the ranges pass where one of the values does. Two comparisons of one field may be
  passed by two values of it: ``{"gte": 3, "lt": 5}`` lets ``[1, 9]`` through.
* ne and nin are the opposites of eq and in, so they also pass where there is no value.
  ``{"exists": true}`` passes where there is a value, ``{"exists": false}`` where there is none.
* Values of different kinds are never equal and never ordered: ``true`` is not 1, "1" is not 1.
  Text is ordered by its code points.

Operators may be written with a dollar, as in ``$and`` and ``$gte``. A field may be called "and" or
"or", since the value of a field is never a list of filters. A field named "not" is different:
``{"not": {"gte": 3}}`` is ambiguous and refused. Write ``{"$not": {...}}`` for the operator and
``{"not": {"$gte": 3}}`` for the field.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeVar, cast

from aladin_network.errors import InputError, brief

Kind = Literal["bool", "number", "text"]
Comparison = Literal["gt", "gte", "lt", "lte"]

# Codes of the kinds in databases: small integers take no extra space in a row.
KIND_CODES: dict[Kind, int] = {"number": 0, "text": 1, "bool": 2}

_COMPARISONS = ("eq", "ne", "in", "nin", "gt", "gte", "lt", "lte", "exists")


class Scalar(NamedTuple):
    """A metadata value in the form in which it is stored and compared.

    Attributes:
        kind: Kind of the value; values of different kinds are never equal and never ordered.
        value: Value of the scalar; a bool is stored as 0 or 1.
    """

    kind: Kind
    value: int | float | str


class Bound(NamedTuple):
    """One end of a range.

    Attributes:
        value: Value that it is compared with; a number or a text.
    """

    comparison: Comparison
    value: Scalar


@dataclass(frozen=True)
class Equal:
    """Matches an item with one of the values in a field."""

    field: str
    values: tuple[Scalar, ...]


@dataclass(frozen=True)
class Range:
    """Matches an item with, for each bound, a value in a field that is within it."""

    field: str
    bounds: tuple[Bound, ...]


@dataclass(frozen=True)
class Exists:
    """Matches an item with any value in a field."""

    field: str


@dataclass(frozen=True)
class Not:
    """Matches items that `part` does not match."""

    part: Filter


@dataclass(frozen=True)
class And:
    """Matches items that all parts match."""

    parts: tuple[Filter, ...]


@dataclass(frozen=True)
class Or:
    """Matches items that at least one part matches."""

    parts: tuple[Filter, ...]


# Filters with the same content in the same order are equal, so they can be keys of a cache.
Test = Equal | Range | Exists
Filter = Test | Not | And | Or


def leaves(filter: Filter) -> Iterator[Test]:
    """Yield the tests at the leaves of the tree, from left to right."""
    if isinstance(filter, Not):
        yield from leaves(filter.part)
    elif isinstance(filter, (And, Or)):
        for part in filter.parts:
            yield from leaves(part)
    else:
        yield filter


def without_field(filter: Filter | None, field: str) -> Filter | None:
    """Return a filter without its conditions on one field; None if no other is left.

    One that is tied to those on other fields by "or" or "not" is kept.
    """
    if filter is None or {test.field for test in leaves(filter)} == {field}:
        return None
    if not isinstance(filter, And):
        return filter
    parts = [without_field(part, field) for part in filter.parts]
    kept = tuple(part for part in parts if part is not None)
    return kept[0] if len(kept) == 1 else And(kept)


def scalar(value: object) -> Scalar | None:
    """Convert a metadata value to its stored form, or None if filters cannot use it."""
    if isinstance(value, bool):
        return Scalar("bool", int(value))
    if isinstance(value, int):
        # The database's integers have 64 bits; a larger number is compared as a float.
        return Scalar("number", value if -(2**63) <= value < 2**63 else _as_float(value))
    if isinstance(value, float) and not math.isnan(value):
        return Scalar("number", value)
    if isinstance(value, str):
        return Scalar("text", value)
    return None


def field_scalars(value: object) -> Iterator[Scalar]:
    """Yield the values of a field that filters compare: its value, or the values in its list."""
    for each in cast(list[object], value) if isinstance(value, list) else [value]:
        stored = scalar(each)
        if stored is not None:
            yield stored


def _as_float(value: int) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


# Limits that bound the time and memory of a request: a level of the tree is a level of the stack, a
# test is one look-up, a value one probe in it.
MAX_DEPTH, MAX_TESTS, MAX_VALUES = 16, 100, 1000


TestType = TypeVar("TestType", Equal, Range, Exists)


def parse_filter(spec: Mapping[str, Any]) -> Filter | None:
    """Parse the filter of a request.

    Args:
        spec: Filter in the language of this module.

    Returns:
        The filter; None where `spec` is empty, which every item passes.

    Raises:
        InputError: If the filter has another form or is too large; the message names the field.
    """
    return _Parser().filter("filter", spec, 1) if spec else None


class _Parser:
    """Parses one filter and counts its elements."""

    def __init__(self) -> None:
        self._tests = 0
        self._values = 0

    def filter(self, name: str, spec: object, depth: int) -> Filter:
        if not isinstance(spec, Mapping):
            raise InputError(f"{name}: expected an object of tests, got {_kind(spec)}")
        if not spec:
            raise InputError(f"{name}: expected at least one test, got {{}}")
        if depth > MAX_DEPTH:
            raise InputError(f"{name}: expected at most {MAX_DEPTH} levels of filters")
        entries = cast(Mapping[str, Any], spec).items()
        parts = [part for key, wanted in entries for part in self._entry(key, wanted, depth)]
        return parts[0] if len(parts) == 1 else And(tuple(parts))

    def _entry(self, name: str, wanted: object, depth: int) -> Iterator[Filter]:
        operator = _operator(name, wanted)
        if operator == "not":
            yield Not(self.filter(f"filter {brief(name)}", wanted, depth + 1))
        elif operator is not None:
            if not isinstance(wanted, (list, tuple)) or not wanted:
                raise InputError(f"filter {brief(name)}: expected a list of at least one filter")
            parts = tuple(
                self.filter(f"filter {brief(name)}", part, depth + 1)
                for part in cast(list[Any], wanted)
            )
            yield And(parts) if operator == "and" else Or(parts)
        else:
            _check_text(name, "a field's name")
            yield from self._field(name, wanted)

    def _field(self, field: str, wanted: object) -> Iterator[Filter]:
        if not isinstance(wanted, Mapping):
            values = cast(list[Any], wanted) if isinstance(wanted, (list, tuple)) else [wanted]
            yield self._equal(field, values)
            return
        if not wanted:
            raise InputError(f"filter field {brief(field)}: expected a comparison, got {{}}")
        bounds: list[Bound] = []
        for written, value in cast(Mapping[str, Any], wanted).items():
            operator = written.removeprefix("$")
            if operator in ("gt", "gte", "lt", "lte"):
                bounds.append(Bound(operator, self._bound(field, operator, value)))
            else:
                yield self._comparison(field, written, operator, value)
        if bounds:
            yield self._counted(Range(field, tuple(bounds)))

    def _comparison(self, field: str, written: str, operator: str, value: object) -> Filter:
        if operator in ("eq", "ne"):
            found = self._equal(field, [value])
            return found if operator == "eq" else Not(found)
        if operator in ("in", "nin"):
            if not isinstance(value, (list, tuple)):
                raise InputError(f"filter field {brief(field)}: {operator} takes a list of values")
            found = self._equal(field, cast(list[Any], value))
            return found if operator == "in" else Not(found)
        if operator == "exists":
            if not isinstance(value, bool):
                raise InputError(f"filter field {brief(field)}: exists takes true or false")
            exists = self._counted(Exists(field))
            return exists if value else Not(exists)
        known = ", ".join(_COMPARISONS)
        raise InputError(
            f"filter field {brief(field)}: expected one of {known}, got {brief(written)}"
        )

    def _equal(self, field: str, values: Sequence[Any]) -> Equal:
        if not values:
            raise InputError(f"filter field {brief(field)}: expected at least one value, got []")
        self._values += len(values)
        if self._values > MAX_VALUES:
            raise InputError(
                f"filter field {brief(field)}: expected at most {MAX_VALUES} values in all"
            )
        return self._counted(Equal(field, tuple(_operand(field, value) for value in values)))

    def _bound(self, field: str, operator: str, value: object) -> Scalar:
        operand = _operand(field, value)
        if operand.kind == "bool":
            raise InputError(f"filter field {brief(field)}: {operator} takes a number or a text")
        return operand

    def _counted(self, test: TestType) -> TestType:
        self._tests += 1
        if self._tests > MAX_TESTS:
            raise InputError(
                f"filter field {brief(test.field)}: expected at most {MAX_TESTS} tests in all"
            )
        return test


def _operator(name: str, wanted: object) -> Literal["and", "or", "not"] | None:
    """Distinguish an operator from a field of the same name."""
    bare = name.removeprefix("$")
    if bare not in ("and", "or", "not"):
        return None
    if bare != name:
        return bare
    if bare != "not":
        parts: list[Any] = cast(list[Any], wanted) if isinstance(wanted, (list, tuple)) else []
        return bare if any(isinstance(part, Mapping) for part in parts) else None
    if not isinstance(wanted, Mapping):
        return None
    names = cast(Mapping[str, Any], wanted).keys()
    if names and all(each in _COMPARISONS for each in names):
        raise InputError(
            "filter 'not': write \"$not\" for the opposite of a filter, or comparisons such as "
            '"$gte" for a field that is called "not"'
        )
    comparisons = [each.startswith("$") and each[1:] in _COMPARISONS for each in names]
    return None if comparisons and all(comparisons) else "not"


def _operand(field: str, value: object) -> Scalar:
    if isinstance(value, float) and math.isnan(value):
        raise InputError(f"filter field {brief(field)}: expected a finite number, got {value}")
    operand = scalar(value)
    if operand is None:
        raise InputError(
            f"filter field {brief(field)}: expected text, number or bool, got {_kind(value)}"
        )
    if isinstance(operand.value, float) and not math.isfinite(operand.value):
        raise InputError(f"filter field {brief(field)}: expected a finite number, got {value}")
    if isinstance(operand.value, str):
        _check_text(operand.value, f"the value of filter field {brief(field)}")
    return operand


def _kind(value: object) -> str:
    return "null" if value is None else type(value).__name__


def _check_text(text: str, what: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise InputError(f"{what} is not valid Unicode: {brief(text)}") from None
