"""From data files to items, one by one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from aladin_index.encode.source_items import ImageItem, TextItem
from aladin_index.format.skipped import SkippedItem
from aladin_network.errors import DataError
from aladin_service.item_sources import image_items, text_items


def write(folder: Path, *lines: object) -> Path:
    file = folder / "data.jsonl"
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    file.write_text("\n".join(texts), encoding="utf-8")
    return file


def test_of_long_texts_the_beginning_is_stored_and_said_by_name(tmp_path: Path) -> None:
    long = "dogs " * 20_000
    file = write(
        tmp_path,
        {"image": "a.png", "captions": ["d" * 2000]},
        {"image": "b.png", "captions": [long, "short"]},
    )
    reason = "indexed, but the first {} of its text's 100000 characters are kept"
    first, second, said = image_items(file, None)
    assert isinstance(first, ImageItem)
    assert isinstance(second, ImageItem)
    assert (first.text, second.text) == ("d" * 2000, long[:2000])
    assert said == SkippedItem("b.png", reason.format(2000))
    texts = list(text_items(file, None))
    assert texts[2] == SkippedItem("b.png#0", reason.format(65_536))
    kept = [text.text for text in texts if isinstance(text, TextItem)]
    assert kept == ["d" * 2000, long[:65_536], "short"]


def test_items_come_before_the_source_is_read_to_its_end(tmp_path: Path) -> None:
    file = write(tmp_path, {"image": "a.png", "captions": ["one"]}, "broken")
    images, texts = image_items(file, None), text_items(file, None)
    assert next(images).id == "a.png"
    assert next(texts).id == "a.png#0"
    for items in (images, texts):
        (skipped,) = items
        assert isinstance(skipped, SkippedItem)
        assert (skipped.id, skipped.reason[:8]) == ("data.jsonl:2", "not JSON")


def test_a_source_that_does_not_exist_is_refused_at_once(tmp_path: Path) -> None:
    for items in (image_items, text_items):
        with pytest.raises(DataError, match="no such file or folder"):
            items(tmp_path / "none.jsonl", None)


def test_items_of_photos_and_of_their_captions_of_all_splits_or_of_one(tmp_path: Path) -> None:
    first = {"image": "a.png", "captions": ["one", "two"], "id": "A", "metadata": {"n": 1}}
    file = write(tmp_path, first, {"image": "b.png", "captions": ["b"], "split": "val"})
    images, texts = list(image_items(file, None)), list(text_items(file, None))
    assert images == [
        ImageItem(id="A", path=tmp_path / "a.png", uri="a.png", text="one", metadata={"n": 1}),
        ImageItem(id="b.png", path=tmp_path / "b.png", uri="b.png", text="b"),
    ]
    assert texts == [
        TextItem(id="A#0", text="one", metadata={"n": 1}, image_id="A"),
        TextItem(id="A#1", text="two", metadata={"n": 1}, image_id="A"),
        TextItem(id="b.png#0", text="b", image_id="b.png"),
    ]
    assert list(image_items(file, "val")) == images[1:]
    assert list(text_items(file, "val")) == texts[2:]
