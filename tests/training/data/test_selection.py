"""The selection split: which photos it holds, and how commands read it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image

from aladin_network.errors import DataError, InputError
from aladin_training.correction import correction_records
from aladin_training.data import read_records
from aladin_training.data.selection import (
    SelectionSplit,
    read_split,
    read_trained,
    selection_of,
)

RECIPE = json.dumps({"data": {"train_split": "train", "selection": 0.5}})


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty training photos and one validation photo."""
    folder = tmp_path_factory.mktemp("selection")
    Image.new("RGB", (4, 4)).save(folder / "a.png")
    lines = [
        {"image": "a.png", "id": f"photo {n}", "captions": ["x"], "split": "train" if n else "val"}
        for n in range(21)
    ]
    path = folder / "data.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    return path


def test_a_share_of_the_photos_is_kept_apart_by_their_ids() -> None:
    ids = [f"photos/{number}.jpg" for number in range(20_000)]
    tenth, quarter = SelectionSplit("train", 0.1), SelectionSplit("train", 0.25)
    kept = {each for each in ids if tenth.holds(each)}
    assert len(kept) == pytest.approx(2_000, abs=200)
    assert kept < {each for each in ids if quarter.holds(each)}
    # By hand: sha256("a") begins with ca978112, 0.7914 of the range.
    assert SelectionSplit("train", 0.792).holds("a")
    assert not SelectionSplit("train", 0.791).holds("a")


def test_a_command_reads_the_photos_that_the_recipe_kept_apart(data: Path) -> None:
    selection = SelectionSplit("train", 0.5)
    trained, kept = selection.divide(read_records(data, "train"))
    assert len(trained) + len(kept) == 20
    assert 0 < len(kept) < 20
    assert read_split(data, "selection", RECIPE) == kept
    assert read_split(data, "val", RECIPE) == read_records(data, "val")
    assert read_split(data, None, RECIPE) == read_records(data)


def test_without_one_it_is_a_split_like_any_other(data: Path, tmp_path: Path) -> None:
    for recipe in ("", "not JSON", "[]", "{}", json.dumps({"data": {"train_split": "train"}})):
        assert selection_of(recipe) is None
        with pytest.raises(DataError, match="no split 'selection'"):
            read_split(data, "selection", recipe)
    own = tmp_path / "own.jsonl"
    entry = {"image": str(data.parent / "a.png"), "captions": ["x"], "split": "selection"}
    own.write_text(json.dumps(entry), encoding="utf-8")
    assert len(read_split(own, "selection", "")) == 1


def test_a_selection_split_without_photos_is_an_error(data: Path) -> None:
    recipe = json.dumps({"data": {"train_split": "val", "selection": 1e-9}})
    with pytest.raises(InputError, match="selection split holds none"):
        read_split(data, "selection", recipe)


def of_fold(fold: int, share: float = 0.0) -> str:
    data = {"train_split": "train", "validation_split": "val", "folds": 4, "fold": fold}
    return json.dumps({"data": data | {"selection": share}})


def test_folds_deal_both_splits_into_equal_parts_and_keep_the_test_split_out(
    data: Path,
) -> None:
    """21 photos in four folds: one of six, three of five."""
    lines = data.read_text().splitlines()
    test = {"image": "a.png", "id": "of the test", "captions": ["x"], "split": "test"}
    source = data.with_name("with_test.jsonl")
    source.write_text("\n".join([*lines, json.dumps(test)]), encoding="utf-8")
    held = [[each.id for each in read_split(source, "val", of_fold(n))] for n in range(4)]
    assert sorted(map(len, held)) == [5, 5, 5, 6]
    everyone = {f"photo {n}" for n in range(21)}
    assert {each for of in held for each in of} == everyone
    for number, of in enumerate(held):
        trained = [each.id for each in read_split(source, "train", of_fold(number))]
        assert set(trained) == everyone - set(of)
        kept = {each.id for each in read_split(source, "selection", of_fold(number, 0.5))}
        assert 0 < len(kept) < len(trained)
        assert kept < set(trained)
        used = {each.id for each in read_trained(source, "train", of_fold(number, 0.5))}
        assert used == set(trained) - kept
        assert [each.id for each in read_split(source, "test", of_fold(number))] == ["of the test"]
    # Photos are dealt by their ids, whatever their order and their split.
    other = {"train": "val", "val": "train"}
    turned = [json.loads(line) for line in reversed(lines)]
    text = "\n".join(json.dumps(each | {"split": other[each["split"]]}) for each in turned)
    source.write_text(text, encoding="utf-8")
    assert sorted(each.id for each in read_split(source, "val", of_fold(2))) == sorted(held[2])


def test_a_correction_of_a_fold_is_fitted_to_photos_of_the_others(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aladin_training.correction._LEAST", 1)
    held = {each.id for each in read_split(data, "val", of_fold(1))}
    found = correction_records(data, "train", of_fold(1, 0.4))
    used = {each.id for each in (*found.bank, *found.chosen_on)}
    assert used == {f"photo {n}" for n in range(21)} - held
