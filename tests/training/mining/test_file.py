"""The file of mined negatives: what is refused, and why."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from aladin_network.errors import DataError, StaleNegativesError
from aladin_training.batches.offline_negatives import (
    MinedFrom,
    OfflineNegatives,
    load_negatives,
    save_negatives,
)

MINED_FROM = MinedFrom(
    data="d" * 64, model_id="e" * 64, score="matching", num_texts=3, num_images=2
)


@pytest.fixture
def negatives() -> OfflineNegatives:
    texts = torch.tensor([[3, 2, -1], [0, 1, -1]], dtype=torch.int32)
    images = torch.tensor([[1, -1], [1, -1], [0, -1], [0, -1]], dtype=torch.int32)
    return OfflineNegatives(texts, images, MINED_FROM)


@pytest.fixture
def path(tmp_path: Path, negatives: OfflineNegatives) -> Path:
    path = tmp_path / "new" / "negatives.safetensors"
    save_negatives(path, negatives)
    return path


def test_a_file_comes_back_as_it_was(path: Path, negatives: OfflineNegatives) -> None:
    anyone = dataclasses.replace(MINED_FROM, model_id=None)
    assert load_negatives(path, anyone).mined_from == MINED_FROM
    loaded = load_negatives(path, MINED_FROM)
    assert loaded.mined_from == MINED_FROM
    for ours, theirs in ((loaded.texts, negatives.texts), (loaded.images, negatives.images)):
        assert torch.equal(ours, theirs)
        assert ours.dtype == torch.int32
    assert [file.name for file in path.parent.iterdir()] == ["negatives.safetensors"]


@pytest.mark.parametrize(
    ("changes", "differences"),
    [
        ({"data": "f" * 64}, ["the data or its order: expected ffffffffffff, found dddddddddddd"]),
        ({"model_id": "f" * 64}, ["the model: expected ffffffffffff, found eeeeeeeeeeee"]),
        ({"num_images": 9, "model_id": None}, ["images for each caption: expected 9, found 2"]),
        (
            {"data": "1", "model_id": "2", "score": "attention", "num_texts": 1, "num_images": 1},
            ["the data", "the model", "the score", "texts for", "images for"],
        ),
    ],
)
def test_every_changed_fact_is_refused_and_named(
    path: Path, changes: dict[str, Any], differences: list[str]
) -> None:
    before = path.read_bytes()
    with pytest.raises(StaleNegativesError) as refusal:
        load_negatives(path, dataclasses.replace(MINED_FROM, **changes))
    assert len(refusal.value.differences) == len(differences)
    assert all(each in str(refusal.value) for each in (str(path), *differences))
    assert path.read_bytes() == before


def test_a_file_that_is_cut_or_changed_anywhere_is_refused(path: Path) -> None:
    whole = path.read_bytes()
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        with pytest.raises(DataError, match="not a file of mined negatives"):
            load_negatives(path, MINED_FROM)
    path.write_bytes(whole[:-4] + bytes([whole[-4] ^ 1]) + whole[-3:])
    with pytest.raises(DataError, match="damaged"):
        load_negatives(path, MINED_FROM)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"schema_version": 2}, "schema version 2, expected 1"),
        ({"mined_from": {"data": "d"}}, "mined_from"),
        ({"colour": "red"}, "colour"),
        (None, "not a file of mined negatives"),
    ],
)
def test_a_header_of_another_kind_is_refused(
    path: Path, changes: dict[str, object] | None, says: str
) -> None:
    mined_from = dataclasses.asdict(MINED_FROM)
    header = {"schema_version": 1, "mined_from": mined_from, "content": ""} | (changes or {})
    written = {"other": "{}"} if changes is None else {"header": json.dumps(header)}
    save_file(load_file(path), path, written)
    with pytest.raises(DataError, match=says):
        load_negatives(path, MINED_FROM)


def test_what_is_no_such_file_is_refused_with_the_reason(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_file({"texts": torch.zeros(1)}, tmp_path / "other")
    for other, says in (
        (tmp_path / "none", "no such file"),
        (tmp_path, "not a file of mined negatives"),
        (tmp_path / "other", "not a file of mined negatives"),
    ):
        with pytest.raises(DataError, match=says):
            load_negatives(other, MINED_FROM)

    def refused(self: Path, *_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "open", refused)
    with pytest.raises(DataError, match=r"cannot be read \(Permission denied\)"):
        load_negatives(path, MINED_FROM)
