"""Texts to search for."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from aladin_network.errors import DataError
from aladin_network.types import TextItem
from aladin_training.data.records import strict_data
from aladin_training.data.texts import iter_texts


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    """A photo named a.png."""
    Image.new("RGB", (4, 4)).save(tmp_path / "a.png")
    return tmp_path / "a.png"


def write(folder: Path, *lines: str) -> Path:
    file = folder / "texts.jsonl"
    file.write_text("\n".join(lines), encoding="utf-8")
    return file


def test_text_lines(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        "",
        '{"id": "1", "text": "a dög"}',
        '{"id": "2", "text": "b", "metadata": {"k": 1}}',
    )
    assert list(iter_texts(file)) == [
        TextItem(id="1", text="a dög"),
        TextItem(id="2", text="b", metadata={"k": 1}),
    ]


def test_captions_as_texts(photo: Path) -> None:
    line = '{"image": "a.png", "id": "A", "captions": ["one", "two"], "metadata": {"k": 1}}'
    file = write(photo.parent, line)
    assert list(iter_texts(file)) == [
        TextItem(id="A#0", text="one", metadata={"k": 1}, image_id="A"),
        TextItem(id="A#1", text="two", metadata={"k": 1}, image_id="A"),
    ]


def test_a_photo_without_captions_has_no_text(photo: Path) -> None:
    lines = ['{"image": "a.png"}', '{"image": "b.png", "captions": ["one"]}']
    assert [record.id for record in iter_texts(write(photo.parent, *lines))] == ["b.png#0"]


def test_a_table_of_texts(tmp_path: Path) -> None:
    file = tmp_path / "texts.csv"
    file.write_text("id,text,year\n7,a dog,1999\nx,two dogs,\n", encoding="utf-8")
    assert list(iter_texts(file)) == [
        TextItem(id="7", text="a dog", metadata={"year": 1999}),
        TextItem(id="x", text="two dogs"),
    ]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("id,text\n1,a\n2,\n", r"texts\.csv:3: expected an id and a text, got id '2' and 0 texts"),
        ("text,n\na,1\n", r"texts\.csv:2: expected an id and a text, got id None and 1 texts"),
        ("id,n\n1,2\n", "expected a column of photos or of texts, got the columns 'id', 'n'"),
    ],
)
def test_a_table_of_texts_that_cannot_be_used(tmp_path: Path, content: str, reason: str) -> None:
    file = tmp_path / "texts.csv"
    file.write_text(content, encoding="utf-8")
    with strict_data(True), pytest.raises(DataError, match=reason):
        list(iter_texts(file))


def test_captions_of_a_table_of_photos(tmp_path: Path) -> None:
    file = tmp_path / "photos.tsv"
    file.write_text("filepath\ttitle\na.jpg\tone\na.jpg\ttwo\n", encoding="utf-8")
    assert [(record.id, record.text, record.image_id) for record in iter_texts(file)] == [
        ("a.jpg#0", "one", "a.jpg"),
        ("a.jpg#1", "two", "a.jpg"),
    ]


def test_captions_of_one_split_of_a_folder(tmp_path: Path) -> None:
    for split in ("train", "test"):
        (tmp_path / split).mkdir()
        Image.new("RGB", (4, 4)).save(tmp_path / split / "1.png")
        (tmp_path / split / "1.txt").write_text(f"of {split}")
    assert [record.id for record in iter_texts(tmp_path, "test")] == ["test/1.png#0"]
    assert len(list(iter_texts(tmp_path))) == 2


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"text": "b"}', "lacks the field 'id'"),
        ('{"id": "2"}', "lacks the field 'text'"),
        ('{"id": "2", "text": " "}', "text: is blank"),
        ('{"id": 2, "text": "b"}', "id: expected a text, got a number"),
        ('{"id": "2", "text": "b", "lang": "en"}', "unknown field 'lang'"),
        ('{"id": "2", "text": "b", "metadata": 1}', "metadata: expected an object"),
        ("text", "not JSON"),
    ],
)
def test_a_text_line_that_cannot_be_used(tmp_path: Path, line: str, reason: str) -> None:
    file = write(tmp_path, '{"id": "1", "text": "a"}', line)
    with strict_data(True), pytest.raises(DataError, match=rf"texts\.jsonl:2: .*{reason}"):
        list(iter_texts(file))


def test_an_empty_file_and_a_missing_one(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no"):
        list(iter_texts(write(tmp_path)))
    with pytest.raises(DataError, match="no such file"):
        list(iter_texts(tmp_path / "none.jsonl"))
