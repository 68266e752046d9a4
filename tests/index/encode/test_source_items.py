from pathlib import Path

from aladin_index.encode.source_items import ImageItem, TextItem, item_from_json, item_json


def test_item_json_tells_apart_what_differs() -> None:
    photo = ImageItem(id="a", path=Path("/x/a.jpg"), uri="a.jpg", metadata={"b": 1, "a": 2})
    same = ImageItem(id="a", path=Path("/x/a.jpg"), uri="a.jpg", metadata={"a": 2, "b": 1})
    moved = ImageItem(id="a", path=Path("/y/a.jpg"), uri="a.jpg", metadata={"a": 2, "b": 1})
    assert item_json(photo) == item_json(same)
    assert item_json(photo) != item_json(moved)


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
