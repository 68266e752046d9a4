"""Items as rows, and what is too large for one."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aladin_index.engines.rows import (
    ITEM,
    KEY,
    MATCH,
    CollectionForm,
    EngineItem,
    batches,
    entry_of,
    item_from_text,
    item_text,
    key_of,
    parts_of,
    row_of,
)
from aladin_index.items.tables import StoredItem
from aladin_index.tokens.codec import TokenCodec
from aladin_network.errors import EngineError, IndexCorruptError, InputError
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


def test_items_over_a_limit_of_milvus_are_refused() -> None:
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


TEXT = StoredItem(7, "a\0\u2028é", None, None, "two dogs", "photo 1", None, None, {})
PHOTO = StoredItem(
    row=2**62,
    id="photo 1",
    uri="album/1.png",
    path="/photos/1.png",
    text=None,
    image_id=None,
    width_px=640,
    height_px=480,
    metadata={"a": [1, 2.5, True, None, {"b": "ü"}], "big": 2**62},
    offset=512,
    length=99,
    boxes=bytes(range(256)),
)


@pytest.mark.parametrize("item", [TEXT, PHOTO])
def test_an_item_comes_back(item: StoredItem) -> None:
    assert item_from_text(item_text(item)) == item


def test_fields_that_are_none_are_omitted() -> None:
    expected = '{"row":1,"id":"a","metadata":{},"offset":0}'
    assert item_text(StoredItem(1, "a", None, None, None, None, None, None, {})) == expected


@pytest.mark.parametrize("text", ["{", "[1]", '{"row":1,"unknown":2}', '{"boxes":"%"}'])
def test_any_other_text_is_refused(text: str) -> None:
    with pytest.raises(IndexCorruptError, match="item in the engine"):
        item_from_text(text)


MOST_BYTES, MOST_ROWS = 4 * 2**20, 2000


@given(st.lists(st.sampled_from([0, 1, 2**18, 2**19, 3 * 2**19 + 1, 2**21]), max_size=30))
def test_no_message_is_too_large_unless_one_row_is(sizes: list[int]) -> None:
    texts = {size: "x" * size for size in set(sizes)}
    rows = [{"text": texts[size]} for size in sizes]
    made = list(batches(rows))
    assert [row for batch in made for row in batch] == rows
    for batch in made:
        assert sum(len(row["text"]) for row in batch) <= MOST_BYTES
    for batch, after in pairwise(made):
        assert sum(len(row["text"]) for row in [*batch, after[0]]) > MOST_BYTES


def test_a_row_that_is_too_large_goes_alone() -> None:
    rows: list[dict[str, Any]] = [{"text": "x" * length} for length in (1, MOST_BYTES + 1, 1)]
    assert list(batches(rows)) == [[rows[0]], [rows[1]], [rows[2]]]


def test_small_rows_go_together() -> None:
    codec = codec_of("float16")
    rows = [row_of(entry(1, codec), CollectionForm.of(schema_of(codec), "flat"))] * (MOST_ROWS + 1)
    assert [len(batch) for batch in batches(rows)] == [MOST_ROWS, 1]
    assert list(batches([])) == []


def test_keys_in_parts() -> None:
    keys = [str(number) for number in range(2500)]
    parts = list(parts_of(keys))
    assert [len(part) for part in parts] == [1000, 1000, 500]
    assert [key for part in parts for key in part] == keys
    assert list(parts_of([])) == []
    assert [len(part) for part in parts_of(keys, 999)] == [999, 999, 502]
