from dataclasses import replace
from pathlib import Path

import pytest

from aladin_index.encode.source_items import (
    ImageItem,
    TextItem,
    check_item,
    item_from_json,
    item_json,
)
from aladin_network.errors import InputError


def test_an_item_comes_back_from_its_json() -> None:
    photo = ImageItem(
        id="ä\u2028",
        path=Path("/x/all.tar"),
        uri="a.jpg",
        text="caption",
        metadata={"b": [1, None, "x"], "a": {"deep": True}},
        offset=512,
        length=77,
    )
    text = TextItem(id="t", text="two\nlines", metadata={"x": 1.5}, image_id="a")
    assert item_from_json(item_json(photo), "images") == photo
    assert item_from_json(item_json(text), "texts") == text
    same = replace(photo, metadata={"a": {"deep": True}, "b": [1, None, "x"]})
    assert item_json(same) == item_json(photo) != item_json(replace(photo, path=Path("/y/a")))


@pytest.mark.parametrize(
    ("item", "message"),
    [
        (TextItem(id="", text="a"), "texts: expected an id, got an empty text"),
        (TextItem(id="..", text="a"), r"texts: expected an id that a URL can hold, got '\.\.'"),
        (TextItem(id="a\nb", text="a"), r"expected an id without control characters, got 'a\\nb'"),
        (TextItem(id="a\x7f", text="a"), r"without control characters, got 'a\\x7f'"),
        (TextItem(id="i" * 50_000, text="a"), r"at most 4096 characters, got 50000: 'iii.{,200}$"),
        (TextItem(id="a", text="\ud800"), "item 'a' cannot be stored"),
        (TextItem(id="a", text="a", metadata={"n": float("nan")}), "item 'a' cannot be stored"),
        (TextItem(id="a", text="a", metadata={"n": {1, 2}}), "item 'a' cannot be stored"),
        (
            TextItem(id="a", text="a", metadata={"n": "x" * 65_536}),
            "texts: item 'a': metadata: expected at most 65536 bytes of JSON, got 65545",
        ),
    ],
)
def test_items_that_cannot_be_stored_are_refused(item: TextItem, message: str) -> None:
    with pytest.raises(InputError, match=message):
        check_item(item, "texts")
