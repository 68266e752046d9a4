"""Items as rows and names as Milvus has them, and what is too large for one."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aladin_index.engines.milvus import PARTS, collection_name, generations_of
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
def test_a_row_is_the_item_again_with_its_tokens_and_without(dtype: TokenDtype) -> None:
    codec = codec_of(dtype)
    form = CollectionForm.read(form_of(codec).description)
    no_tokens = codec.pack(np.empty((0, TOKEN_DIM), np.float32))
    for kept in (*(entry(n, codec) for n in range(7)), entry(1, codec)._replace(tokens=no_tokens)):
        row = json.loads(json.dumps(row_of(kept, form)))
        found = entry_of(row, form)
        assert_same(found, kept)
        np.testing.assert_array_equal(found.embedding, kept.embedding)
        assert (row[KEY], len(row[MATCH])) == (key_of(kept.item.id), EMBEDDING_DIM)
        assert entry_of({ITEM: row[ITEM]}, form) == EngineItem(kept.item, None, None)
    assert row["tokens_0"] == ""


def test_tokens_take_as_many_texts_as_they_need() -> None:
    codec = TokenCodec("float16", TOKEN_DIM)
    # 16 bytes a token, 65,535 letters of base64 a text: 49,149 bytes; with room for twice as many.
    assert [form_of(codec, most).token_texts for most in (1, 1535, 1536)] == [1, 1, 2]
    form = form_of(codec, 3100)
    # Of 48 MiB of an answer a row takes two texts at most, its item being one.
    assert (form_of(codec, 1).rows_with_tokens, form.rows_with_tokens) == (384, 192)
    assert form.token_fields == ["tokens_0", "tokens_1", "tokens_2"]
    tokens = codec.pack(unit(np.random.default_rng(0), 6200, TOKEN_DIM))
    kept = entry(1, codec)._replace(tokens=tokens)
    row = row_of(kept, form)
    assert [len(row[name]) for name in form.token_fields] == [65_532, 65_532, 1204]
    assert_same(entry_of(row, form), kept)


@pytest.mark.parametrize(
    ("metadata", "tokens", "message"),
    [
        ({}, 3072, "at most 49149 bytes of tokens, this one has 49152"),
        ({"text": "é" * 32_768}, 1, "at most 65535 bytes of text and metadata"),
        ({"list": list(range(4096))}, 1, "at most 4096 values of metadata, this one has 4097"),
        ({f"field {n}": "x" * 200 for n in range(150)}, 1, "at most 65536 bytes of the ends"),
        ({"list": list(range(4095))}, 3071, None),
    ],
    ids=["tokens", "text", "values", "ends", "just small enough"],
)
def test_items_over_a_limit_of_milvus_are_refused(
    metadata: dict[str, Any], tokens: int, message: str | None
) -> None:
    codec = TokenCodec("float16", TOKEN_DIM)
    packed = codec.pack(unit(np.random.default_rng(0), tokens, TOKEN_DIM))
    item = entry(0, codec, metadata)._replace(tokens=packed)
    if message is None:
        row_of(item, form_of(codec))
        return
    with pytest.raises(InputError, match=message):
        row_of(item, form_of(codec))


def test_keys_are_short_and_of_one_item_each() -> None:
    ids = ["", "a", "A", "a ", "\0", "é", "e\u0301", "x" * 100_000, "\ud800"]
    keys = [key_of(item_id) for item_id in ids]
    assert len(set(keys)) == len(ids)
    assert all(len(key) == 32 and set(key) <= set("0123456789abcdef") for key in keys)


PHOTO = StoredItem(
    row=2**62,
    id="a\0\u2028é",
    uri="album/1.png",
    path="/photos/1.png",
    text="two dogs",
    image_id="photo 1",
    width_px=640,
    height_px=480,
    metadata={"a": [1, 2.5, True, None, {"b": "ü"}], "big": 2**62},
    offset=512,
    length=99,
    boxes=bytes(range(256)),
)


def test_an_item_comes_back_from_its_text_and_other_text_is_refused() -> None:
    bare = StoredItem(1, "a", None, None, None, None, None, None, {})
    assert item_text(bare) == '{"row":1,"id":"a","metadata":{},"offset":0}'
    for item in (PHOTO, bare):
        assert item_from_text(item_text(item)) == item
    for text in ("{", "[1]", '{"row":1,"unknown":2}', '{"boxes":"%"}'):
        with pytest.raises(IndexCorruptError, match="item in the engine"):
            item_from_text(text)
    for description in ("", "photos of my cat", "{}", '{"token_dim": 3}'):
        with pytest.raises(EngineError, match="is described as"):
            CollectionForm.read(description)


MOST_BYTES, MOST_ROWS = 4 * 2**20, 2000


@given(
    st.lists(st.sampled_from([0, 1, 2**18, 2**19, 3 * 2**19 + 1, 2**21, 2**22 + 1]), max_size=30)
)
def test_no_message_is_too_large_unless_one_row_is(sizes: list[int]) -> None:
    texts = {size: "x" * size for size in set(sizes)}
    rows = [{"text": texts[size]} for size in sizes]
    made = list(batches(rows))
    assert [row for batch in made for row in batch] == rows
    for batch in made:
        assert len(batch) == 1 or sum(len(row["text"]) for row in batch) <= MOST_BYTES
    for batch, after in pairwise(made):
        assert sum(len(row["text"]) for row in [*batch, after[0]]) > MOST_BYTES


def test_rows_and_keys_go_in_parts_of_a_bounded_number() -> None:
    row = row_of(entry(1, codec_of("float16")), form_of(codec_of("float16")))
    assert [len(batch) for batch in batches([row] * (MOST_ROWS + 1))] == [MOST_ROWS, 1]
    keys = [str(number) for number in range(2500)]
    assert [key for part in parts_of(keys) for key in part] == keys
    assert [len(part) for part in parts_of(keys)] == [1000, 1000, 500]
    assert [len(part) for part in parts_of(keys, 999)] == [999, 999, 502]
    assert list(parts_of([])) == []


def test_a_name_tells_its_generation_and_those_of_others_are_left_alone() -> None:
    for generation, digits in ((3, "000003"), (999_999, "999999"), (1_000_000, "1000000")):
        names = [collection_name("photos", generation, part) for part in PARTS]
        assert names == [f"photos_{digits}_{part}" for part in ("record", "images", "texts")]
        assert generations_of("photos", names) == [generation]
    foreign = ["photos", "photos_000001", "photos_000001_other", "photos_00001_images"]
    foreign += ["photos_000001_images_2", "photos_2_000001_images", "my_photos_000001_images"]
    assert generations_of("photos", [*foreign, "photos_000010_texts", "photos_000002_record"]) == [
        2,
        10,
    ]
