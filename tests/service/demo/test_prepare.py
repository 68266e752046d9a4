"""The first job on a new machine: what it builds from what, and what it leaves alone."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

import aladin_service.demo.run
from aladin_index.building.builder import build_index
from aladin_index.format.layout import BUILD, generation_folder, live_generation
from aladin_index.generations.reader import open_index
from aladin_network.calibration.calibration import Calibration
from aladin_network.errors import DataError
from aladin_network.types import NullProgress
from aladin_service.demo.prepare import prepare_index
from aladin_service.demo.run import train_demo
from aladin_service.item_sources import image_items, text_items


class Units(NullProgress):
    """Remembers what was worked on."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def start(self, total: int | None, unit: str) -> None:  # noqa: ARG002
        """Note the unit."""
        self.seen.append(unit)


class Killed(NullProgress):
    """Ends the job after some texts, as a kill would."""

    def __init__(self, after: int) -> None:
        self._left, self._unit = after, ""

    def start(self, total: int | None, unit: str) -> None:  # noqa: ARG002
        """Note the unit."""
        self._unit = unit

    def advance(self, count: int = 1) -> None:
        """Count down."""
        if self._unit == "texts":
            self._left -= count
            if self._left < 0:
                raise KeyboardInterrupt


def test_given_photos_and_model_are_indexed(
    tmp_path: Path, data_file: Path, tiny_checkpoint: Path
) -> None:
    units = Units()
    report = prepare_index(
        tmp_path / "index", tmp_path / "demo", units, photos=data_file, model=tiny_checkpoint
    )
    assert report is not None
    assert report.counts == {"images": 6, "texts": 12}
    assert "steps" not in units.seen
    assert not (tmp_path / "demo").exists()


def test_photos_without_captions_make_an_index_of_photos(
    tmp_path: Path, data_file: Path, tiny_checkpoint: Path
) -> None:
    photos = tmp_path / "photos"
    photos.mkdir()
    for number in range(2):
        shutil.copy(data_file.parent / f"photo-{number}.png", photos)
    report = prepare_index(
        tmp_path / "index", tmp_path / "demo", NullProgress(), photos=photos, model=tiny_checkpoint
    )
    assert report is not None
    assert report.counts == {"images": 2}


# Otherwise than the demo's own: one round of training of each stage.
QUICK = ["stage.teacher.epochs=1", "stage.student.epochs=1", "precision=float32"]


@pytest.fixture(scope="module")
def fresh(
    tmp_path_factory: pytest.TempPathFactory, calibrate_without_a_fit: Callable[..., None]
) -> Path:
    """What the job makes of nothing: of folders that are empty."""
    place = tmp_path_factory.mktemp("fresh")
    (place / "empty").mkdir()
    empty = place / "empty"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(aladin_service.demo.run, "train_demo", partial(train_demo, overrides=QUICK))
        patch.setattr("aladin_service.demo.run.calibrate_system", calibrate_without_a_fit)
        prepare_index(
            place / "index", place / "demo", NullProgress(), photos=empty, model=empty, scenes=8
        )
    return place


def test_of_nothing_it_draws_trains_calibrates_and_indexes_the_test_scenes(
    fresh: Path, make_calibration: Callable[..., Calibration]
) -> None:
    lines = (fresh / "demo" / "data" / "captions.jsonl").read_text().splitlines()
    tested = [line for line in map(json.loads, lines) if line["split"] == "test"]
    with open_index(fresh / "index") as opened:
        assert opened.manifest.images is not None
        assert opened.manifest.images.count == len(tested) == 1
        assert opened.manifest.texts is not None
        assert opened.manifest.texts.count == 5
        assert opened.checkpoint.provenance.stage == "student"
        # Fitted to the one scene that validates.
        calibration = opened.manifest.calibration
        assert calibration == make_calibration(opened.checkpoint.model_id, photos=1)


def test_an_index_that_is_live_is_left_as_it_is(fresh: Path, data_file: Path) -> None:
    units = Units()
    # Even with other photos: what was added over HTTP belongs to the generation that is live.
    assert prepare_index(fresh / "index", fresh / "demo", units, photos=data_file) is None
    assert units.seen == []
    assert live_generation(fresh / "index") == 1


def test_without_a_model_photos_get_the_demos_and_nothing_is_trained_twice(
    fresh: Path,
    tmp_path: Path,
    data_file: Path,
    monkeypatch: pytest.MonkeyPatch,
    exports: list[Path],
) -> None:
    monkeypatch.setattr(aladin_service.demo.run, "train_demo", partial(train_demo, overrides=QUICK))
    units = Units()
    report = prepare_index(tmp_path / "index", fresh / "demo", units, photos=data_file, scenes=8)
    assert report is not None
    assert report.counts == {"images": 6, "texts": 12}
    assert not {"scenes", "steps"} & set(units.seen)
    assert exports == [fresh / "demo" / "run" / "checkpoint"]


def test_killed_it_goes_on_where_it_was(
    tmp_path: Path,
    data_file: Path,
    tiny_checkpoint: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    index, demo = tmp_path / "index", tmp_path / "demo"
    with pytest.raises(KeyboardInterrupt):
        prepare_index(index, demo, Killed(after=0), photos=data_file, model=tiny_checkpoint)
    plan = (index / BUILD / "plan.json").read_text()
    resumed: list[bool] = []

    def build(*arguments: object) -> object:
        resumed.append(arguments[4].resume)  # pyright: ignore[reportAttributeAccessIssue]
        return build_index(*arguments)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr("aladin_service.demo.prepare.build_index", build)
    prepare_index(index, demo, NullProgress(), photos=data_file, model=tiny_checkpoint)
    assert resumed == [True]
    build_index(
        tiny_checkpoint,
        tmp_path / "left-alone",
        image_items(data_file, None),
        text_items(data_file, None),
    )
    one, other = generation_folder(index, 1), generation_folder(tmp_path / "left-alone", 1)
    assert json.loads(plan)["fingerprint"] in (one / "manifest.json").read_text()
    for file in sorted(each for each in one.rglob("*.npy")):
        assert file.read_bytes() == (other / file.relative_to(one)).read_bytes()


def test_a_build_that_was_cut_short_of_other_photos_is_started_over(
    tmp_path: Path, data_file: Path, tiny_checkpoint: Path
) -> None:
    index, demo = tmp_path / "index", tmp_path / "demo"
    with pytest.raises(KeyboardInterrupt):
        prepare_index(index, demo, Killed(after=0), photos=data_file, model=tiny_checkpoint)
    fewer = data_file.parent / "fewer.jsonl"
    fewer.write_text("".join(data_file.read_text().splitlines(keepends=True)[:4]))
    report = prepare_index(index, demo, NullProgress(), photos=fewer, model=tiny_checkpoint)
    assert report is not None
    assert report.counts == {"images": 4, "texts": 8}


def test_photos_that_are_not_there_are_an_error(tmp_path: Path, tiny_checkpoint: Path) -> None:
    with pytest.raises(DataError):
        prepare_index(
            tmp_path / "index",
            tmp_path / "demo",
            NullProgress(),
            photos=tmp_path / "nowhere",
            model=tiny_checkpoint,
        )
    assert not (tmp_path / "index" / "CURRENT").exists()
