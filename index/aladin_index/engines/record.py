"""A generation in a vector database: record, items and tokens as bytes and text.

The record is a set of small named byte strings: the manifest, and the codebooks of the tokens.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aladin_index.engines.client import EngineClient
from aladin_index.engines.connection import ENGINE
from aladin_index.format.manifest import SCHEMA_VERSION, Manifest
from aladin_index.tokens.codec import TokenCodec
from aladin_index.tokens.quantisation import ErrorFeedback
from aladin_network.config import dump_config, parse_config
from aladin_network.errors import (
    ConfigError,
    IndexCorruptError,
    IndexMismatchError,
    IndexNotReadyError,
)
from aladin_network.types import Target

# Names of the pieces; the first one marks a generation as complete.
MANIFEST, SOURCE, CHANGED = "manifest.json", "source.json", "changed"


@dataclass(frozen=True, kw_only=True, eq=False)
class GenerationRecord:
    """Record of a complete generation.

    Attributes:
        manifest: Manifest of the generation; it lists no files.
        codecs: Codec of each collection's tokens, with the data required to add items.
        source: Identity of what was pushed, see `aladin_index.engines.push`.
        changed: Whether items were added or removed since the push; set before the first change is
            made.
    """

    manifest: Manifest
    codecs: Mapping[Target, TokenCodec]
    source: bytes
    changed: bool = False

    def pieces(self) -> dict[str, bytes]:
        """Return the record in the form stored in a vector database."""
        data = json.dumps(dump_config(self.manifest), ensure_ascii=False)
        pieces = {MANIFEST: data.encode("utf-8"), SOURCE: self.source}
        for target, codec in self.codecs.items():
            if codec.centroids is not None:
                pieces[_centroids(target)] = _npy(codec.centroids)
            if codec.feedback is not None:
                pieces[_feedback(target)] = _npy(np.stack(codec.feedback))
        return pieces | ({CHANGED: b"1"} if self.changed else {})

    def with_changes(self) -> GenerationRecord:
        """Return the record with the mark that the generation is about to be changed."""
        return replace(self, changed=True)

    @classmethod
    def read(cls, pieces: Mapping[str, bytes], where: str) -> GenerationRecord:
        """Deserialise the result of `pieces`."""
        try:
            manifest = _manifest(pieces[MANIFEST], where)
            codecs: dict[Target, TokenCodec] = {}
            for target, entry in manifest.collections.items():
                centroids = _array(pieces, _centroids(target))
                feedback = _array(pieces, _feedback(target))
                codecs[target] = TokenCodec(
                    entry.token_dtype,
                    entry.token_dim,
                    centroids,
                    None if feedback is None else ErrorFeedback(*feedback),
                )
            return cls(
                manifest=manifest,
                codecs=codecs,
                source=pieces[SOURCE],
                changed=CHANGED in pieces,
            )
        except KeyError as error:
            raise IndexCorruptError(where, f"its record has no {error}") from error
        except (ValueError, TypeError, EOFError, ConfigError) as error:
            raise IndexCorruptError(where, f"its record cannot be read ({error})") from error


def is_whole(pieces: Mapping[str, bytes] | None) -> bool:
    """Whether a generation with this record is complete."""
    return pieces is not None and MANIFEST in pieces


def _manifest(content: bytes, where: str) -> Manifest:
    data: Any = json.loads(content)
    version = data["schema_version"]
    if version != SCHEMA_VERSION:
        raise IndexMismatchError(f"{where}: schema version", SCHEMA_VERSION, version)
    return parse_config(Manifest, data, MANIFEST)


def _centroids(target: Target) -> str:
    return f"{target}.centroids.npy"


def _feedback(target: Target) -> str:
    return f"{target}.feedback.npy"


def _npy(array: NDArray[np.float32]) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return file.getvalue()


def _array(pieces: Mapping[str, bytes], name: str) -> NDArray[np.float32] | None:
    if name not in pieces:
        return None
    array: NDArray[Any] = np.load(io.BytesIO(pieces[name]), allow_pickle=False)
    return array.astype(np.float32)


def require_live(client: EngineClient, path: Path) -> int:
    """Return the live generation."""
    generation = client.live_generation()
    if generation is None:
        raise IndexNotReadyError(f"{path}: nothing was pushed to {ENGINE} yet")
    return generation


def read_generation(client: EngineClient, generation: int) -> GenerationRecord:
    """Read the record of a generation."""
    pieces = client.read_record(generation)
    where = f"{ENGINE}: generation {generation}"
    if pieces is None or not is_whole(pieces):
        raise IndexNotReadyError(f"{where} is missing or incomplete")
    return GenerationRecord.read(pieces, where)
