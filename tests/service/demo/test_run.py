"""The demo, small: every step of the path, its table, and going on where it was."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aladin_index.generations.reader import open_index
from aladin_index.search.searcher import TwoStageSearcher
from aladin_network.calibration.calibration import CALIBRATION, Calibration
from aladin_network.errors import ConfigError
from aladin_network.types import NullProgress
from aladin_service.demo import SCENES
from aladin_service.demo.run import calibrate_demo, draw_demo, run_demo
from aladin_service.reports.tables import metrics_table
from aladin_training.config.recipe import load_recipe
from aladin_training.config.shipped import recipes_folder
from tests.index.searching import run_search

QUICK = [f"stage.{stage}.epochs=1" for stage in ("teacher", "words", "student")]


class Units(NullProgress):
    """Remembers what was worked on."""

    def __init__(self) -> None:
        self.seen: dict[str, int | None] = {}

    def start(self, total: int | None, unit: str) -> None:
        """Note the unit."""
        self.seen[unit] = total


@pytest.fixture(scope="module")
def out(
    tmp_path_factory: pytest.TempPathFactory, calibrate_without_a_fit: Callable[..., None]
) -> Path:
    """A folder with a finished demo, whose probabilities took no fit."""

    folder = tmp_path_factory.mktemp("demo")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("aladin_service.demo.run.calibrate_system", calibrate_without_a_fit)
        run_demo(folder, NullProgress(), scenes=48, overrides=QUICK)
    return folder


def test_the_demo_leaves_data_network_and_an_index_of_the_test_scenes(
    out: Path, make_calibration: Callable[..., Calibration]
) -> None:
    lines = (out / "data" / "captions.jsonl").read_text().splitlines()
    splits = [json.loads(line)["split"] for line in lines]
    assert {split: splits.count(split) for split in set(splits)} == {
        "train": 36,
        "val": 6,
        "test": 6,
    }
    with open_index(out / "index") as opened:
        assert opened.manifest.images is not None
        assert opened.manifest.images.count == 6
        assert opened.manifest.texts is not None
        assert opened.manifest.texts.count == 6 * len(json.loads(lines[0])["captions"])
        assert opened.checkpoint.provenance.stage == "student"
        # The checkpoint was calibrated before the index was built.
        model_id = opened.checkpoint.model_id
        assert opened.manifest.calibration == make_calibration(model_id, photos=6)


def test_a_second_time_it_only_searches_and_its_table_has_every_way(out: Path) -> None:
    units = Units()
    rows = run_demo(out, units, scenes=48, overrides=QUICK).rows
    assert "scenes" not in units.seen
    assert "steps" not in units.seen
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


def test_a_folder_of_another_recipe_is_refused(out: Path) -> None:
    with pytest.raises(ConfigError):
        run_demo(out, NullProgress(), scenes=48, overrides=[*QUICK, "seed=5"])


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
    (numbers,) = asked
    assert [numbers[f"{split}scenes"] for split in ("", "val_", "test_")] == [
        scenes,
        held_out,
        held_out,
    ]


def test_the_demo_is_computed_alike_on_all_processors() -> None:
    recipe = load_recipe(recipes_folder() / "demo.toml")
    assert (recipe.precision, recipe.threads) == ("float32", 1)


def test_too_few_scenes_are_indexed_without_probabilities(
    out: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    checkpoint = Path(shutil.copytree(out / "run" / "checkpoint", tmp_path / "checkpoint"))
    (checkpoint / CALIBRATION).unlink()
    calibrate_demo(checkpoint, out / "data" / "captions.jsonl", NullProgress())
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
