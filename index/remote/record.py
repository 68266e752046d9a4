"""What an engine keeps of a generation beside its items: a few named pieces of bytes."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aladin.errors import ConfigError, IndexCorruptError, IndexMismatchError
from aladin.strict_config import dump_config, parse_config
from index.manifest import SCHEMA_VERSION, Manifest
from index.settings import Target
from index.tokens.codec import TokenCodec
from index.tokens.rounding import ErrorFeedback

# Pieces; the first one makes a generation whole.
MANIFEST, SOURCE, CHANGED = "manifest.json", "source.json", "changed"


@dataclass(frozen=True, kw_only=True, eq=False)
class RemoteRecord:
    """The record of a generation that is whole.

    Attributes:
        manifest: of the generation; it names no files.
        codecs: of each side's tokens, with what is needed to add items.
        source: what it was pushed from, see `index.remote.push_source`.
        changed: whether items were added or removed since it was pushed; set before the first
            one is.
    """

    manifest: Manifest
    codecs: Mapping[Target, TokenCodec]
    source: bytes
    changed: bool = False

    def pieces(self) -> dict[str, bytes]:
        """Return the record as an engine keeps it."""
        data = json.dumps(dump_config(self.manifest), ensure_ascii=False)
        pieces = {MANIFEST: data.encode("utf-8"), SOURCE: self.source}
        for target, codec in self.codecs.items():
            if codec.centroids is not None:
                pieces[_centroids(target)] = _npy(codec.centroids)
            if codec.feedback is not None:
                pieces[_feedback(target)] = _npy(np.stack(codec.feedback))
        return pieces | ({CHANGED: b"1"} if self.changed else {})

    def with_changes(self) -> RemoteRecord:
        """Return the record of a generation that is about to be changed."""
        return replace(self, changed=True)

    @classmethod
    def read(cls, pieces: Mapping[str, bytes], where: str) -> RemoteRecord:
        """Read what `pieces` returned.

        Args:
            pieces: of a generation that is whole.
            where: names the generation in errors.

        Raises:
            IndexMismatchError: of another schema version.
            IndexCorruptError: not such a record.
        """
        try:
            manifest = _manifest(pieces[MANIFEST], where)
            codecs: dict[Target, TokenCodec] = {}
            for target, entry in manifest.sides.items():
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
    """Whether a generation with this record has all of its items."""
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
