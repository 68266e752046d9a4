"""Items as rows, and what is too large for one."""

from __future__ import annotations

import json

import numpy as np
import pytest

from aladin_index.engines.rows import (
    ITEM,
    KEY,
    MATCH,
    CollectionForm,
    EngineItem,
    entry_of,
    key_of,
    row_of,
)
from aladin_index.tokens.codec import TokenCodec
from aladin_network.errors import EngineError, InputError
from aladin_network.types import TOKEN_DTYPES, TokenDtype
from tests.index.engines.made_up import (
    EMBEDDING_DIM,
    TOKEN_DIM,
    assert_same,
    codec_of,
    entry,
    schema_of,
    unit,
)


def form_of(codec: TokenCodec, max_tokens: int = 4) -> CollectionForm:
    return CollectionForm.of(schema_of(codec, max_tokens=max_tokens), "flat")


@pytest.mark.parametrize("dtype", TOKEN_DTYPES)
def test_a_row_is_the_item_again(dtype: TokenDtype) -> None:
    codec = codec_of(dtype)
    form = CollectionForm.read(form_of(codec).description)
    for number in range(7):
        kept = entry(number, codec)
        row = json.loads(json.dumps(row_of(kept, form)))
        found = entry_of(row, form)
        assert_same(found, kept)
        np.testing.assert_array_equal(found.embedding, kept.embedding)
        bare = entry_of({ITEM: row[ITEM]}, form)
        assert bare == EngineItem(kept.item, None, None)


def test_tokens_take_as_many_texts_as_they_need() -> None:
    codec = TokenCodec("float16", TOKEN_DIM)
    # 16 bytes a token, 65,535 letters of base64 a text: 49,149 bytes.
    assert form_of(codec, 1).token_texts == 1
    assert form_of(codec, 1535).token_texts == 1  # with room for twice as many
    assert form_of(codec, 1536).token_texts == 2
    # Of 48 MiB of an answer a row takes two texts at most, its item being one.
    assert form_of(codec, 1).rows_with_tokens == 384
    form = form_of(codec, 3100)
    assert form.rows_with_tokens == 192
    assert form.token_fields == ["tokens_0", "tokens_1", "tokens_2"]
    tokens = codec.pack(unit(np.random.default_rng(0), 6200, TOKEN_DIM))
    kept = entry(1, codec)._replace(tokens=tokens)
    row = row_of(kept, form)
    assert [len(row[name]) for name in form.token_fields] == [65_532, 65_532, 1204]
    assert_same(entry_of(row, form), kept)


def test_an_item_without_tokens_has_empty_texts() -> None:
    codec = codec_of("4bit")
    form = form_of(codec)
    kept = entry(1, codec)._replace(tokens=codec.pack(np.empty((0, TOKEN_DIM), np.float32)))
    row = row_of(kept, form)
    assert row["tokens_0"] == ""
    assert_same(entry_of(row, form), kept)


def test_what_is_too_large_is_said_so() -> None:
    codec = TokenCodec("float16", TOKEN_DIM)
    form = form_of(codec)
    small = entry(0, codec)
    tokens = codec.pack(unit(np.random.default_rng(0), 3072, TOKEN_DIM))
    with pytest.raises(InputError, match="at most 49149 bytes of tokens, this one has 49152"):
        row_of(small._replace(tokens=tokens), form)
    for metadata, message in (
        ({"text": "é" * 32_768}, "at most 65535 bytes of text and metadata"),
        ({"list": list(range(4096))}, "at most 4096 values of metadata, this one has 4097"),
        (
            {f"field {number}": "x" * 200 for number in range(150)},
            "at most 65536 bytes of the ends of metadata fields",
        ),
    ):
        with pytest.raises(InputError, match=message):
            row_of(entry(0, codec, metadata), form)
    row_of(entry(0, codec, {"list": list(range(4095))}), form)


def test_keys_are_short_and_of_one_item_each() -> None:
    ids = ["", "a", "A", "a ", "\0", "é", "e\u0301", "x" * 100_000, "\ud800"]
    keys = [key_of(item_id) for item_id in ids]
    assert len(set(keys)) == len(ids)
    assert all(len(key) == 32 and set(key) <= set("0123456789abcdef") for key in keys)
    row = row_of(entry(3, codec_of("int8")), form_of(codec_of("int8")))
    assert row[KEY] == key_of(entry(3, codec_of("int8")).item.id)
    assert len(row[MATCH]) == EMBEDDING_DIM


def test_a_collection_that_is_not_ours_is_refused() -> None:
    for description in ("", "photos of my cat", "{}", '{"token_dim": 3}'):
        with pytest.raises(EngineError, match="is described as"):
            CollectionForm.read(description)
