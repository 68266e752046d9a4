"""Metadata filters: ``{field: value | [values] | {"gte": ..., "lt": ..., "ne": ...}}``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, cast

from aladin.errors import InputError

Kind = Literal["bool", "number", "text"]
Operator = Literal["in", "not_in", "gt", "gte", "lt", "lte"]
_RANGES = ("gt", "gte", "lt", "lte")


class Scalar(NamedTuple):
    """A metadata value in the form in which it is stored and compared.

    Attributes:
        kind: values of different kinds are never equal and never ordered: ``true`` is not 1.
        value: a bool is stored as 0 or 1.
    """

    kind: Kind
    value: int | float | str


class Condition(NamedTuple):
    """One test of one field; an item passes a filter that passes all of its conditions.

    Attributes:
        field: of the metadata.
        operator: "in" and "not_in" take any number of operands, the others one.
        operands: what the field's value is compared with.
    """

    field: str
    operator: Operator
    operands: tuple[Scalar, ...]


def parse_filter(spec: Mapping[str, Any]) -> list[Condition]:
    """Read a filter as it came with a request.

    A field whose metadata is a list passes if any of its elements does; "ne" passes where no
    element equals the value, also where the item has no such field.

    Args:
        spec: by field, a value (equal), a list of values (one of them), or a mapping with any
            of gt, gte, lt, lte (a range) and ne (not equal).

    Raises:
        InputError: any other form.
    """
    conditions: list[Condition] = []
    for field, wanted in spec.items():
        _check_text(field, "a field's name")
        if isinstance(wanted, Mapping):
            conditions += _comparisons(field, cast(Mapping[str, Any], wanted))
        elif isinstance(wanted, (list, tuple)):
            values = cast(list[Any], wanted)
            if not values:
                raise InputError(f"filter field {field!r}: expected at least one value, got []")
            operands = tuple(_operand(field, value) for value in values)
            conditions.append(Condition(field, "in", operands))
        else:
            conditions.append(Condition(field, "in", (_operand(field, wanted),)))
    return conditions


def scalar(value: object) -> Scalar | None:
    """Bring a metadata value into its stored form; None if it cannot be filtered by."""
    if isinstance(value, bool):
        return Scalar("bool", int(value))
    if isinstance(value, int):
        # The database's integers have 64 bits; beyond, a number is compared as a float.
        return Scalar("number", value if -(2**63) <= value < 2**63 else _as_float(value))
    if isinstance(value, float):
        return Scalar("number", value)
    if isinstance(value, str):
        return Scalar("text", value)
    return None


def _comparisons(field: str, wanted: Mapping[str, Any]) -> list[Condition]:
    if not wanted:
        raise InputError(f"filter field {field!r}: expected a comparison, got {{}}")
    conditions: list[Condition] = []
    for operator, value in wanted.items():
        operand = _operand(field, value)
        if operator == "ne":
            conditions.append(Condition(field, "not_in", (operand,)))
        elif operator not in _RANGES:
            known = ", ".join((*_RANGES, "ne"))
            raise InputError(f"filter field {field!r}: expected one of {known}, got {operator!r}")
        elif operand.kind == "bool":
            raise InputError(f"filter field {field!r}: {operator} takes a number or a text")
        else:
            conditions.append(Condition(field, cast(Operator, operator), (operand,)))
    return conditions


def _operand(field: str, value: object) -> Scalar:
    operand = scalar(value)
    if operand is None:
        kind = "null" if value is None else type(value).__name__
        raise InputError(f"filter field {field!r}: expected text, number or bool, got {kind}")
    if isinstance(operand.value, float) and not math.isfinite(operand.value):
        raise InputError(f"filter field {field!r}: expected a finite number, got {value}")
    if isinstance(operand.value, str):
        _check_text(operand.value, f"the value of filter field {field!r}")
    return operand


def _check_text(text: str, what: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise InputError(f"{what} is not valid Unicode: {text!r}") from None


def _as_float(value: int) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
