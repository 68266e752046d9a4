"""The selection split: which photos it holds, and how commands read it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image

from aladin_network.errors import DataError, InputError
from aladin_training.data import read_records
from aladin_training.data.selection import SelectionSplit, read_split, selection_of

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
