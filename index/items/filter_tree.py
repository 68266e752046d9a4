"""What a filter is, once read: a tree of tests, and the values that tests compare."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple, cast

Kind = Literal["bool", "number", "text"]
Comparison = Literal["gt", "gte", "lt", "lte"]


class Scalar(NamedTuple):
    """A metadata value in the form in which it is stored and compared.

    Attributes:
        kind: values of different kinds are never equal and never ordered.
        value: a bool is stored as 0 or 1.
    """

    kind: Kind
    value: int | float | str


class Bound(NamedTuple):
    """One end of a range.

    Attributes:
        comparison: that a value has to pass.
        value: that it is compared with; a number or a text.
    """

    comparison: Comparison
    value: Scalar


@dataclass(frozen=True)
class Equal:
    """Passes an item with one of the values in a field."""

    field: str
    values: tuple[Scalar, ...]


@dataclass(frozen=True)
class Range:
    """Passes an item with, for each bound, a value in a field that is within it."""

    field: str
    bounds: tuple[Bound, ...]


@dataclass(frozen=True)
class Exists:
    """Passes an item with any value in a field."""

    field: str


@dataclass(frozen=True)
class Not:
    """Passes what `part` does not."""

    part: Filter


@dataclass(frozen=True)
class And:
    """Passes what all parts pass."""

    parts: tuple[Filter, ...]


@dataclass(frozen=True)
class Or:
    """Passes what one of the parts passes."""

    parts: tuple[Filter, ...]


# Filters that say the same in the same order are equal, so they can be keys of a cache.
Test = Equal | Range | Exists
Filter = Test | Not | And | Or


def leaves(filter: Filter) -> Iterator[Test]:
    """Yield the tests at the ends of the tree, from left to right."""
    if isinstance(filter, Not):
        yield from leaves(filter.part)
    elif isinstance(filter, (And, Or)):
        for part in filter.parts:
            yield from leaves(part)
    else:
        yield filter


def scalar(value: object) -> Scalar | None:
    """Bring a metadata value into its stored form; None if it cannot be filtered by."""
    if isinstance(value, bool):
        return Scalar("bool", int(value))
    if isinstance(value, int):
        # The database's integers have 64 bits; beyond, a number is compared as a float.
        return Scalar("number", value if -(2**63) <= value < 2**63 else _as_float(value))
    if isinstance(value, float) and not math.isnan(value):
        return Scalar("number", value)
    if isinstance(value, str):
        return Scalar("text", value)
    return None


def field_scalars(value: object) -> Iterator[Scalar]:
    """Yield what filters compare of a field: its value, or the values in its list."""
    for each in cast(list[object], value) if isinstance(value, list) else [value]:
        stored = scalar(each)
        if stored is not None:
            yield stored


def _as_float(value: int) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
