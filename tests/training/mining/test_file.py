"""The file of mined negatives: what is refused, and why."""

from __future__ import annotations

import dataclasses
import json
import os
import stat
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


def test_comes_back_as_it_was(path: Path, negatives: OfflineNegatives) -> None:
    loaded = load_negatives(path, MINED_FROM)
    assert loaded.mined_from == MINED_FROM
    for ours, theirs in ((loaded.texts, negatives.texts), (loaded.images, negatives.images)):
        assert torch.equal(ours, theirs)
        assert ours.dtype == torch.int32
    assert [file.name for file in path.parent.iterdir()] == ["negatives.safetensors"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"data": "f" * 64}, "the data or its order: expected ffffffffffff, found dddddddddddd"),
        ({"model_id": "f" * 64}, "the model: expected ffffffffffff, found eeeeeeeeeeee"),
        ({"score": "alignment"}, "the score: expected alignment, found matching"),
        ({"num_texts": 2}, "texts for each photo: expected 2, found 3"),
        ({"num_images": 9}, "images for each caption: expected 9, found 2"),
    ],
)
def test_every_changed_fact_is_refused_and_named(
    path: Path, change: dict[str, object], says: str
) -> None:
    before = path.read_bytes()
    with pytest.raises(StaleNegativesError) as refusal:
        load_negatives(path, dataclasses.replace(MINED_FROM, **change))  # type: ignore[arg-type]
    assert says in str(refusal.value)
    assert str(path) in str(refusal.value)
    assert len(refusal.value.differences) == 1
    assert path.read_bytes() == before


def test_all_differences_are_named_at_once(path: Path) -> None:
    other = MinedFrom(data="1", model_id="2", score="attention", num_texts=1, num_images=1)
    with pytest.raises(StaleNegativesError) as refusal:
        load_negatives(path, other)
    assert len(refusal.value.differences) == len(dataclasses.fields(MinedFrom))


def test_lists_of_any_model_will_do_if_none_is_named(path: Path) -> None:
    anyone = dataclasses.replace(MINED_FROM, model_id=None)
    assert load_negatives(path, anyone).mined_from.model_id == "e" * 64
    with pytest.raises(StaleNegativesError, match="the score"):
        load_negatives(path, dataclasses.replace(anyone, score="alignment"))


def test_a_file_cut_anywhere_is_refused(path: Path) -> None:
    whole = path.read_bytes()
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        with pytest.raises(DataError, match="not a file of mined negatives"):
            load_negatives(path, MINED_FROM)


def test_a_changed_number_is_refused(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-4] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match="damaged"):
        load_negatives(path, MINED_FROM)


def with_header(path: Path, **changes: object) -> None:
    """Rewrite a file with other entries in its header."""
    tensors = load_file(path)
    header = {
        "schema_version": 1,
        "mined_from": dataclasses.asdict(MINED_FROM),
        "content": "",
    }
    save_file(tensors, path, {"header": json.dumps(header | changes)})


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"schema_version": 2}, "schema version 2, expected 1"),
        ({"mined_from": {"data": "d"}}, "mined_from"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_a_header_of_another_kind_is_refused(
    path: Path, changes: dict[str, object], says: str
) -> None:
    with_header(path, **changes)
    with pytest.raises(DataError, match=says):
        load_negatives(path, MINED_FROM)


def test_a_file_of_another_kind_is_refused(path: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file"):
        load_negatives(tmp_path / "none", MINED_FROM)
    with pytest.raises(DataError, match="not a file of mined negatives"):
        load_negatives(tmp_path, MINED_FROM)
    for tensors in (load_file(path), {"texts": torch.zeros(1)}):
        save_file(tensors, path)
        with pytest.raises(DataError, match="not a file of mined negatives"):
            load_negatives(path, MINED_FROM)


def test_permissions_follow_the_umask(tmp_path: Path, negatives: OfflineNegatives) -> None:
    before = os.umask(0o027)
    try:
        save_negatives(tmp_path / "negatives", negatives)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "negatives").stat().st_mode) == 0o640


def test_a_file_of_another_user_says_so(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(self: Path, *_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "open", refused)
    with pytest.raises(DataError, match=r"cannot be read \(Permission denied\)"):
        load_negatives(path, MINED_FROM)
