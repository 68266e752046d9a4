"""Which regions belong to which photo."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from aladin_network.errors import RegionError
from aladin_network.photos.files import PhotoFile
from aladin_training.data import Record
from aladin_training.data.regions import RegionStore, open_regions, region_key, region_keys
from tests.training.data.regions.region_files import encoded, vectors, write_lines


def record(uri: str, photo_id: str | None = None, **metadata: Any) -> Record:
    return Record(
        id=photo_id or uri, photo=PhotoFile(Path("/none")), uri=uri, captions=(), metadata=metadata
    )


def store_of(tmp_path: Path, *keys: str) -> RegionStore:
    rows = [[key, "2", encoded(vectors(2))] for key in keys]
    return open_regions(write_lines(tmp_path / "features.tsv", rows))


COCO = "val2014/COCO_val2014_000000391895.jpg"


@pytest.mark.parametrize(
    ("photo", "key"),
    [
        (record(COCO, cocoid=391895), "391895"),
        (record(COCO), "391895"),
        (record(COCO), "000000391895"),
        (record(COCO), "COCO_val2014_000000391895"),
        (record(COCO), COCO),
        (record("a.jpg", "my id"), "my id"),
        (record("flickr30k/1000092795.jpg"), "1000092795"),
        (record("0.jpg"), "0"),
    ],
)
def test_names_that_regions_go_by(tmp_path: Path, photo: Record, key: str) -> None:
    assert region_key(photo, store_of(tmp_path, "another", key)) == key


def test_the_surest_name_counts(tmp_path: Path) -> None:
    names = ["5", "an id", "a/b12.jpg", "b12", "12"]
    for first in range(len(names)):
        store = store_of(tmp_path, *reversed(names[first:]))
        assert region_key(record("a/b12.jpg", "an id", cocoid=5), store) == names[first]


def test_all_photos_without_regions_are_one_error(tmp_path: Path) -> None:
    store = store_of(tmp_path, "1", "3")
    photos = [record(f"{number}.jpg") for number in range(1, 7)]
    assert region_keys([photos[0], photos[2]], store) == ["1", "3"]
    missing = r"4 of 6 .* '2\.jpg', '4\.jpg', '5\.jpg', \.\.\.; looked"
    with pytest.raises(RegionError, match=missing):
        region_keys(photos, store)
    with pytest.raises(
        RegionError, match=r"features\.tsv: 1 of 1 .* '5', 'a/b012\.jpg', 'b012', '012', '12' am"
    ):
        region_key(record("a/b012.jpg", cocoid=5), store)
