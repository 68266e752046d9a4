"""Facts as JSON data and as rows of text, whatever they are about.

Facts are dataclasses and named tuples; their fields name them. What a dataclass keeps out of its
``repr`` is not shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, cast

from pydantic import TypeAdapter

from aladin_index.generations.info import LocalFacts
from aladin_network.calibration.figures import CalibrationFacts

_CALIBRATION = TypeAdapter(CalibrationFacts)

_INDENT = "  "
_BYTES = "_bytes"

_TEXTS: dict[type, Callable[[Any], str]] = {
    bool: lambda value: "yes" if value else "no",
    int: "{:,}".format,
    float: "{:.4g}".format,
    type(None): lambda _: "none",
}


def plain(value: object, *without: str) -> Any:
    """Return facts as JSON data, without the fields of some names at any depth."""
    if is_dataclass(value):
        value = {each.name: getattr(value, each.name) for each in fields(value) if each.repr}
    elif hasattr(value, "_asdict"):
        value = cast(Any, value)._asdict()
    if isinstance(value, Mapping):
        known = cast(Mapping[str, object], value).items()
        return {name: plain(each, *without) for name, each in known if name not in without}
    if isinstance(value, list | tuple):
        return [plain(each, *without) for each in cast(list[object], value)]
    if isinstance(value, datetime):
        return value.isoformat(timespec="seconds")
    return str(value) if isinstance(value, Path) else value


def rows(data: Mapping[str, Any], indent: str = "") -> Iterator[tuple[str, str]]:
    """Return JSON data as names and values; facts that hold others have a row for each of them."""
    for name, value in data.items():
        words = indent + _words(name)
        held = cast(dict[str, Any], value).values() if isinstance(value, dict) else value
        if not isinstance(value, dict | list) or not any(isinstance(each, dict) for each in held):
            yield words, line(value, name)
            continue
        yield words, ""
        if isinstance(value, dict):
            yield from rows(cast(dict[str, Any], value), indent + _INDENT)
        else:
            yield from ((indent + _INDENT, line(each)) for each in cast(list[Any], value))


def line(value: Any, name: str = "") -> str:
    """Return JSON data as one line, without what is null."""
    if isinstance(value, dict):
        known = cast(dict[str, Any], value).items()
        texts = [
            f"{_words(each)} {line(of, each if each.endswith(_BYTES) else name)}"
            for each, of in known
            if of is not None
        ]
        return ", ".join(texts) or "none"
    if isinstance(value, list):
        return ", ".join(line(each, name) for each in cast(list[Any], value)) or "none"
    if name.endswith(_BYTES) and isinstance(value, int):
        return f"{value / 1e6:,.1f} MB"
    return _TEXTS.get(type(value), str)(value)


def _words(name: str) -> str:
    return name.removesuffix(_BYTES).replace("_", " ")


def calibration_rows(calibration: CalibrationFacts) -> list[tuple[str, str]]:
    """Return what probabilities were fitted on and how good they are, as names and values."""
    return [*rows(_CALIBRATION.dump_python(calibration))]


def index_rows(facts: LocalFacts) -> list[tuple[str, str]]:
    """Return the description of an index as names and values; its curves have their own tables."""
    data: dict[str, Any] = plain(facts, "curve")
    if facts.calibration is not None:  # without the coefficients of its models
        data["calibration"] = _CALIBRATION.dump_python(facts.calibration)
    return [*rows(data)]
