import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aladin_index.building import catalogue as module
from aladin_index.building.catalogue import Catalogue, write_catalogue
from aladin_index.encode.source_items import ImageItem, SourceItem, TextItem
from aladin_index.format.skipped import SkippedItem
from aladin_index.settings import BuildSettings
from aladin_network.errors import InputError
from aladin_network.types import NullProgress


def text(item_id: str, **fields: Any) -> TextItem:
    return TextItem(id=item_id, text="words", **fields)


def catalogue(
    folder: Path, items: Any, target: Any = "texts", settings: BuildSettings | None = None
) -> Catalogue:
    file = folder / f"{len(list(folder.iterdir()))}.sqlite"
    settings = settings or BuildSettings()
    write_catalogue(file, target, items, NullProgress(), settings)
    return Catalogue(file, target, settings)


def test_items_are_read_back_by_their_rows(tmp_path: Path) -> None:
    items = [
        text(f"id {row}", metadata={"row": row, "tags": ["a", 1, None]}) for row in range(2500)
    ]
    listed = catalogue(tmp_path, iter(items))
    assert listed.rows == range(2500)
    assert listed.items(range(0)) == []
    assert listed.items(range(990, 1010)) == items[990:1010]
    assert listed.items(range(2490, 9999)) == items[2490:]
    listed.close()


def test_a_source_is_read_a_few_items_at_a_time(tmp_path: Path) -> None:
    alive = 0
    most = 0

    class Counted(TextItem):
        def __del__(self) -> None:
            nonlocal alive
            alive -= 1

    def source() -> Iterator[SourceItem]:
        nonlocal alive, most
        for row in range(2_000):
            alive += 1
            most = max(most, alive)
            yield Counted(id=str(row), text="words")

    assert len(catalogue(tmp_path, source()).rows) == 2_000
    assert most <= 2


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ([], "texts: expected at least one item"),
        ([text("a"), text("b"), text("a")], "id 'a' repeats, item 3 after item 1"),
        ([text("a"), text("")], "item 2: texts: expected an id, got an empty text"),
        ([text("a", metadata={"x": float("nan")})], "item 'a' cannot be stored"),
        ([text("a", metadata={"x": "x" * 70_000})], "item 'a': metadata: expected at most 65536"),
    ],
)
def test_items_that_no_index_could_hold_are_refused(
    tmp_path: Path, items: list[TextItem], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        catalogue(tmp_path, items, settings=BuildSettings(strict=True))


def test_items_that_no_index_could_hold_are_left_out_where_they_stand(tmp_path: Path) -> None:
    items = [text("a"), text(""), text("b"), text("a"), text("c\n"), text("d", metadata={"x": {1}})]
    found = catalogue(tmp_path, [*items, text("e")])
    assert [item.id for item in found.items(range(3))] == ["a", "b", "e"]
    skipped = found.skipped()
    assert [each.id for each in skipped] == ["item 2", "a", "c\\n", "d"]
    assert skipped[1].reason == "texts: id 'a' repeats, item 4 after item 1"


@pytest.mark.parametrize(("first", "second"), [(0, 1), (999, 1000), (3, 2345)])
def test_a_repeated_id_is_named_with_both_places(tmp_path: Path, first: int, second: int) -> None:
    ids = [str(row) for row in range(3000)]
    ids[first] = ids[second] = "twice"
    found = catalogue(tmp_path, map(text, ids))
    assert found.rows == range(2999)
    (skipped,) = found.skipped()
    assert skipped.id == "twice"
    assert skipped.reason.endswith(f"repeats, item {second + 1} after item {first + 1}")


def test_the_fingerprint_is_of_what_was_said_and_of_the_files(tmp_path: Path) -> None:
    photo = tmp_path / "a.jpg"
    photo.write_bytes(b"12")
    os.utime(photo, ns=(0, 5))
    work = tmp_path / "work"
    work.mkdir()

    def fingerprint(*items: SourceItem, settings: BuildSettings | None = None) -> str:
        target = "images" if isinstance(items[0], ImageItem) else "texts"
        return catalogue(work, items, target, settings).fingerprint()

    image = ImageItem(id="1", path=photo, uri="a.jpg")
    other = ImageItem(id="2", path=tmp_path / "b.jpg", uri="b.jpg")
    before = fingerprint(image)
    assert before == fingerprint(image)
    # Of the rows of the part alone: the other photos may be on another machine.
    first_of_two = BuildSettings(part=(1, 2), batch_size=1)
    assert before == fingerprint(image, other, settings=first_of_two)
    prints = {
        before,
        fingerprint(image, other),
        fingerprint(other),
        fingerprint(text("1")),
        fingerprint(text("1", metadata={"a": 1})),
        fingerprint(ImageItem(id="1", path=photo, uri="a.jpg", offset=1, length=1)),
    }
    os.utime(photo, ns=(0, 6))
    prints.add(fingerprint(image))
    photo.unlink()
    prints.add(fingerprint(image))
    assert len(prints) == 8


def test_more_distinct_fields_than_can_have_an_index_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_FILTER_FIELDS", 3)
    items = [text(name, metadata={"all": 1, name: 2}) for name in "abc"]
    catalogue(tmp_path, items[:2]).close()
    with pytest.raises(InputError, match=r"at most 3 distinct metadata fields.* by item 'c'"):
        catalogue(tmp_path, items)
    catalogue(tmp_path, items, settings=BuildSettings(filter_fields=("all",))).close()


def test_skipped_items_belong_to_the_part_of_their_neighbours(tmp_path: Path) -> None:
    before, between, behind = (SkippedItem(f"{name}.heic", "HEIC") for name in ("0", "1a", "3"))
    everything = [before, text("1"), between, text("2"), behind]
    listed = catalogue(tmp_path, everything)
    assert listed.items(range(2)) == [text("1"), text("2")]
    assert listed.skipped() == [before, between, behind]
    for part, expected in ((1, [before]), (2, [between, behind])):
        settings = BuildSettings(part=(part, 2), batch_size=1)
        assert catalogue(tmp_path, everything, settings=settings).skipped() == expected
    without = catalogue(tmp_path, [text("1"), text("2")])
    assert without.fingerprint() != listed.fingerprint()
    with pytest.raises(InputError, match=r"got none; 2 skipped, e\.g\. '0\.heic': HEIC"):
        catalogue(tmp_path, [before, between])
