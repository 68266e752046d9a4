import random
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from aladin_index.items.tables import (
    StoredItem,
    count_fields,
    create_tables,
    field_names,
    insert_items,
    unknown_fields,
    write_items,
)
from aladin_network.photos.files import PhotoFile


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


def test_an_item_is_inserted_at_the_cost_of_its_own_fields(tmp_path: Path) -> None:
    """However many fields other items have, none of them is read."""
    wide = make_items(1)[0]._replace(metadata={f"field {number}": 1 for number in range(20_000)})
    connection = open_written(tmp_path / "items.sqlite", [wide], None)
    steps = 0

    def count() -> None:
        nonlocal steps
        steps += 100

    connection.set_progress_handler(count, 100)  # called for so many instructions of SQLite
    known, new = make_items(3)[1:]
    insert_items(connection, [known._replace(metadata={"field 7": [1, 2], "field 8": "a"})])
    insert_items(connection, [new._replace(metadata={"another": 3, "field 7": 4})])
    assert steps < 2000
    connection.set_progress_handler(None, 0)
    assert lines(connection)[0] == ("another", 0, 3, 2)
    found = [line[1:] for line in lines(connection) if line[0] == "field 7"]
    assert found == [(0, 1, 0), (0, 1, 1), (0, 2, 1), (0, 4, 2)]
    with_lists = "SELECT name FROM filter_fields WHERE has_lists"
    assert connection.execute(with_lists).fetchall() == [("field 7",)]
    connection.close()


def test_fields_with_an_index_are_counted_and_known(tmp_path: Path) -> None:
    empty = open_written(tmp_path / "empty.sqlite", [], None)
    assert (count_fields(empty), field_names(empty)) == (0, [])
    assert unknown_fields(empty, {"year"}) == {"year"}
    written = open_written(tmp_path / "items.sqlite", make_items(5), None)
    assert (count_fields(written), sorted(field_names(written))) == (3, ["tags", "year", "ü"])
    assert unknown_fields(written, {"year", "ü", "u", ""}) == {"u", ""}
    for connection in (empty, written):
        connection.close()


def test_the_same_items_make_the_same_file(tmp_path: Path) -> None:
    write_items(tmp_path / "a", make_items(2000))
    write_items(tmp_path / "b", iter(make_items(2000)))
    write_items(tmp_path / "c", make_items(1999))
    content = (tmp_path / "a").read_bytes()
    assert content == (tmp_path / "b").read_bytes()
    assert content != (tmp_path / "c").read_bytes()
    assert {path.name for path in tmp_path.iterdir()} == set("abc")


def test_an_id_is_an_item_s_own(tmp_path: Path) -> None:
    twice = [item._replace(id="one") for item in make_items(2)]
    with pytest.raises(sqlite3.IntegrityError, match=r"items\.id"):
        write_items(tmp_path / "items.sqlite", twice)
    connection = sqlite3.connect(":memory:")
    create_tables(connection, None)
    with pytest.raises(sqlite3.IntegrityError, match=r"items\.id"):
        insert_items(connection, twice)
    connection.close()
