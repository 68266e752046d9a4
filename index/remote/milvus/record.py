"""A generation's record in Milvus: named pieces of bytes in a small collection.

The record is cut into texts, a row each, which are written in one request. Each row says how many
there are and has the digest of the whole, so that a reader who meets a record that is just being
replaced notices, and reads again.
"""

from __future__ import annotations

import base64
import hashlib
import json
import time
from collections.abc import Mapping
from typing import Any

from aladin.errors import EngineError
from index.remote.milvus.collection import CollectionShape, create_collection
from index.remote.milvus.connection import ENGINE, ONCE, MilvusConnection
from index.remote.milvus.rows import KEY, MAX_TEXT_BYTES

_TEXT, _COUNT, _DIGEST, _UNUSED = "text", "texts", "digest", "unused"
# What one request may carry.
_MOST_TEXTS = 500
_TRIES, _WAIT_S = 5, 0.2
_SHAPE = CollectionShape(
    fields={
        _TEXT: ("VARCHAR", {"max_length": MAX_TEXT_BYTES}),
        _COUNT: ("INT64", {}),
        _DIGEST: ("VARCHAR", {"max_length": 64}),
        # Milvus makes no collection without a vector.
        _UNUSED: ("FLOAT_VECTOR", {"dim": 2}),
    },
    vector=_UNUSED,
    index="FLAT",
    index_params={},
    shards=1,
)


def write_record(
    connection: MilvusConnection, collection: str, record: Mapping[str, bytes]
) -> None:
    """Keep a record in the place of the one before.

    Raises:
        EngineError: it is larger than what one request takes.
    """
    pieces = {name: base64.b64encode(piece).decode("ascii") for name, piece in record.items()}
    whole = json.dumps(pieces)
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
    create_collection(connection, collection, _SHAPE)
    connection.call(lambda client: client.upsert(collection, rows, **ONCE))


def read_record(connection: MilvusConnection, collection: str) -> dict[str, bytes] | None:
    """Return a record; None where there is none.

    Raises:
        EngineError: it is not whole.
    """
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
        # A longer record than the one that is there now may have left rows behind it.
        parts = found[: found[0][_COUNT]]
        whole = "".join(row[_TEXT] for row in parts)
        if hashlib.sha256(whole.encode("ascii")).hexdigest() == found[0][_DIGEST]:
            pieces: dict[str, str] = json.loads(whole)
            return {name: base64.b64decode(piece) for name, piece in pieces.items()}
        time.sleep(_WAIT_S)
    raise EngineError(ENGINE, f"the record in {collection} is not whole")
