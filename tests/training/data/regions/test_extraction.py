"""A data set's photos, and the folder of their regions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from aladin_network.errors import ConfigError, DataError, InputError
from aladin_network.photos.files import PhotoFile
from aladin_network.photos.regions import RegionSet
from aladin_training.data.records import Record
from aladin_training.data.regions import open_regions, region_key
from aladin_training.data.regions.extraction import extract_regions


class Corner:
    """One region: the colour of the first pixel; takes no photo of one pixel."""

    def __init__(self, id: str = "corner") -> None:
        self.id, self.dim, self.calls = id, 3, 0

    def detect(self, photo: Image.Image) -> RegionSet:
        self.calls += 1
        if photo.size == (1, 1):
            raise InputError("too small")
        colour = np.asarray(photo)[:1, 0].astype(np.float32)
        boxes = np.array([[0, 0, 0.5, 0.5]], np.float32)
        return RegionSet(colour, boxes, ("pixel",), photo.size, self.id)


def records(folder: Path, ids: list[str]) -> list[Record]:
    made: list[Record] = []
    for number, each in enumerate(ids):
        path = folder / f"{number}.png"
        Image.new("RGB", (4, 3), (number, 0, 9)).save(path)
        made.append(Record(id=each, photo=PhotoFile(path), uri=f"{number}.png", captions=()))
    return made


def test_every_photo_gets_a_file_that_is_read_again(tmp_path: Path) -> None:
    photos = records(tmp_path, ["a", "folder/b.png", ".hidden", "ü %2F"])
    report = extract_regions(photos, Corner(), tmp_path / "out", batch_size=3)
    assert report == (4, 0, ())
    store = open_regions(tmp_path / "out")
    assert len(store) == 4
    for number, record in enumerate(photos):
        found = store.read(region_key(record, store))
        assert found.vectors[0, :3].tolist() == [number, 0, 9]
        assert (found.labels, found.size_px, found.detector) == (("pixel",), (4, 3), "corner")


def test_photos_that_have_regions_are_not_detected_again(tmp_path: Path) -> None:
    photos = records(tmp_path, ["a", "b", "c"])
    out = tmp_path / "out"
    extract_regions(photos[:2], Corner(), out)
    detector = Corner()
    assert extract_regions(photos, detector, out)[:2] == (1, 2)
    assert detector.calls == 1
    with pytest.raises(ConfigError, match="holds regions of corner, this detector is another"):
        extract_regions(photos, Corner("another"), out)


def test_damaged_photos_are_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    photos = records(tmp_path, ["a", "b", "c", "d"])
    photos[1].photo.path.write_bytes(b"no photo")
    Image.new("RGB", (1, 1)).save(photos[2].photo.path)
    photos[3].photo.path.unlink()
    report = extract_regions(photos, Corner(), tmp_path / "out", batch_size=4)
    assert report.written == 1
    assert [name for name, _ in report.skipped] == ["b", "c", "d"]
    assert "skipped c: too small" in caplog.text
    assert list(open_regions(tmp_path / "out").keys()) == ["a"]


def test_folders_and_ids_that_cannot_be(tmp_path: Path) -> None:
    photos = records(tmp_path, ["a", "a"])
    with pytest.raises(DataError, match="two photos have the id 'a'"):
        extract_regions(photos, Corner(), tmp_path / "out")
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    np.savez(foreign / "x.npz", vectors=np.ones((1, 2)))
    with pytest.raises(ConfigError, match="of an unknown detector"):
        extract_regions(photos[:1], Corner(), foreign)
