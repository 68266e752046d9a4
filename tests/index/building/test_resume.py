import dataclasses
from pathlib import Path

import pytest

from aladin_index.building.resume import (
    BuildPlan,
    begin,
    discard,
    fingerprint_of,
    is_placed,
    items_a_shard,
    rows_of_part,
)
from aladin_index.format.layout import BUILD, generation_folder
from aladin_index.format.manifest import ModelEntry, read_manifest
from aladin_index.settings import BuildSettings
from aladin_network.errors import ConfigError, IndexMismatchError, InputError

MODEL = ModelEntry(id="abc", files={})
SHARDS = {"texts": 32}
SETTINGS = BuildSettings()


def test_a_plan_is_resumed_only_by_the_same_build(tmp_path: Path) -> None:
    generation_folder(tmp_path, 6).mkdir(parents=True)
    plan = begin(tmp_path, "f00d", SHARDS, resume=True)
    assert plan.generation == 7
    (tmp_path / BUILD / "work").touch()
    # Other shards are asked for; those that are there count.
    assert begin(tmp_path, "f00d", {"texts": 64}, resume=True) == plan
    with pytest.raises(IndexMismatchError, match="cannot resume"):
        begin(tmp_path, "beef", SHARDS, resume=True)
    assert (tmp_path / BUILD / "work").exists()
    assert begin(tmp_path, "beef", SHARDS, resume=False).fingerprint == "beef"
    assert not (tmp_path / BUILD / "work").exists()
    for content in ("", '{"generation": 1}', "{", '{"fingerprint": "f00d"}'):  # damaged
        (tmp_path / BUILD / "plan.json").write_text(content)
        with pytest.raises(IndexMismatchError, match=r"plan\.json"):
            begin(tmp_path, "f00d", SHARDS, resume=True)
    begin(tmp_path, "f00d", SHARDS, resume=False)


def test_a_discarded_build_is_cleared_after_a_kill(tmp_path: Path) -> None:
    begin(tmp_path, "f00d", SHARDS, resume=False)
    (tmp_path / BUILD).rename(tmp_path / f"{BUILD}.discarded")
    discard(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_number_that_went_to_another_generation_is_not_this_plans(index_copy: Path) -> None:
    assert not is_placed(index_copy, BuildPlan(fingerprint="f00d", generation=1, shard_items={}))
    assert not is_placed(index_copy, BuildPlan(fingerprint="f00d", generation=2, shard_items={}))
    fingerprint = read_manifest(generation_folder(index_copy, 1)).fingerprint
    assert is_placed(index_copy, BuildPlan(fingerprint=fingerprint, generation=1, shard_items={}))


def test_the_fingerprint_changes_with_all_that_changes_the_index() -> None:
    one = fingerprint_of(MODEL, {"images": "i", "texts": "t"}, SETTINGS)
    without_effect = dataclasses.replace(
        SETTINGS, resume=True, readers=9, shards=3, shard_items=64, part=(1, 2)
    )
    assert one == fingerprint_of(MODEL, {"images": "i", "texts": "t"}, without_effect)
    others = {
        fingerprint_of(MODEL, {"images": "i"}, SETTINGS),
        fingerprint_of(MODEL, {"texts": "t"}, SETTINGS),
        fingerprint_of(MODEL, {"images": "i", "texts": "u"}, SETTINGS),
        fingerprint_of(
            dataclasses.replace(MODEL, id="abd"), {"images": "i", "texts": "t"}, SETTINGS
        ),
    }
    for change in (
        {"ann": "exact"},
        {"token_dtype": "4bit"},
        {"batch_size": 31},
        {"filter_fields": ("a",)},
        {"ann_recall": 0.9},
        {"memory_budget_bytes": 10**9},
        {"default_candidates": 50},
    ):
        settings = dataclasses.replace(SETTINGS, **change)  # type: ignore[arg-type]
        others.add(fingerprint_of(MODEL, {"images": "i", "texts": "t"}, settings))
    assert len(others | {one}) == 12


@pytest.mark.parametrize(
    ("count", "parts", "batch"), [(23, 3, 2), (23, 1, 5), (7, 7, 1), (9, 2, 4)]
)
def test_parts_cover_the_source_in_whole_batches(count: int, parts: int, batch: int) -> None:
    rows: list[int] = []
    for number in range(1, parts + 1):
        settings = BuildSettings(part=(number, parts), batch_size=batch)
        part = rows_of_part(count, settings, "images")
        assert part.start % batch == 0
        rows += part
    assert rows == list(range(count))
    with pytest.raises(InputError, match="part 1 of 3 is empty: 8 items make 2 batches of 4"):
        rows_of_part(8, BuildSettings(part=(1, 3), batch_size=4), "images")
    with pytest.raises(ConfigError, match="part: expected a number from 1 to 3, got 4"):
        BuildSettings(part=(4, 3))


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (BuildSettings(shard_items=5, batch_size=3), 6),
        (BuildSettings(shard_items=6, batch_size=3), 6),
        (BuildSettings(shards=1, batch_size=3), 24),
        (BuildSettings(shards=4, batch_size=3), 6),
        (BuildSettings(shards=500, batch_size=3), 3),
    ],
)
def test_shards_are_made_of_whole_batches(settings: BuildSettings, expected: int) -> None:
    rows = range(30, 53)
    size = items_a_shard(rows, settings)
    assert size == expected
    shards = BuildPlan(fingerprint="", generation=1, shard_items={"texts": size}).shards(
        "texts", rows
    )
    assert [row for shard in shards for row in shard] == list(rows)
    assert all(len(shard) == size for shard in shards[:-1])
