"""Frozen dataclasses from JSON or TOML data: unknown keys and wrong types are errors."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any, TypeVar, cast

from pydantic import ConfigDict, TypeAdapter, ValidationError

from aladin.errors import ConfigError

T = TypeVar("T")

# Put on the outermost dataclass of a schema; pydantic hands it on to the nested ones.
STRICT = ConfigDict(extra="forbid")


def parse_config(schema: type[T], data: Mapping[str, Any], where: str) -> T:
    """Build the frozen dataclass `schema` from plain data.

    Args:
        schema: a dataclass with ``__pydantic_config__ = STRICT``.
        data: what a JSON or TOML reader returned.
        where: names the source in the error, e.g. the file.

    Returns:
        The dataclass, nested ones included.

    Raises:
        ConfigError: a key is unknown or missing, or a value is impossible; every one is named.
    """
    try:
        # JSON mode is strict about types, yet takes lists for tuples.
        return TypeAdapter(schema).validate_json(json.dumps(data), strict=True)
    except ValidationError as error:
        faults = [
            f"{'.'.join(map(str, fault['loc'])) or '(top)'}: {_say(fault['type'], fault['msg'])}"
            for fault in error.errors(include_url=False)
        ]
        raise ConfigError(f"{where}: " + "; ".join(faults)) from None
    except TypeError as error:
        raise ConfigError(f"{where}: {error}") from None


def dump_config(config: object) -> dict[str, Any]:
    """Return the plain data from which `parse_config` builds the same dataclass again."""
    return dataclasses.asdict(cast(Any, config))


def dump_changes(config: object) -> dict[str, Any]:
    """Return `dump_config` without the fields that have their defaults, nested ones included.

    It identifies a configuration for as long as no default changes: a field that is new, and has a
    default, changes nothing.
    """
    changes: dict[str, Any] = {}
    for field in dataclasses.fields(cast(Any, config)):
        value, default = getattr(config, field.name), field.default
        if field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        if value != default:
            changes[field.name] = dump_changes(value) if dataclasses.is_dataclass(value) else value
    return changes


def _say(kind: str, message: str) -> str:
    return "unknown key" if kind == "unexpected_keyword_argument" else message
