import dataclasses
import os
from pathlib import Path

import pytest

from aladin.errors import IndexMismatchError
from index.layout import BUILD, generation_folder
from index.manifest import ModelEntry
from index.plan import begin, discard, fingerprint_of
from index.settings import BuildSettings
from index.source_items import ImageItem, TextItem

MODEL = ModelEntry(id="abc", files={})
TEXT = TextItem(id="1", text="two dogs")
SETTINGS = BuildSettings()


def test_a_plan_is_resumed_only_by_the_same_build(tmp_path: Path) -> None:
    generation_folder(tmp_path, 6).mkdir(parents=True)
    plan = begin(tmp_path, "f00d", resume=True)
    assert plan.generation == 7
    (tmp_path / BUILD / "work").touch()
    assert begin(tmp_path, "f00d", resume=True) == plan
    with pytest.raises(IndexMismatchError, match="cannot resume"):
        begin(tmp_path, "beef", resume=True)
    assert (tmp_path / BUILD / "work").exists()
    assert begin(tmp_path, "beef", resume=False).fingerprint == "beef"
    assert not (tmp_path / BUILD / "work").exists()


@pytest.mark.parametrize("content", ["", '{"generation": 1}', "{", '{"fingerprint": "f00d"}'])
def test_a_damaged_plan_is_not_resumed(tmp_path: Path, content: str) -> None:
    begin(tmp_path, "f00d", resume=False)
    (tmp_path / BUILD / "plan.json").write_text(content)
    with pytest.raises(IndexMismatchError, match=r"plan\.json"):
        begin(tmp_path, "f00d", resume=True)
    begin(tmp_path, "f00d", resume=False)


def test_what_a_kill_left_of_a_discarded_build_is_cleared(tmp_path: Path) -> None:
    begin(tmp_path, "f00d", resume=False)
    (tmp_path / BUILD).rename(tmp_path / f"{BUILD}.discarded")
    discard(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_fingerprint_changes_with_all_that_changes_the_index(tmp_path: Path) -> None:
    photo = tmp_path / "a.jpg"
    photo.write_bytes(b"12")
    os.utime(photo, ns=(0, 5))
    image = ImageItem(id="1", path=photo, uri="a.jpg")
    one = fingerprint_of(MODEL, {"images": [image], "texts": [TEXT]}, SETTINGS)
    assert one == fingerprint_of(MODEL, {"images": [image], "texts": [TEXT]}, SETTINGS)
    without_effect = dataclasses.replace(SETTINGS, resume=True, readers=9)
    assert one == fingerprint_of(MODEL, {"images": [image], "texts": [TEXT]}, without_effect)
    others = {
        fingerprint_of(MODEL, {"images": [image]}, SETTINGS),
        fingerprint_of(MODEL, {"texts": [TEXT]}, SETTINGS),
        fingerprint_of(MODEL, {"images": [image], "texts": [TEXT] * 2}, SETTINGS),
        fingerprint_of(
            dataclasses.replace(MODEL, id="abd"), {"images": [image], "texts": [TEXT]}, SETTINGS
        ),
        fingerprint_of(
            MODEL, {"images": [image], "texts": [TEXT]}, dataclasses.replace(SETTINGS, ann="exact")
        ),
    }
    os.utime(photo, ns=(0, 6))
    others.add(fingerprint_of(MODEL, {"images": [image], "texts": [TEXT]}, SETTINGS))
    photo.unlink()
    others.add(fingerprint_of(MODEL, {"images": [image], "texts": [TEXT]}, SETTINGS))
    assert len(others | {one}) == 8
