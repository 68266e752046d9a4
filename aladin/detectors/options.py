"""The options of a detector, written as texts."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar, cast

from pydantic import TypeAdapter, ValidationError

from aladin.errors import ConfigError

T = TypeVar("T")


def parse_options(schema: type[T], options: Mapping[str, str], kind: str) -> T:
    """Build a detector's options.

    Args:
        schema: a frozen dataclass with ``__pydantic_config__ = STRICT``.
        options: as the user wrote them.
        kind: of the detector, for the error.

    Raises:
        ConfigError: an option is unknown or impossible; every one is named.
    """
    try:
        # By its rules for texts "0.3" is a number; a name that is unknown stays an error.
        return TypeAdapter(schema).validate_strings(dict(options))
    except ValidationError as error:
        faults = [
            f"{'.'.join(map(str, fault['loc']))}: "
            + ("unknown option" if "unexpected" in fault["type"] else fault["msg"])
            for fault in error.errors(include_url=False)
        ]
        known = ", ".join(field.name for field in dataclasses.fields(cast(Any, schema)))
        faults.append(f"options are {known}")
        raise ConfigError(f"detector {kind}: " + "; ".join(faults)) from None


def options_text(options: object, leave_out: tuple[str, ...] = ()) -> str:
    """Write options for a detector's id: all that count, in the order of their names."""
    values = dataclasses.asdict(cast(Any, options))
    return ",".join(f"{key}={values[key]}" for key in sorted(values) if key not in leave_out)
