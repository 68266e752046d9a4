"""The TOML files of recipes: files that extend others, defaults of all stages, and overrides."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from aladin_network.errors import ConfigError


def read_toml(path: Path, overrides: Sequence[str]) -> dict[str, Any]:
    """Read the complete data of a recipe, not yet checked; see `load_recipe`.

    Args:
        path: TOML file.
        overrides: ``dotted.key=value`` settings that replace those of the file.

    Raises:
        ConfigError: If the file cannot be read, or an override names no place in it.
    """
    data = _merged_file(path)
    for override in overrides:
        _override(data, override)
    return _with_nulls(_with_defaults(data))


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
    return _merge(_merged_file(path.parent / base, (*extended_by, path)), data)


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


def _override(data: dict[str, Any], override: str) -> None:
    key, equals, text = override.partition("=")
    if not equals:
        raise ConfigError(f"override {override!r}: expected key=value")
    try:
        value: Any = json.loads(text)
    except ValueError:
        value = text
    *path, last = key.strip().split(".")
    if path[:1] == ["final"]:
        path = ["stage", _final_name(data), *path[1:]]
    node: Any = data
    for step in path:
        if isinstance(node, list):
            named = [each for each in node if isinstance(each, dict) and each.get("name") == step]
            if not named:
                raise ConfigError(f"override {override!r}: no stage named {step!r}")
            node = named[0]
        elif isinstance(node, dict):
            node = node.setdefault(step, {})
    if not isinstance(node, dict):
        raise ConfigError(f"override {override!r}: {'.'.join(path)} has no keys")
    node[last] = value


def _final_name(data: dict[str, Any]) -> str:
    """Return the name of the stage whose checkpoint is the run's, of a recipe not yet checked."""
    stages = [each for each in data.get("stage", ()) if isinstance(each, dict)]
    last = stages[-1].get("name") if stages else None
    return str(data.get("final") or last)
