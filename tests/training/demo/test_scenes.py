"""Groups of scenes, and the demo's data set on disk."""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter
from itertools import combinations
from pathlib import Path
from random import Random

import pytest

from aladin_network.errors import ConfigError
from aladin_network.photos.decoding import read_image
from aladin_training.data import read_records
from aladin_training.demo import scenes as module
from aladin_training.demo.layout import BACKGROUNDS, SHAPES, deal_group
from aladin_training.demo.scenes import draw_data_set


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small data set."""
    return draw_data_set(
        tmp_path_factory.mktemp("demo"), scenes=40, val_scenes=8, test_scenes=10, seed=3
    )


def test_splits_captions_and_pictures(file: Path) -> None:
    records = read_records(file)
    assert Counter(record.split for record in records) == {"train": 22, "val": 8, "test": 10}
    assert all(len(set(record.captions)) == 5 for record in records)
    assert all(read_image(record.photo).size == (96, 96) for record in records)
    assert len({record.photo.read() for record in records}) == 40


def test_scenes_of_a_group_stand_together_in_one_split(file: Path) -> None:
    def bag(record: object) -> str:
        objects = record.metadata["scene"]["objects"]  # type: ignore[attr-defined]
        attributes = ("shape", "colour", "pattern", "size")
        return str([sorted(thing[name] for thing in objects) for name in attributes])

    for split, sizes in (("train", [4, 4, 4, 4, 4, 2]), ("val", [4, 4]), ("test", [4, 4, 2])):
        bags = itertools.groupby(map(bag, read_records(file, split)))
        assert [len(list(run)) for _, run in bags] == sizes


def test_the_same_arguments_draw_the_same_files_and_another_seed_others(tmp_path: Path) -> None:
    small = {"scenes": 6, "val_scenes": 2, "test_scenes": 2}
    once, again, other = (
        draw_data_set(tmp_path / name, seed=seed, **small)
        for name, seed in (("once", 3), ("again", 3), ("other", 4))
    )
    assert once.read_bytes() == again.read_bytes() != other.read_bytes()
    for line in once.read_text().splitlines():
        image = json.loads(line)["image"]
        assert (once.parent / image).read_bytes() == (again.parent / image).read_bytes()


def test_an_interrupted_drawing_leaves_no_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw_data_set(tmp_path, scenes=6, val_scenes=2, test_scenes=2)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "draw_scene", interrupt)
    with pytest.raises(KeyboardInterrupt):
        draw_data_set(tmp_path, scenes=6, val_scenes=2, test_scenes=2, seed=1)
    assert [path.name for path in tmp_path.iterdir()] == ["images"]


@pytest.mark.parametrize(
    "numbers",
    [{"scenes": 4, "val_scenes": 2, "test_scenes": 2}, {"captions": 0}, {"seed": 1, "size_px": 0}],
)
def test_impossible_numbers_are_refused(tmp_path: Path, numbers: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="demo data"):
        draw_data_set(tmp_path, **numbers)


def test_scenes_of_a_group_show_the_same_things() -> None:
    random = Random(0)
    for _ in range(50):
        group = deal_group(random, 4)
        assert len({scene.background for scene in group}) == 1
        for attribute in ("shape", "colour", "pattern", "size"):
            bags = [
                Counter(getattr(thing, attribute) for thing in scene.objects) for scene in group
            ]
            assert all(bag == bags[0] for bag in bags), attribute


def test_objects_neither_overlap_nor_leave_the_picture() -> None:
    random = Random(0)
    for _ in range(200):
        (scene,) = deal_group(random, 1)
        for thing in scene.objects:
            for centre in (thing.x, thing.y):
                assert thing.radius < centre < 1 - thing.radius
        for one, other in combinations(scene.objects, 2):
            assert math.dist((one.x, one.y), (other.x, other.y)) > 0.9 * (one.radius + other.radius)
        assert len({thing.shape for thing in scene.objects}) == len(scene.objects) in (2, 3)


def test_everything_occurs() -> None:
    random = Random(0)
    scenes = [deal_group(random, 1)[0] for _ in range(300)]
    assert {scene.background for scene in scenes} == set(BACKGROUNDS)
    assert {thing.shape for scene in scenes for thing in scene.objects} == set(SHAPES)
