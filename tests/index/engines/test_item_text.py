"""An item as text, there and back."""

from __future__ import annotations

import pytest

from aladin_index.engines.rows import item_from_text, item_text
from aladin_index.items.tables import StoredItem
from aladin_network.errors import IndexCorruptError

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


def test_what_is_none_takes_no_room() -> None:
    expected = '{"row":1,"id":"a","metadata":{},"offset":0}'
    assert item_text(StoredItem(1, "a", None, None, None, None, None, None, {})) == expected


@pytest.mark.parametrize("text", ["{", "[1]", '{"row":1,"unknown":2}', '{"boxes":"%"}'])
def test_any_other_text_is_refused(text: str) -> None:
    with pytest.raises(IndexCorruptError, match="item in the engine"):
        item_from_text(text)
