"""The TOML files of recipes: files that extend others, variants, stage defaults and overrides."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from aladin_network.errors import ConfigError


def read_toml(path: Path, overrides: Sequence[str]) -> dict[str, Any]:
    """Read the data of a recipe, unchecked, with a variant and overrides; see `load_recipe`."""
    data = _merged_file(path)
    settings = [_parse_override(override) for override in overrides]
    variants, variant = _pop_variants(data, path), data.pop("variant", None)
    for key, value in settings:
        variant = value if key == "variant" else variant
    if variants or variant is not None:
        if variant not in variants:
            known = f"known are {', '.join(variants)}" if variants else "it has none"
            raise ConfigError(f"{path}: variant: expected one of the file, {known}; got {variant}")
        data["name"] = f"{data.get('name', path.stem)}-{variant}"
        settings = [*variants[variant].items(), *settings]
    for key, value in settings:
        for each in _addressed(data, key) if key != "variant" else ():
            _override(data, each, value)
    return _with_nulls(_with_defaults(data))


def variants_of(path: Path) -> tuple[str, ...]:
    """Return the names of a recipe's variants, in the order of the file; empty if it has none."""
    return tuple(_pop_variants(_merged_file(path), path))


def _pop_variants(data: dict[str, Any], path: Path) -> dict[str, dict[str, Any]]:
    """Remove the variants from a recipe's data: their settings by name."""
    variants: Any = data.pop("variants", {})
    tables: list[Any] = list(variants.values()) if isinstance(variants, dict) else [variants]
    if not all(isinstance(table, dict) for table in tables):
        raise ConfigError(f"{path}: variants: expected a table of settings for each variant")
    return variants


def _merged_file(path: Path, extended_by: tuple[Path, ...] = ()) -> dict[str, Any]:
    """Read a recipe's data, merged into that of the file that it extends."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such recipe") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path}: not a recipe ({error})") from error
    base = data.pop("extends", None)
    if base is None:
        return data
    if not isinstance(base, str):
        raise ConfigError(f"{path}: extends: expected the name of a file, got {base!r}")
    if path in extended_by:
        raise ConfigError(f"{path}: a file cannot extend itself")
    extended = _merged_file(path.parent / base, (*extended_by, path))
    for own in ("variants", "variant"):  # these are recipes of their own, not part of the base
        extended.pop(own, None)
    return _merge(extended, data)


def _with_defaults(data: dict[str, Any]) -> dict[str, Any]:
    """Complete every stage from the table of defaults."""
    rest = {key: value for key, value in data.items() if key != "stage_defaults"}
    defaults, stages = data.get("stage_defaults"), data.get("stage")
    if isinstance(defaults, dict) and isinstance(stages, list):
        rest["stage"] = [
            _merge(defaults, stage) if isinstance(stage, dict) else stage for stage in stages
        ]
    return rest


def _with_nulls(value: Any) -> Any:
    """Replace the text "null" by None."""
    if isinstance(value, dict):
        return {key: _with_nulls(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_with_nulls(each) for each in value]
    return None if value == "null" else value


def _merge(base: dict[str, Any], data: dict[str, Any]) -> dict[str, Any]:
    """Merge tables key by key and the list of stages name by name; replace everything else."""
    merged = dict(base)
    for key, value in data.items():
        old = base.get(key)
        if isinstance(value, dict) and isinstance(old, dict):
            merged[key] = _merge(old, value)
        elif key == "stage" and isinstance(value, list) and isinstance(old, list):
            merged[key] = _merge_stages(old, value)
        else:
            merged[key] = value
    return merged


def _merge_stages(base: list[Any], stages: list[Any]) -> list[Any]:
    """Merge stages of the same name, and append the new ones."""
    merged = list(base)
    for stage in stages:
        name = stage.get("name") if isinstance(stage, dict) else None
        same = [
            n for n, old in enumerate(base) if isinstance(old, dict) and old.get("name") == name
        ]
        if same and name is not None:
            merged[same[0]] = _merge(base[same[0]], stage)
        else:
            merged.append(stage)
    return merged


def _parse_override(override: str) -> tuple[str, Any]:
    """Return the dotted key and the value of ``key=value``: JSON, or else a string."""
    key, equals, text = override.partition("=")
    if not equals:
        raise ConfigError(f"override {override!r}: expected key=value")
    try:
        return key.strip(), json.loads(text)
    except ValueError:
        return key.strip(), text


def _override(data: dict[str, Any], key: str, value: Any) -> None:
    """Set the value at a dotted key; steps into the list of stages are their names."""
    *path, last = key.split(".")
    node: Any = data
    for step in path:
        if isinstance(node, list):
            named = [each for each in node if isinstance(each, dict) and each.get("name") == step]
            if not named:
                raise ConfigError(f"override {key!r}: no stage named {step!r}")
            node = named[0]
        elif isinstance(node, dict):
            node = node.setdefault(step, {})
    if not isinstance(node, dict):
        raise ConfigError(f"override {key!r}: {'.'.join(path)} has no keys")
    node[last] = value


def _addressed(data: dict[str, Any], key: str) -> list[str]:
    """Return a key with the names of its stages: that of the run's checkpoint, or of all of them.

    The recipe is not yet checked.
    """
    first, dot, rest = key.partition(".")
    if not dot or first not in ("final", "*"):
        return [key]
    names = [str(each.get("name")) for each in data.get("stage", ()) if isinstance(each, dict)]
    final = str(data.get("final") or (names or [None])[-1])
    return [f"stage.{name}.{rest}" for name in (names if first == "*" else [final])]
