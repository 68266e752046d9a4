"""Items as rows of a Milvus collection, in batches.

A row's key is a digest of the item's id, so that ids may be of any length and contain anything.
The supported releases of Milvus have no field type for bytes: tokens are stored as base64 in as
many text fields as they need.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aladin_index.engines.filter_fields import EXTENTS, TERMS, filter_fields
from aladin_index.facts import EncodedEntry
from aladin_index.items.tables import StoredItem
from aladin_index.tokens.codec import CODED, PackedTokens, TokenCodec
from aladin_network.errors import EngineError, IndexCorruptError, InputError, ShapeError, brief
from aladin_network.types import TokenDtype

# Items added later may have more tokens than any item in the generation.
_ROOM = 2
# The server sends messages of at most 64 MiB.
_ANSWER_BYTES = 48 * 2**20

# The server accepts messages of 64 MiB, and Pulsar, which may store its log, 5 MB. Batches of 1 MiB
# are inserted as fast as larger ones.
_BATCH_BYTES = 4 * 2**20
_BATCH_ROWS = 2000
# Keys in one condition: 35 characters each.
_KEYS_AT_A_TIME = 1000


KEY, MATCH, ITEM = "key", "match", "item"
# Limits of Milvus: bytes of a text and of a JSON field, elements of an array.
MAX_TEXT_BYTES, MAX_JSON_BYTES, MAX_TERMS = 65_535, 65_536, 4096
# Base64 writes three bytes as four letters.
_BYTES_A_TEXT = MAX_TEXT_BYTES // 4 * 3


class EngineItem(NamedTuple):
    """An item as a vector database stores it; its id is the key.

    Attributes:
        item: Id, text and metadata. The row orders items of equal score: items of the pushed
            generation keep their rows from the index of files, items added later have larger ones.
        embedding: (d_match,) float32, L2-normalised, or None if it was not requested.
        tokens: Tokens in the collection's stored form, or None if they were not requested.
    """

    item: StoredItem
    embedding: NDArray[np.float32] | None
    tokens: PackedTokens | None


@dataclass(frozen=True, kw_only=True)
class CollectionSchema(EncodedEntry):
    """What a vector database has to know before it can create a collection.

    Attributes:
        max_tokens: Largest number of tokens of an item; items added later may exceed it.
    """

    max_tokens: int


class CollectionForm(NamedTuple):
    """How a collection is stored; written as the description of the Milvus collection.

    Attributes:
        token_dtype: Storage format of the tokens.
        token_dim: Size of a token.
        token_texts: Number of fields that hold the tokens of a row.
        index_kind: Index kind of its first stage, see `aladin_index.engines.collections`.
    """

    token_dtype: TokenDtype
    token_dim: int
    token_texts: int
    index_kind: str

    @classmethod
    def of(cls, schema: CollectionSchema, index_kind: str) -> CollectionForm:
        codec = _form_codec(schema.token_dtype, schema.token_dim)
        needed = _ROOM * schema.max_tokens * codec.token_bytes
        texts = max(1, -(-needed // _BYTES_A_TEXT))
        return cls(schema.token_dtype, schema.token_dim, texts, index_kind)

    @classmethod
    def read(cls, description: str) -> CollectionForm:
        try:
            return cls(**json.loads(description))
        except (ValueError, TypeError) as error:
            raise EngineError(
                "milvus", f"a collection is described as {brief(description)}"
            ) from error

    @property
    def description(self) -> str:
        """The text that `read` parses."""
        return json.dumps(self._asdict())

    @property
    def token_fields(self) -> list[str]:
        """Names of the fields that hold tokens."""
        return [f"tokens_{place}" for place in range(self.token_texts)]

    @property
    def rows_with_tokens(self) -> int:
        """Maximum number of rows with tokens in one response."""
        return max(1, _ANSWER_BYTES // ((self.token_texts + 1) * MAX_TEXT_BYTES))

    def tokens_of(self, stored: bytes) -> PackedTokens:
        """Split an item's stored tokens into arrays; the collection's codec decodes them."""
        return tokens_of(stored, _form_codec(self.token_dtype, self.token_dim))


def key_of(item_id: str) -> str:
    """Return the key of an item: 32 hexadecimal digits."""
    return hashlib.sha256(item_id.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def row_of(entry: EngineItem, form: CollectionForm) -> dict[str, Any]:
    assert entry.embedding is not None and entry.tokens is not None  # as upserts have them
    fields, text = filter_fields(entry.item.metadata), item_text(entry.item)
    stored = token_bytes(entry.tokens)
    for what, most, found in (
        ("values of metadata", MAX_TERMS, len(fields.terms)),
        ("bytes of text and metadata", MAX_TEXT_BYTES, len(text.encode("utf-8"))),
        (
            "bytes of the ends of metadata fields",
            MAX_JSON_BYTES,
            len(json.dumps(fields.extents).encode("utf-8")),
        ),
        ("bytes of tokens", form.token_texts * _BYTES_A_TEXT, len(stored)),
    ):
        if found > most:
            raise InputError(
                f"item {brief(entry.item.id)}: Milvus takes at most {most} {what}, this one has "
                f"{found}"
            )
    parts = {
        name: base64.b64encode(stored[start : start + _BYTES_A_TEXT]).decode("ascii")
        for name, start in zip(
            form.token_fields,
            range(0, form.token_texts * _BYTES_A_TEXT, _BYTES_A_TEXT),
            strict=True,
        )
    }
    return {
        KEY: key_of(entry.item.id),
        MATCH: entry.embedding.astype(np.float32).tolist(),
        ITEM: text,
        TERMS: fields.terms,
        EXTENTS: fields.extents,
        **parts,
    }


def entry_of(row: Mapping[str, Any], form: CollectionForm) -> EngineItem:
    """Convert a row; fields missing from it were not requested."""
    embedding = row.get(MATCH)
    tokens = None
    if form.token_fields[0] in row:
        stored = b"".join(base64.b64decode(row[name]) for name in form.token_fields)
        tokens = form.tokens_of(stored)
    return EngineItem(
        item_from_text(row[ITEM]),
        None if embedding is None else np.asarray(embedding, dtype=np.float32),
        tokens,
    )


@cache
def _form_codec(dtype: TokenDtype, dim: int) -> TokenCodec:
    """Return a codec of the form of some tokens, without centroids and other fitted data."""
    codebook = np.zeros((1, dim), dtype=np.float32) if dtype == CODED else None
    return TokenCodec(dtype, dim, codebook)


def batches(rows: Sequence[Mapping[str, Any]]) -> Iterator[list[Mapping[str, Any]]]:
    """Yield rows in batches that fit in one message, in the given order."""
    batch: list[Mapping[str, Any]] = []
    total_bytes = 0
    for row in rows:
        row_bytes = sum(map(_size, row.values()))
        if batch and (total_bytes + row_bytes > _BATCH_BYTES or len(batch) == _BATCH_ROWS):
            yield batch
            batch, total_bytes = [], 0
        batch.append(row)
        total_bytes += row_bytes
    if batch:
        yield batch


def parts_of(keys: Sequence[str], most: int = _KEYS_AT_A_TIME) -> Iterator[Sequence[str]]:
    """Yield keys in parts that fit in one condition and one response, at most `most` each."""
    most = min(most, _KEYS_AT_A_TIME)
    for start in range(0, len(keys), most):
        yield keys[start : start + most]


def _size(value: Any) -> int:
    """Return the approximate size of a value in a message in bytes; a number takes four."""
    if isinstance(value, (list, tuple)):
        return sum(_size(each) if isinstance(each, str) else 4 for each in value)
    if isinstance(value, dict):
        return sum(_size(name) + _size(each) for name, each in value.items())
    return len(value.encode("utf-8"))


def is_unicode(text: str) -> bool:
    """Whether a text can be stored: no stored text contains a lone surrogate."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def item_text(item: StoredItem) -> str:
    """Return an item as JSON without spaces; fields that are None are omitted.

    The state of its file is omitted, too: folders are synchronised with an index in files only.
    """
    data: dict[str, Any] = {
        name: value
        for name, value in item._asdict().items()
        if value is not None and name != "file_state"
    }
    if item.boxes is not None:
        data["boxes"] = base64.b64encode(item.boxes).decode("ascii")
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"))


def item_from_text(text: str) -> StoredItem:
    """Deserialise the result of `item_text`."""
    try:
        data: dict[str, Any] = dict.fromkeys(StoredItem._fields) | json.loads(text)
        if data["boxes"] is not None:
            data["boxes"] = base64.b64decode(data["boxes"], validate=True)
        return StoredItem(**data)
    except (ValueError, TypeError) as error:
        raise IndexCorruptError("item in the engine", f"not readable ({error})") from error


def token_bytes(tokens: PackedTokens) -> bytes:
    """Concatenate the arrays of packed tokens, little-endian."""
    return b"".join(
        np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<")).tobytes()
        for array in tokens
        if array is not None
    )


def tokens_of(stored: bytes, codec: TokenCodec) -> PackedTokens:
    """Read the result of `token_bytes`; the arrays are read-only views."""
    count, rest = divmod(len(stored), codec.token_bytes)
    if rest:
        raise ShapeError(f"a multiple of {codec.token_bytes} bytes of tokens", (len(stored),))
    arrays: dict[str, np.ndarray] = {}
    start = 0
    for array in codec.arrays:
        shape = (count, *array.row_shape)
        size = int(np.prod(shape))
        little = array.dtype.newbyteorder("<")
        arrays[array.field] = np.frombuffer(stored, little, size, start).reshape(shape)
        start += size * array.dtype.itemsize
    return PackedTokens(**arrays)
