"""The record of a generation in Milvus: its manifest and the codebooks of its tokens.

A record is a set of small named byte strings. It is cut into texts, one per row of a collection,
which are written in one request. Each row has the number of rows and the digest of the whole
record, so that a reader detects a record that is just being replaced, and reads it again.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aladin_index.engines.collections import CollectionShape, create_collection
from aladin_index.engines.connection import ENGINE, ONCE, Connection
from aladin_index.engines.rows import KEY, MAX_TEXT_BYTES
from aladin_index.format.layout import parse_versioned
from aladin_index.format.manifest import SCHEMA_VERSION, Manifest
from aladin_index.tokens.codec import TokenCodec
from aladin_index.tokens.quantisation import ErrorFeedback
from aladin_network.config import dump_config
from aladin_network.errors import (
    ConfigError,
    EngineError,
    IndexCorruptError,
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
            manifest = parse_versioned(
                Manifest, pieces[MANIFEST], Path(where), SCHEMA_VERSION, "its record cannot be read"
            )
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


_TEXT, _COUNT, _DIGEST, _UNUSED = "text", "texts", "digest", "unused"
_TRIES, _WAIT_S = 5, 0.2
# Maximum size of one request.
_MOST_TEXTS = 500
_ROWS = CollectionShape(
    fields={
        _TEXT: ("VARCHAR", {"max_length": MAX_TEXT_BYTES}),
        _COUNT: ("INT64", {}),
        _DIGEST: ("VARCHAR", {"max_length": 64}),
        # Milvus requires a vector field.
        _UNUSED: ("FLOAT_VECTOR", {"dim": 2}),
    },
    vector=_UNUSED,
    index="FLAT",
    index_params={},
    shards=1,
)


def write_record(connection: Connection, collection: str, record: Mapping[str, bytes]) -> None:
    """Store a record, replacing the previous one."""
    whole = json.dumps(
        {name: base64.b64encode(piece).decode("ascii") for name, piece in record.items()}
    )
    texts = [whole[at : at + MAX_TEXT_BYTES] for at in range(0, len(whole), MAX_TEXT_BYTES)]
    if len(texts) > _MOST_TEXTS:
        most = _MOST_TEXTS * MAX_TEXT_BYTES
        raise EngineError(ENGINE, f"a record of {len(whole)} letters, {most} are the most")
    digest = hashlib.sha256(whole.encode("ascii")).hexdigest()
    rows = [
        {
            KEY: f"{place:08d}",
            _TEXT: text,
            _COUNT: len(texts),
            _DIGEST: digest,
            _UNUSED: [0.0, 0.0],
        }
        for place, text in enumerate(texts)
    ]
    create_collection(connection, collection, _ROWS)
    connection.call(lambda client: client.upsert(collection, rows, **ONCE))


def read_record(connection: Connection, collection: str) -> dict[str, bytes] | None:
    if not connection.call(lambda client: client.has_collection(collection, **ONCE)):
        return None

    def rows(client: Any) -> list[dict[str, Any]]:
        return list(
            client.query(
                collection,
                filter=f'{KEY} >= ""',
                output_fields=[KEY, _TEXT, _COUNT, _DIGEST],
                limit=_MOST_TEXTS,
                consistency_level="Strong",
                **ONCE,
            )
        )

    for _ in range(_TRIES):
        found = sorted(connection.call(rows), key=lambda row: row[KEY])
        if not found:
            return None
        # A longer previous record may have left rows behind.
        parts = found[: found[0][_COUNT]]
        whole = "".join(row[_TEXT] for row in parts)
        if hashlib.sha256(whole.encode("ascii")).hexdigest() == found[0][_DIGEST]:
            return {name: base64.b64decode(text) for name, text in json.loads(whole).items()}
        time.sleep(_WAIT_S)
    raise EngineError(ENGINE, f"the record in {collection} is incomplete")
