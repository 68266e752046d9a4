"""The demo's data set on disk."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from aladin_network.errors import ConfigError
from aladin_network.photos.decoding import read_image
from aladin_training.data import read_records
from aladin_training.demo import scenes as module
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
        bags = [bag(record) for record in read_records(file, split)]
        assert [len(list(run)) for run in _runs(bags)] == sizes


def _runs(values: list[str]) -> list[list[str]]:
    runs: list[list[str]] = []
    for value in values:
        if runs and runs[-1][0] == value:
            runs[-1].append(value)
        else:
            runs.append([value])
    return runs


def test_the_same_arguments_draw_the_same_files(file: Path, tmp_path: Path) -> None:
    again = draw_data_set(tmp_path, scenes=40, val_scenes=8, test_scenes=10, seed=3)
    assert again.read_bytes() == file.read_bytes()
    for line in again.read_text().splitlines():
        image = json.loads(line)["image"]
        assert (tmp_path / image).read_bytes() == (file.parent / image).read_bytes()


def test_another_seed_draws_another_set(file: Path, tmp_path: Path) -> None:
    other = draw_data_set(tmp_path, scenes=40, val_scenes=8, test_scenes=10, seed=4)
    assert other.read_bytes() != file.read_bytes()


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


def test_progress_is_told_of_every_scene(tmp_path: Path) -> None:
    class Recorder:
        total = done = 0

        def start(self, total: int | None, unit: str) -> None:
            assert unit == "scenes"
            self.total = total or 0

        def advance(self, count: int = 1) -> None:
            self.done += count

        def note(self, **numbers: float | str) -> None:
            del numbers

    recorder = Recorder()
    draw_data_set(tmp_path, scenes=6, val_scenes=2, test_scenes=2, progress=recorder)
    assert (recorder.total, recorder.done) == (6, 6)


@pytest.mark.parametrize(
    "numbers",
    [{"scenes": 4, "val_scenes": 2, "test_scenes": 2}, {"captions": 0}, {"seed": 1, "size_px": 0}],
)
def test_impossible_numbers_are_refused(tmp_path: Path, numbers: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="demo data"):
        draw_data_set(tmp_path, **numbers)
