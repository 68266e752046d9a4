import json
import shutil
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aladin_index.changes.writer import ChangesWriter, NewItems
from aladin_index.format.layout import EVALUATIONS, generation_folder
from aladin_index.format.manifest import read_manifest
from aladin_index.format.records import (
    Evaluation,
    drop_evaluations,
    evaluations_file,
    read_evaluations,
    store_evaluation,
)
from aladin_index.generations.compact import compact_index
from aladin_index.generations.published import rollback_index
from aladin_index.generations.verify import verify_index
from aladin_network.errors import IndexCorruptError, IndexMismatchError, IndexWriteError

MakeItems = Callable[..., NewItems]


@pytest.fixture(scope="module")
def two_generations(
    tmp_path_factory: pytest.TempPathFactory,
    made_up: MakeItems,
    write_made_up: Callable[..., int],
) -> Path:
    """An index of two generations, the second of them live."""
    out = tmp_path_factory.mktemp("measured") / "index"
    for ids in ("abc", "abcd"):
        write_made_up(out, images=made_up(list(ids)))
    return out


@pytest.fixture
def root(two_generations: Path, tmp_path: Path) -> Path:
    """A copy of `two_generations` to write to."""
    return Path(shutil.copytree(two_generations, tmp_path / "index"))


def measured(root: Path, generation: int = 2, **changes: Any) -> Evaluation:
    """An evaluation of a generation."""
    evaluation = Evaluation(
        generation=generation,
        model_id=read_manifest(generation_folder(root, 1)).model.id,
        data="photos/captions.jsonl",
        split="test",
        images=3,
        texts=6,
        measured_at_s=1000.5,
        figures={"matching": {"rsum": 421.25}, "median_ms": None},
    )
    return replace(evaluation, **changes)


def test_what_was_measured_is_read_back_and_in_one_file_a_generation(root: Path) -> None:
    evaluation = measured(root, curve={"points": [{"candidates": 1}]})
    store_evaluation(root, evaluation)
    assert read_evaluations(root, 2) == [evaluation]
    assert read_evaluations(root, 1) == []
    data = json.loads((root / "evaluations" / "000002.json").read_text())
    assert data["schema_version"] == 1
    assert data["evaluations"][0]["figures"] == evaluation.figures


def test_the_same_data_measured_anew_replaces_what_was_there(root: Path) -> None:
    store_evaluation(root, measured(root))
    later = measured(root, measured_at_s=2000.0, figures={"matching": {"rsum": 500.0}})
    store_evaluation(root, later)
    assert read_evaluations(root, 2) == [later]


def test_other_data_and_other_splits_stay_the_newest_first(root: Path) -> None:
    several = [
        measured(root, split=None, measured_at_s=2.0),
        measured(root, split="val", measured_at_s=3.0),
        measured(root, data="other", measured_at_s=1.0),
    ]
    for evaluation in several:
        store_evaluation(root, evaluation)
    assert read_evaluations(root, 2) == [several[1], several[0], several[2]]


def test_a_generation_keeps_the_last_ones(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aladin_index.format.records._MOST", 2)
    for number in range(4):
        store_evaluation(root, measured(root, data=f"data {number}", measured_at_s=float(number)))
    kept = [evaluation.data for evaluation in read_evaluations(root, 2)]
    assert kept == ["data 3", "data 2"]


def test_each_generation_has_its_own(root: Path) -> None:
    first, second = measured(root, 1), measured(root, 2)
    store_evaluation(root, first)  # though another one is live
    store_evaluation(root, second)
    assert read_evaluations(root, 1) == [first]
    assert read_evaluations(root, 2) == [second]
    rollback_index(root)
    assert read_evaluations(root, 2) == [second]


def test_another_model_is_refused(root: Path) -> None:
    with pytest.raises(IndexMismatchError, match="got another"):
        store_evaluation(root, measured(root, model_id="another"))
    assert not (root / EVALUATIONS).exists()


def test_a_generation_that_is_gone_is_refused(root: Path) -> None:
    with pytest.raises(IndexWriteError, match="generation 7 no longer exists"):
        store_evaluation(root, measured(root, 7))


def test_an_index_that_cannot_be_written_says_so_and_nothing_is_left(root: Path) -> None:
    (root / EVALUATIONS).write_text("no folder")
    with pytest.raises(IndexWriteError, match="the evaluation cannot be kept"):
        store_evaluation(root, measured(root))
    assert (root / EVALUATIONS).read_text() == "no folder"


def test_a_write_that_fails_leaves_the_old_file(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluation = measured(root)
    store_evaluation(root, evaluation)

    def full(path: Path) -> None:
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr("aladin_network.files.sync", full)
    with pytest.raises(IndexWriteError, match="No space left on device"):
        store_evaluation(root, measured(root, split="val"))
    assert read_evaluations(root, 2) == [evaluation]
    assert [file.name for file in (root / EVALUATIONS).iterdir()] == ["000002.json"]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{", "no evaluations"),
        ("[]", "no evaluations"),
        ('{"schema_version": 1}', "evaluations"),
        ('{"schema_version": 1, "evaluations": [{"surprise": 1}]}', "surprise"),
        ("[" * 100_000, "no evaluations"),
    ],
)
def test_a_damaged_file_is_named_and_gives_way(root: Path, content: str, reason: str) -> None:
    store_evaluation(root, measured(root))
    evaluations_file(root, 2).write_text(content)
    with pytest.raises(IndexCorruptError, match=reason) as raised:
        read_evaluations(root, 2)
    assert raised.value.file == evaluations_file(root, 2)
    evaluation = measured(root, split="val")
    store_evaluation(root, evaluation)
    assert read_evaluations(root, 2) == [evaluation]


@pytest.mark.parametrize("moment", ["-1", "1e300", "Infinity", "NaN", "253402300800"])
def test_a_moment_that_no_calendar_has_is_damage(root: Path, moment: str) -> None:
    store_evaluation(root, measured(root))
    file = evaluations_file(root, 2)
    data = json.loads(file.read_text())
    data["evaluations"][0]["measured_at_s"] = float(moment)
    file.write_text(json.dumps(data))
    with pytest.raises(IndexCorruptError, match="measured_at_s") as raised:
        read_evaluations(root, 2)
    assert str(root) not in raised.value.reason


def test_a_later_schema_is_not_read(root: Path) -> None:
    store_evaluation(root, measured(root))
    evaluations_file(root, 2).write_text('{"schema_version": 2}')
    with pytest.raises(IndexMismatchError, match="expected 1, got 2"):
        read_evaluations(root, 2)


def test_evaluations_go_with_their_generation(root: Path) -> None:
    for generation in (1, 2):
        store_evaluation(root, measured(root, generation))
    evaluation = measured(root)
    with closing(ChangesWriter(root, evaluation.model_id)) as writer:
        writer.delete("images", ["a"])
    assert compact_index(root, keep=1).dropped == [1]
    assert not evaluations_file(root, 1).exists()
    assert read_evaluations(root, 2) == [evaluation]
    verify_index(root)  # which the folder does not disturb


def test_what_a_killed_writer_left_is_swept_and_nothing_else(root: Path) -> None:
    store_evaluation(root, measured(root))
    leftover = root / EVALUATIONS / ".000002.json.123.partial"
    leftover.write_text("{")
    note = root / EVALUATIONS / "README"
    note.write_text("mine")
    drop_evaluations(root)
    assert not leftover.exists()
    assert note.exists()
    assert read_evaluations(root, 2) == [measured(root)]


def test_an_index_without_evaluations_has_nothing_to_sweep(root: Path) -> None:
    drop_evaluations(root)
    assert not (root / EVALUATIONS).exists()
