"""Bounds of a model's files, checked before a library reads them or builds a network of them.

A folder may come from anywhere. Its configuration can ask for more layers than can be built in a
day, or for more memory than any machine has; its weights can have a header of millions of names, or
be a pipe that never ends. Here each is refused in a fraction of a second, whatever the libraries
would have made of it.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from aladin_network.errors import CheckpointError
from aladin_network.files import parse_json, read_json

# The largest tokenizers have 256,000 entries in 35 MB.
_MOST_JSON_BYTES = 2**27
# Names, shapes and places of 100,000 tensors.
_MOST_HEADER_BYTES = 2**24
_SURELY_WRITTEN_BYTES = 2**32
# Numbers of things that are made one after the other, by what their names contain. The deepest
# networks have some hundred layers.
_COUNTED = {re.compile("layer|depth|block|stage|expert"): 2000, re.compile("labels"): 200_000}
# Larger numbers are no size of anything.
_MOST = 2**31
_WEIGHTS = ("*.safetensors", "*.bin")


def check_model_folder(folder: Path) -> None:
    """Check the files of a model in a local folder; nothing if there is no such folder."""
    config = folder / "config.json"
    try:
        for path in sorted(path for each in ("*.json", *_WEIGHTS) for path in folder.glob(each)):
            if path.exists():  # no link of the hub's cache to a file that was removed
                _check_file(path)
        if config.exists():
            check_sizes(read_json(config))
    except OSError as error:
        raise CheckpointError(f"{error.filename}: cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise CheckpointError(f"{config}: cannot be read ({error})") from error


def _check_file(path: Path) -> None:
    found = path.stat()
    # Hashing takes seconds a GiB, also where nothing was ever written. Smaller files may only wait
    # to be, on file systems that count their blocks later.
    written, size = found.st_blocks * 512, found.st_size
    for holds, fault in (
        (stat.S_ISREG(found.st_mode), "expected a regular file"),
        (
            path.suffix != ".json" or size <= _MOST_JSON_BYTES,
            f"expected at most {_MOST_JSON_BYTES:,} bytes, got {size:,}",
        ),
        (
            size <= _SURELY_WRITTEN_BYTES or written >= size / 1000,
            f"not complete (expected {size:,} bytes on the disk, got {written:,})",
        ),
    ):
        if not holds:
            raise CheckpointError(f"{path}: {fault}")
    if path.suffix == ".safetensors":
        _header(path)


def check_sizes(config: object) -> None:
    """Raise ValueError if a number of a parsed configuration is larger than any network's."""
    try:
        numbers = list(_numbers(config, ""))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    for name, value in numbers:
        limit = next((most for kind, most in _COUNTED.items() if kind.search(name)), _MOST)
        if value > limit:
            shown = f"{value:,}" if value < 10 * _MOST else "far more"
            raise ValueError(f"{name[:50]}: expected at most {limit:,}, got {shown}")


def _numbers(value: object, name: str) -> Iterator[tuple[str, int]]:
    """Yield the numbers below a value with the names they have; those of a list together."""
    if isinstance(value, Mapping):
        for key, each in cast(Mapping[str, object], value).items():
            yield from _numbers(each, key)
    elif isinstance(value, list):
        parts = cast(list[object], value)
        yield name, sum(each for each in parts if isinstance(each, int))
        for each in parts:
            if not isinstance(each, int):
                yield from _numbers(each, name)
    elif isinstance(value, int):
        yield name, value


def stored_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the tensors in a safetensors file, by name, without reading a tensor."""
    try:
        header = _header(path)
        return {
            name: tuple(int(size) for size in entry["shape"])
            for name, entry in header.items()
            if name != "__metadata__"
        }
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({error.strerror})") from error
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path}: cannot be read (its header is damaged)") from error


def _header(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > _MOST_HEADER_BYTES:
            limit = f"a header of at most {_MOST_HEADER_BYTES:,} bytes, got {length:,}"
            raise CheckpointError(f"{path}: cannot be read (expected {limit})")
        content = file.read(length)
    try:
        header: object = parse_json(content)
    except ValueError:
        header = None
    if not isinstance(header, dict):
        raise CheckpointError(f"{path}: cannot be read (its header is damaged)")
    return cast(dict[str, Any], header)


def most_parameters(folder: Path) -> int | None:
    """Return how many parameters a folder's weights can have at most; None without weights."""
    files = [path for each in _WEIGHTS for path in folder.glob(each)]
    return sum(path.stat().st_size for path in files) if files else None
