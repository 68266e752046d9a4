import random
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from aladin.photo_file import PhotoFile
from index.items.tables import StoredItem, create_tables, insert_items, write_items


def make_items(count: int, first: int = 0) -> list[StoredItem]:
    source = random.Random(first)
    return [
        StoredItem(
            row,
            f"photo {source.random()}",
            f"{row}.jpg",
            f"/photos/{row}.jpg",
            None,
            None,
            640,
            480,
            {"year": source.randrange(2000, 2025), "tags": ["a", f"t{row % 7}", "a"], "ü": row},
        )
        for row in range(first, first + count)
    ]


def lines(connection: sqlite3.Connection) -> list[Any]:
    statement = """SELECT name, kind, value, row FROM fields JOIN filter_fields USING (field)
                   ORDER BY name, kind, value, row"""
    return connection.execute(statement).fetchall()


def open_written(path: Path, items: list[StoredItem], fields: tuple[str, ...] | None) -> Any:
    write_items(path, items, fields)
    return sqlite3.connect(path)


def test_a_photo_is_found_in_the_file_that_holds_it() -> None:
    item = make_items(1)[0]
    assert item.photo == PhotoFile(Path("/photos/0.jpg"))
    inside = item._replace(path="/photos/00000.tar", offset=1536, length=99)
    assert inside.photo == PhotoFile(Path("/photos/00000.tar"), 1536, 99)
    assert item._replace(path=None).photo is None


def test_every_value_of_an_indexed_field_has_a_line(tmp_path: Path) -> None:
    metadata = {"a": [1, 1.0, True, "1", None, {"b": 2}], "b": {"c": 3}, "d": float("nan")}
    item = make_items(1)[0]._replace(metadata=metadata)
    connection = open_written(tmp_path / "items.sqlite", [item], None)
    assert lines(connection) == [("a", 0, 1, 0), ("a", 1, "1", 0), ("a", 2, 1, 0)]
    connection.close()


@pytest.mark.parametrize("fields", [None, ("tags", "unheard of"), ()])
def test_items_written_at_once_are_those_inserted_one_after_the_other(
    tmp_path: Path, fields: tuple[str, ...] | None
) -> None:
    items = make_items(300)
    written = open_written(tmp_path / "items.sqlite", items, fields)
    inserted = sqlite3.connect(":memory:")
    create_tables(inserted, fields)
    for item in items:
        insert_items(inserted, [item])
    for statement in ("SELECT * FROM items", "SELECT * FROM filter_fields"):
        assert written.execute(statement).fetchall() == inserted.execute(statement).fetchall()
    assert lines(written) == lines(inserted)
    names = {line[0] for line in lines(written)}
    assert names == ({"year", "tags", "ü"} if fields is None else {"tags"} & set(fields))
    for connection in (written, inserted):
        connection.close()


def test_the_same_items_make_the_same_file(tmp_path: Path) -> None:
    write_items(tmp_path / "a", make_items(2000))
    write_items(tmp_path / "b", iter(make_items(2000)))
    write_items(tmp_path / "c", make_items(1999))
    content = (tmp_path / "a").read_bytes()
    assert content == (tmp_path / "b").read_bytes()
    assert content != (tmp_path / "c").read_bytes()


def test_nothing_else_is_left_beside_the_file(tmp_path: Path) -> None:
    write_items(tmp_path / "items.sqlite", make_items(100))
    assert [path.name for path in tmp_path.iterdir()] == ["items.sqlite"]


def test_an_id_is_an_item_s_own(tmp_path: Path) -> None:
    twice = [item._replace(id="one") for item in make_items(2)]
    with pytest.raises(sqlite3.IntegrityError, match=r"items\.id"):
        write_items(tmp_path / "items.sqlite", twice)
    connection = sqlite3.connect(":memory:")
    create_tables(connection, None)
    with pytest.raises(sqlite3.IntegrityError, match=r"items\.id"):
        insert_items(connection, twice)
    connection.close()
