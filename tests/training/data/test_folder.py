"""A folder of photos."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from PIL import Image

from aladin_network.errors import DataError
from aladin_training.data import iter_records, read_records
from aladin_training.data.folder import read_folder
from aladin_training.data.folder_rules import FolderRules
from aladin_training.data.records import SkippedPhoto, Source, strict_data


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Photos in two levels beside what is none."""
    for name in ("b.JPG", "a.png", "sub/c.webp", ".hidden/d.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.new("RGB", (4, 4)).save(tmp_path / name)
    (tmp_path / "notes.md").write_text("no photo")
    (tmp_path / "e.png").mkdir()
    return tmp_path


def test_all_photos_sorted_by_path(photos: Path) -> None:
    records = read_records(photos, require_captions=False)
    assert [record.id for record in records] == ["a.png", "b.JPG", "sub/c.webp"]
    assert records[2].photo.path == photos / "sub" / "c.webp"
    assert all(record.captions == () and record.split is None for record in records)


def test_captions_are_the_lines_of_a_text_file(photos: Path) -> None:
    (photos / "a.txt").write_bytes("\ufeffa dog\r\n\r\n  ein Hündchen \r\n".encode())
    records = read_records(photos, require_captions=False)
    assert records[0].captions == ("a dog", "ein Hündchen")
    with pytest.raises(DataError, match=r"b\.JPG: photo 'b\.JPG' has no caption"):
        read_records(photos)


def test_a_caption_file_that_is_not_text(photos: Path) -> None:
    (photos / "a.txt").write_bytes(b"caf\xe9")
    with strict_data(True), pytest.raises(DataError, match=r"a\.txt: cannot be read as UTF-8 text"):
        read_records(photos, require_captions=False)


def test_details_beside_a_photo(photos: Path) -> None:
    (photos / "a.json").write_text('{"caption": "a dog", "year": 1999, "exif": "x"}')
    (photos / "b.json").write_text('{"status": "failed_to_resize"}')
    (photos / "sub" / "c.json").write_text('{"caption": "not this", "split": "val"}')
    (photos / "sub" / "c.txt").write_text("but this")
    first, second = read_records(photos)
    assert (first.id, first.captions, first.metadata) == ("a.png", ("a dog",), {"year": 1999})
    assert (second.captions, second.split) == (("but this",), "val")
    (photos / "a.json").write_text("[1]")
    with strict_data(True), pytest.raises(DataError, match=r"a\.json: expected a JSON object"):
        read_records(photos)


@pytest.mark.parametrize(
    ("details", "captions", "metadata"),
    [
        # gallery-dl: the number of a post, which all of its photos have
        ({"id": 77, "num": 0, "title": "my post"}, (), {"id": 77, "num": 0, "title": "my post"}),
        ({"key": "77", "text": "so long"}, (), {"key": "77", "text": "so long"}),
        ({"id": 77, "title": "my post", "caption": "a dog"}, ("a dog",), None),
        ({"status": "published"}, (), {}),
        (
            {
                "title": "a.png",
                "description": "Anna on the beach",
                "photoTakenTime": {"timestamp": "1258375918"},
                "geoData": {"latitude": 30.65, "longitude": 104.07},
                "people": [{"name": "Anna"}],
            },
            (),
            {},
        ),
    ],
)
def test_files_of_other_programs_neither_identify_nor_describe_a_photo(
    photos: Path,
    details: dict[str, object],
    captions: tuple[str, ...],
    metadata: dict[str, object] | None,
) -> None:
    for stem in ("a", "b", "sub/c"):
        (photos / f"{stem}.json").write_text(json.dumps(details))
    records = read_records(photos, require_captions=False)
    assert [record.id for record in records] == ["a.png", "b.JPG", "sub/c.webp"]
    assert {record.captions for record in records} == {captions}
    if metadata is not None:
        assert [record.metadata for record in records] == [metadata] * 3


def test_labels_of_a_detector_are_no_captions(photos: Path) -> None:
    (photos / "a.txt").write_text("0 0.481 0.634 0.690 0.713\n16 0.741 5.2e-05 0.314 0.933\n")
    (photos / "b.txt").write_text("7 of 9 dogs\n0 1 2 3 4\n")
    records = read_records(photos, require_captions=False)
    assert [record.captions for record in records] == [(), ("7 of 9 dogs", "0 1 2 3 4"), ()]


@pytest.mark.parametrize("suffix", [".txt", ".json"])
def test_a_large_file_beside_a_photo_is_not_read(
    photos: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    side = (photos / "a.png").with_suffix(suffix)
    side.write_text('{"caption": "a dog"}')
    os.truncate(side, 65_537)
    monkeypatch.setattr(Path, "read_bytes", lambda _: pytest.fail("it was read"))
    skipped: list[SkippedPhoto] = []
    entries = read_folder(Source(photos, photos, skipped.append, rules=FolderRules()))
    assert [entry.record.captions for entry in entries] == [(), (), ()]
    reason = "65537 bytes, at most 65536 are read beside a photo"
    assert [each[:2] for each in skipped] == [(side.name, f"not used for its photo: {reason}")]
    with strict_data(True), pytest.raises(DataError, match=f"{side.name}: {reason}"):
        read_records(photos, require_captions=False)


def test_folders_are_listed_when_they_are_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a/1.png", "b/2.png", "c.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.new("RGB", (4, 4)).save(tmp_path / name)
    listed: list[str] = []
    scandir = os.scandir

    def noted(folder: Path) -> object:
        listed.append(Path(folder).name)
        return scandir(folder)

    monkeypatch.setattr("os.scandir", noted)
    records = iter_records(tmp_path, require_captions=False)
    assert next(records).id == "a/1.png"
    assert listed == [tmp_path.name, "a"]
    assert [record.id for record in records] == ["b/2.png", "c.png"]


def test_links_to_photos_count_and_links_to_folders_do_not(photos: Path) -> None:
    (photos / "link.png").symlink_to(photos / "a.png")
    (photos / "round").symlink_to(photos)
    found = [record.id for record in read_records(photos, require_captions=False)]
    assert found == ["a.png", "b.JPG", "link.png", "sub/c.webp"]


def test_a_folder_without_photos(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no photo"):
        read_records(tmp_path)


def test_a_split_of_a_folder_without_splits_names_the_way_to_take_all(tmp_path: Path) -> None:
    Image.new("RGB", (4, 4)).save(tmp_path / "1.png")
    (tmp_path / "1.txt").write_text("a dog\n")
    with pytest.raises(DataError, match="has no split 'test', it has none; expected split 'all'"):
        read_records(tmp_path, "test")
