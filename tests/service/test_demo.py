"""The demo, small: every step of the path, its table, and going on where it was."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from aladin.errors import ConfigError
from aladin.progress import NullProgress
from index.reader import open_index
from index.searcher import TwoStageSearcher
from service.demo import run_demo
from service.reports.tables import metrics_table

# The fewest that probabilities can be fitted with: one in eight validates.
SCENES = 160
QUICK = ["stage.teacher.epochs=1", "stage.student.epochs=1", "precision=float32"]


class Units(NullProgress):
    """Remembers what was worked on."""

    def __init__(self) -> None:
        self.seen: dict[str, int | None] = {}

    def start(self, total: int | None, unit: str) -> None:
        """Note the unit."""
        self.seen[unit] = total


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished demo."""
    folder = tmp_path_factory.mktemp("demo")
    run_demo(folder, NullProgress(), scenes=SCENES, overrides=QUICK)
    return folder


def test_the_demo_leaves_data_network_and_an_index_of_the_test_scenes(out: Path) -> None:
    lines = (out / "data" / "captions.jsonl").read_text().splitlines()
    splits = [json.loads(line)["split"] for line in lines]
    assert {split: splits.count(split) for split in set(splits)} == {
        "train": 120,
        "val": 20,
        "test": 20,
    }
    with open_index(out / "index") as opened:
        assert opened.manifest.images is not None
        assert opened.manifest.images.count == 20
        assert opened.manifest.texts is not None
        assert opened.manifest.texts.count == 20 * len(json.loads(lines[0])["captions"])
        assert opened.checkpoint.provenance.stage == "student"
        assert opened.manifest.calibration is not None
        assert opened.manifest.calibration.fitted_on.photos == 20
        searcher = TwoStageSearcher(opened)
        query, _ = searcher.encode_item(next(iter(opened.side("texts").items.rows_by_id())))
        answer = searcher.search(query, "text", "images", top_k=3)
        assert answer.match_probability is not None
        assert all(0 < (hit.probability or 0) < 1 for hit in answer.hits)


def test_a_second_time_it_only_searches_and_its_table_has_every_way(out: Path) -> None:
    units = Units()
    rows = run_demo(out, units, scenes=SCENES, overrides=QUICK).rows
    assert "scenes" not in units.seen
    assert "steps" not in units.seen
    names = ["matching alone", "exhaustive alignment", "two-stage, default", "two-stage, fusion 1"]
    assert [row.name for row in rows] == names
    assert all(row.ms_a_query is not None and row.ms_a_query > 0 for row in rows)
    # Twenty scenes are all candidates, so the papers' rule through the index is the exhaustive
    # alignment; float16 tokens may turn one near tie.
    for ours, theirs in zip(rows[3].metrics, rows[1].metrics, strict=True):
        assert ours[:3] == pytest.approx(theirs[:3], abs=100 / 20 + 0.1)
    table = metrics_table("test scenes", rows)
    assert [column.header for column in table.columns][-2:] == ["\nrsum", "ms a\nquery"]
    assert list(table.columns[11].cells) == [f"{row.metrics.rsum:.1f}" for row in rows]


def test_a_folder_of_another_recipe_is_refused(out: Path) -> None:
    with pytest.raises(ConfigError):
        run_demo(out, NullProgress(), scenes=SCENES, overrides=[*QUICK, "seed=5"])
