"""Mined lists on disk: one safetensors file.

tensors     texts, images (int32), see `OfflineNegatives`
metadata    schema_version, what the lists were mined from, sha256 of both tensors
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any, ClassVar

from pydantic import ConfigDict
from safetensors import SafetensorError, safe_open
from torch import Tensor

from aladin.atomic import atomic_file
from aladin.errors import ConfigError, DataError, StaleNegativesError
from aladin.strict_config import STRICT, dump_config, parse_config
from aladin.tensor_file import check_readable, write_tensors
from training.mining.negatives import MinedFrom, OfflineNegatives

SCHEMA_VERSION = 1

_TENSORS = ("images", "texts")
# What each fact of `MinedFrom` is to a reader of the message.
_FACTS = {
    "data": "the data or its order",
    "model_id": "the model",
    "score": "the score",
    "num_texts": "texts for each photo",
    "num_images": "images for each caption",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Header:
    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    schema_version: int
    mined_from: MinedFrom
    content: str


def save_negatives(path: Path, negatives: OfflineNegatives) -> None:
    """Write mined lists atomically; an older file in their place is replaced.

    Args:
        path: of the file.
        negatives: from `mine_negatives`.
    """
    tensors = {
        "texts": negatives.texts.contiguous(),
        "images": negatives.images.contiguous(),
    }
    header = _Header(
        schema_version=SCHEMA_VERSION,
        mined_from=negatives.mined_from,
        content=_content(tensors),
    )
    with atomic_file(path) as partial:
        write_tensors(partial, tensors, {"header": json.dumps(dump_config(header))})


def load_negatives(path: Path, expected: MinedFrom) -> OfflineNegatives:
    """Read mined lists and make sure that they are those of the data and settings at hand.

    Args:
        path: written by `save_negatives`.
        expected: what the lists have to be mined from; shorter lists are not cut from longer ones.

    Raises:
        DataError: there is no such file, or it is damaged.
        StaleNegativesError: the lists were mined from something else; names each difference.
    """
    header, tensors = _read(path)
    found = header.mined_from
    differences = [
        (words, _short(getattr(expected, name)), _short(getattr(found, name)))
        for name, words in _FACTS.items()
        if getattr(expected, name) != getattr(found, name)
    ]
    if expected.model_id is None:
        differences = [each for each in differences if each[0] != _FACTS["model_id"]]
    if differences:
        raise StaleNegativesError(path, differences)
    return OfflineNegatives(tensors["texts"], tensors["images"], found)


def _read(path: Path) -> tuple[_Header, dict[str, Tensor]]:
    """Read a file whole and make sure that it is what was written."""
    try:
        check_readable(path)
        with safe_open(path, framework="pt") as file:
            metadata: dict[str, str] = file.metadata() or {}
            tensors: dict[str, Tensor] = {name: file.get_tensor(name) for name in _TENSORS}
    except FileNotFoundError:
        raise DataError(path, None, "no such file; `aladin mine` writes it") from None
    except PermissionError:
        raise DataError(path, None, "cannot be read (Permission denied)") from None
    except (OSError, SafetensorError) as error:
        raise DataError(path, None, f"not a file of mined negatives ({error})") from error
    header = _read_header(path, metadata.get("header", ""))
    if _content(tensors) != header.content:
        raise DataError(path, None, "damaged: the lists are not those that were written")
    return header, tensors


def _read_header(path: Path, text: str) -> _Header:
    try:
        data: Any = json.loads(text)
    except ValueError:
        raise DataError(path, None, "not a file of mined negatives (no header)") from None
    version = data.get("schema_version") if isinstance(data, dict) else None
    if version != SCHEMA_VERSION:
        raise DataError(path, None, f"schema version {version}, expected {SCHEMA_VERSION}")
    try:
        return parse_config(_Header, data, "header")
    except ConfigError as error:
        raise DataError(path, None, str(error)) from error


def _content(tensors: dict[str, Tensor]) -> str:
    """Digest the lists; safetensors itself notices a file cut short, but no changed byte."""
    digest = hashlib.sha256()
    for name in _TENSORS:
        digest.update(f"{name} {tuple(tensors[name].shape)} {tensors[name].dtype}".encode())
        digest.update(tensors[name].numpy().data)
    return digest.hexdigest()


def _short(fact: object) -> object:
    """Cut a digest to what tells two of them apart."""
    return fact[:12] if isinstance(fact, str) else fact
