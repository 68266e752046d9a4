"""Items as rows of a Milvus collection, filters over these rows, and batches of rows.

A row's key is a digest of the item's id, so that ids may be of any length and contain anything.
The supported releases of Milvus have no field type for bytes: tokens are stored as base64 in as
many text fields as they need.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from aladin_index.engines.client import CollectionSchema, EngineItem, messages_of
from aladin_index.engines.filter_fields import (
    field_key,
    filter_fields,
    number_key,
    terms_of,
    text_bound,
)
from aladin_index.engines.record import item_from_text, item_text, token_bytes, tokens_of
from aladin_index.items.filters import And, Bound, Comparison, Equal, Exists, Filter, Not, Or, Range
from aladin_index.tokens.codec import CODED, PackedTokens, TokenCodec
from aladin_network.errors import EngineError, InputError, brief
from aladin_network.types import TokenDtype

TERMS, EXTENTS = "terms", "extents"

# One of a field's values satisfies a bound exactly if the greatest, or the smallest, does.
_COMPARISONS: dict[Comparison, tuple[str, str]] = {
    "gt": ("greatest", ">"),
    "gte": ("greatest", ">="),
    "lt": ("least", "<"),
    "lte": ("least", "<="),
}
_ESCAPES = {'"': '\\"', "\\": "\\\\"} | {chr(code): f"\\x{code:02x}" for code in (*range(32), 127)}

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


def extent_name(field: str, kind: str, end: str) -> str:
    """Return the key in `EXTENTS` of the smallest or greatest value of a field.

    Args:
        field: `field_key` of the field.
        kind: "number" or "text".
        end: "least" or "greatest".
    """
    return f"{field}_{kind}_{end}"


def expression(filter: Filter) -> str:
    """Write a filter as an expression of Milvus.

    Raises:
        InputError: If a range compares with a text that is longer than the stored part of texts.
    """
    if isinstance(filter, Not):
        return f"not ({expression(filter.part)})"
    if isinstance(filter, And):
        return " and ".join(f"({expression(part)})" for part in filter.parts)
    if isinstance(filter, Or):
        return " or ".join(f"({expression(part)})" for part in filter.parts)
    if isinstance(filter, Range):
        return " and ".join(f"({_bound(filter.field, bound)})" for bound in filter.bounds)
    return _terms(filter)


def quoted(text: str) -> str:
    """Write a text as a literal; characters that are not printable are escaped."""
    return '"' + "".join(_ESCAPES.get(letter, letter) for letter in text) + '"'


def _terms(test: Equal | Exists) -> str:
    wanted = ", ".join(quoted(term) for term in terms_of(test))
    return f"array_contains_any({TERMS}, [{wanted}])"


def _bound(field: str, bound: Bound) -> str:
    end, sign = _COMPARISONS[bound.comparison]
    kind = bound.value.kind
    # Numbers are stored as texts of the same order: Milvus compares numbers in JSON as floats.
    if kind == "number":
        limit = number_key(bound.value.value).text
    else:
        limit = text_bound(field, bound.value)
    name = extent_name(field_key(field), kind, end)
    return f'{EXTENTS}["{name}"] {sign} {quoted(limit)}'


KEY, MATCH, ITEM = "key", "match", "item"
# Limits of Milvus: bytes of a text and of a JSON field, elements of an array.
MAX_TEXT_BYTES, MAX_JSON_BYTES, MAX_TERMS = 65_535, 65_536, 4096
# Base64 writes three bytes as four letters.
_BYTES_A_TEXT = MAX_TEXT_BYTES // 4 * 3


class CollectionForm(NamedTuple):
    """How a collection is stored; written as the description of the Milvus collection.

    Attributes:
        embedding_dim: Size of an embedding.
        token_dtype: Storage format of the tokens.
        token_dim: Size of a token.
        token_texts: Number of fields that hold the tokens of a row.
        index_kind: Index kind of its first stage, see `aladin_index.engines.milvus.index_kinds`.
    """

    embedding_dim: int
    token_dtype: TokenDtype
    token_dim: int
    token_texts: int
    index_kind: str

    @classmethod
    def of(cls, schema: CollectionSchema, index_kind: str) -> CollectionForm:
        """Choose the form of a collection with an index kind."""
        needed = _ROOM * schema.max_tokens * schema.codec.token_bytes
        texts = max(1, -(-needed // _BYTES_A_TEXT))
        return cls(schema.embedding_dim, schema.codec.dtype, schema.codec.dim, texts, index_kind)

    @classmethod
    def read(cls, description: str) -> CollectionForm:
        """Parse the description of a collection.

        Raises:
            EngineError: If the description was not written by this program.
        """
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
    """Return the row of an item.

    Args:
        entry: Item with its embedding and tokens.
        form: Form of the collection.

    Raises:
        InputError: If the item is larger than Milvus accepts.
    """
    assert entry.embedding is not None and entry.tokens is not None  # as upserts have them
    fields = filter_fields(entry.item.metadata)
    if len(fields.values) > MAX_TERMS:
        raise _too_large(entry, "values of metadata", MAX_TERMS, len(fields.values))
    extents = {
        extent_name(field, kind, end): value
        for kind, ends in (("number", _number_ends(fields.numbers)), ("text", fields.texts))
        for field, extent in ends.items()
        for end, value in (("least", extent[0]), ("greatest", extent[1]))
    }
    text = item_text(entry.item)
    for what, most, value in (
        ("bytes of text and metadata", MAX_TEXT_BYTES, text),
        ("bytes of the ends of metadata fields", MAX_JSON_BYTES, json.dumps(extents)),
    ):
        if len(value.encode("utf-8")) > most:
            raise _too_large(entry, what, most, len(value.encode("utf-8")))
    stored = token_bytes(entry.tokens)
    if len(stored) > form.token_texts * _BYTES_A_TEXT:
        raise _too_large(entry, "bytes of tokens", form.token_texts * _BYTES_A_TEXT, len(stored))
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
        TERMS: fields.values,
        EXTENTS: extents,
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


def _number_ends(numbers: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    return {field: (each.least.text, each.greatest.text) for field, each in numbers.items()}


def _too_large(entry: EngineItem, what: str, most: int, found: int) -> InputError:
    return InputError(
        f"item {brief(entry.item.id)}: Milvus takes at most {most} {what}, this one has {found}"
    )


def batches(rows: Sequence[Mapping[str, Any]]) -> Iterator[list[Mapping[str, Any]]]:
    """Yield rows in batches that fit in one message, in the given order."""
    return messages_of(rows, lambda row: sum(map(_size, row.values())), _BATCH_BYTES, _BATCH_ROWS)


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
