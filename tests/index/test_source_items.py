from pathlib import Path

import pytest

from aladin.errors import InputError
from index.source_items import ImageItem, TextItem, check_items, item_json


def text(item_id: str, **fields: object) -> TextItem:
    return TextItem(id=item_id, text="words", **fields)  # type: ignore[arg-type]


def test_items_with_ids_of_their_own_pass() -> None:
    check_items([text("1"), text("2", metadata={"tags": ["a", 1, None, {"deep": True}]})], "texts")


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ([], "texts: expected at least one item"),
        ([text("a"), text("b"), text("a")], "id 'a' repeats, item 3 after item 1"),
        ([text("a"), text("")], "item 2 has an empty id"),
        ([text("a", metadata={"x": float("nan")})], "item 'a' cannot be stored"),
        ([text("a", metadata={"x": object()})], "item 'a' cannot be stored"),
        ([text("a", metadata={"x": "\ud800"})], "item 'a' cannot be stored"),
    ],
)
def test_items_that_no_index_could_hold_are_refused(items: list[TextItem], message: str) -> None:
    with pytest.raises(InputError, match=message):
        check_items(items, "texts")


def test_item_json_tells_apart_what_differs() -> None:
    photo = ImageItem(id="a", path=Path("/x/a.jpg"), uri="a.jpg", metadata={"b": 1, "a": 2})
    same = ImageItem(id="a", path=Path("/x/a.jpg"), uri="a.jpg", metadata={"a": 2, "b": 1})
    moved = ImageItem(id="a", path=Path("/y/a.jpg"), uri="a.jpg", metadata={"a": 2, "b": 1})
    assert item_json(photo) == item_json(same)
    assert item_json(photo) != item_json(moved)
