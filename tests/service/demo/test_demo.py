"""The demo and the first job of a new machine, small: what they make, and going on with it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from aladin_index.building.builder import build_index
from aladin_index.format.layout import BUILD, generation_folder, live_generation
from aladin_index.generations.reader import open_index
from aladin_index.search.searcher import TwoStageSearcher
from aladin_network.calibration.calibration import CALIBRATION, Calibration
from aladin_network.errors import ConfigError, DataError
from aladin_network.types import NullProgress, Progress
from aladin_service.demo import SCENES
from aladin_service.demo.prepare import prepare_index
from aladin_service.demo.run import calibrate_demo, draw_demo, run_demo, train_demo
from aladin_service.item_sources import image_items, text_items
from aladin_service.reports.tables import metrics_table
from aladin_training.config.recipe import load_recipe
from aladin_training.config.shipped import recipes_folder
from tests.index.searching import run_search

QUICK = [f"stage.{stage}.epochs=1" for stage in ("teacher", "words", "student")]


class Units(NullProgress):
    """Remembers what was worked on, and ends the job after some texts, as a kill would."""

    def __init__(self, texts: float = float("inf")) -> None:
        self.seen: list[str] = []
        self._left = texts

    def start(self, total: int | None, unit: str) -> None:
        del total
        self.seen.append(unit)

    def advance(self, count: int = 1) -> None:
        if self.seen[-1] == "texts":
            self._left -= count
            if self._left < 0:
                raise KeyboardInterrupt


@pytest.fixture(scope="module", autouse=True)
def quick_training() -> Iterator[None]:
    """Trains an epoch of each stage, where nothing else is said."""

    def train(out: Path, data: Path, progress: Progress, overrides: list[str] = QUICK) -> Path:
        return train_demo(out, data, progress, overrides)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("aladin_service.demo.run.train_demo", train)
        yield


@pytest.fixture(scope="module")
def demo(
    tmp_path_factory: pytest.TempPathFactory, calibrate_without_a_fit: Callable[..., None]
) -> Path:
    """A finished demo, made by the first job of nothing; its probabilities took no fit."""
    place = tmp_path_factory.mktemp("demo")
    (place / "empty").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("aladin_service.demo.run.calibrate_system", calibrate_without_a_fit)
        run_demo(place / "demo", NullProgress(), scenes=48, overrides=QUICK)
        nothing = {"photos": place / "empty", "model": place / "empty"}
        prepare_index(place / "index", place / "demo", NullProgress(), **nothing, scenes=48)
    return place


@pytest.mark.parametrize("index", ["demo/index", "index"])
def test_the_demo_and_the_first_job_make_data_a_network_and_an_index_of_the_test_scenes(
    demo: Path, make_calibration: Callable[..., Calibration], index: str
) -> None:
    lines = (demo / "demo" / "data" / "captions.jsonl").read_text().splitlines()
    splits = [json.loads(line)["split"] for line in lines]
    counts = {split: splits.count(split) for split in set(splits)}
    assert counts == {"train": 36, "val": 6, "test": 6}
    with open_index(demo / index) as opened:
        assert opened.manifest.images is not None and opened.manifest.texts is not None
        assert opened.manifest.images.count == 6
        assert opened.manifest.texts.count == 6 * len(json.loads(lines[0])["captions"])
        assert opened.checkpoint.provenance.stage == "student"
        # The checkpoint was calibrated before the index was built.
        model_id = opened.checkpoint.model_id
        assert opened.manifest.calibration == make_calibration(model_id, photos=6)


def test_a_second_time_the_demo_only_searches_and_its_table_has_every_way(demo: Path) -> None:
    units = Units()
    rows = run_demo(demo / "demo", units, scenes=48, overrides=QUICK).rows
    assert not {"scenes", "steps"} & set(units.seen)
    names = ["matching alone", "exhaustive alignment", "two-stage, default", "two-stage, fusion 1"]
    assert [row.name for row in rows] == names
    assert all(row.ms_a_query is not None and row.ms_a_query > 0 for row in rows)
    # Six scenes are all candidates, so the papers' rule through the index is the exhaustive
    # alignment; float16 tokens may turn one near tie.
    for ours, theirs in zip(rows[3].metrics, rows[1].metrics, strict=True):
        assert ours[:3] == pytest.approx(theirs[:3], abs=100 / 6 + 0.1)
    table = metrics_table("test scenes", rows)
    assert [column.header for column in table.columns][-2:] == ["\nrsum", "ms a\nquery"]
    assert list(table.columns[11].cells) == [f"{row.metrics.rsum:.1f}" for row in rows]
    with pytest.raises(ConfigError):
        run_demo(demo / "demo", NullProgress(), scenes=48, overrides=[*QUICK, "seed=5"])


@pytest.mark.parametrize(("scenes", "held_out"), [(3, 1), (48, 6), (SCENES, 375)])
def test_one_scene_in_eight_and_at_most_375_are_held_out_twice(
    scenes: int, held_out: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, Any]] = []

    def draw(folder: Path, **numbers: Any) -> Path:
        asked.append(numbers)
        return folder

    monkeypatch.setattr("aladin_service.demo.run.draw_data_set", draw)
    draw_demo(tmp_path, scenes, NullProgress())
    found = [asked[0][f"{split}scenes"] for split in ("", "val_", "test_")]
    assert found == [scenes, held_out, held_out]


def test_the_demo_is_computed_alike_on_all_processors() -> None:
    recipe = load_recipe(recipes_folder() / "demo.toml")
    assert (recipe.precision, recipe.threads) == ("float32", 1)


def test_too_few_scenes_are_indexed_without_probabilities(
    demo: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trained = demo / "demo" / "run" / "checkpoint"
    checkpoint = Path(shutil.copytree(trained, tmp_path / "checkpoint"))
    (checkpoint / CALIBRATION).unlink()
    calibrate_demo(checkpoint, demo / "demo" / "data" / "captions.jsonl", NullProgress())
    assert not (checkpoint / CALIBRATION).exists()
    assert "no probabilities: calibration: expected at least 20 photos" in caplog.text


@pytest.mark.slow
def test_the_demos_hits_have_probabilities(tmp_path: Path) -> None:
    # The fewest scenes that probabilities can be fitted with: one in eight validates.
    folder = run_demo(tmp_path, NullProgress(), scenes=160, overrides=QUICK).index
    with open_index(folder) as opened:
        searcher = TwoStageSearcher(opened)
        first_text = next(opened.collection("texts").items.ids())[0]
        query, _ = searcher.stored_query(first_text)[:2]
        answer = run_search(searcher, query, "text", "images", k=3)
    assert answer.probabilities_reliable is True
    assert all(0 < (hit.probability or 0) < 1 for hit in answer.hits)


def test_an_index_that_is_live_is_left_as_it_is(demo: Path, data_file: Path) -> None:
    units = Units()
    # Even with other photos: what was added over HTTP belongs to the generation that is live.
    assert prepare_index(demo / "index", demo / "demo", units, photos=data_file) is None
    assert (units.seen, live_generation(demo / "index")) == ([], 1)


@pytest.mark.parametrize("own_model", [True, False])
def test_photos_are_indexed_with_the_given_model_or_the_demos_and_nothing_is_trained_twice(
    demo: Path, tmp_path: Path, data_file: Path, tiny_checkpoint: Path, own_model: bool
) -> None:
    units, model = Units(), {"model": tiny_checkpoint} if own_model else {}
    made = tmp_path / "demo" if own_model else demo / "demo"
    report = prepare_index(tmp_path / "index", made, units, photos=data_file, **model, scenes=48)
    assert report is not None and report.counts == {"images": 6, "texts": 12}
    assert not {"scenes", "steps"} & set(units.seen)
    assert made.exists() != own_model


def test_photos_without_captions_make_an_index_of_photos(
    tmp_path: Path, data_file: Path, tiny_checkpoint: Path
) -> None:
    photos, index = tmp_path / "photos", tmp_path / "index"
    photos.mkdir()
    shutil.copy(data_file.parent / "photo-0.png", photos)
    given = {"photos": photos, "model": tiny_checkpoint}
    report = prepare_index(index, tmp_path / "demo", NullProgress(), **given)
    assert report is not None and report.counts == {"images": 1}
    with pytest.raises(DataError):
        gone = given | {"photos": tmp_path / "nowhere"}
        prepare_index(tmp_path / "none", tmp_path / "demo", NullProgress(), **gone)
    assert not (tmp_path / "none" / "CURRENT").exists()


def test_a_job_that_was_killed_goes_on_where_it_was_unless_the_photos_are_others(
    tmp_path: Path, data_file: Path, tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resumed: list[bool] = []

    def prepare(name: str, progress: NullProgress, photos: Path = data_file) -> Any:
        given = {"photos": photos, "model": tiny_checkpoint}
        return prepare_index(tmp_path / name, tmp_path / "demo", progress, **given)

    def build(*arguments: Any) -> object:
        resumed.append(arguments[4].resume)
        return build_index(*arguments)

    for name in ("index", "other"):
        with pytest.raises(KeyboardInterrupt):
            prepare(name, Units(texts=0))
    plan = (tmp_path / "index" / BUILD / "plan.json").read_text()
    monkeypatch.setattr("aladin_service.demo.prepare.build_index", build)
    prepare("index", NullProgress())
    assert resumed == [True]
    items = image_items(data_file, None), text_items(data_file, None)
    build_index(tiny_checkpoint, tmp_path / "alone", *items)
    one, alone = generation_folder(tmp_path / "index", 1), generation_folder(tmp_path / "alone", 1)
    assert json.loads(plan)["fingerprint"] in (one / "manifest.json").read_text()
    for file in sorted(each for each in one.rglob("*.npy")):
        assert file.read_bytes() == (alone / file.relative_to(one)).read_bytes()

    fewer = Path(shutil.copytree(data_file.parent, tmp_path / "fewer")) / data_file.name
    fewer.write_text("".join(data_file.read_text().splitlines(keepends=True)[:4]))
    assert prepare("other", NullProgress(), fewer).counts == {"images": 4, "texts": 8}
