"""The cache of frozen encoders' outputs, on disk and in a device's memory."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from aladin_network.encoders.base import Features
from aladin_network.errors import ShapeError
from aladin_training.batches import feature_cache
from aladin_training.batches.feature_cache import (
    FeatureCache,
    ResidentFeatures,
    content_digest,
    fastest_source,
)

PROCESSOR = torch.device("cpu")
KEYS = list("abcdef")


def features(lengths: list[int], seed: int = 0) -> Features:
    """Items of these numbers of tokens, the first of which is no content; 9 in the padding."""
    generator = torch.Generator().manual_seed(seed)
    longest = max(lengths)
    mask = torch.arange(longest) < torch.tensor(lengths).unsqueeze(1)
    states = torch.randn(len(lengths), longest, 4, generator=generator).half().float()
    content = mask & (torch.rand(len(lengths), longest, generator=generator) < 0.7)
    content[:, 0] = False
    return Features(states.masked_fill(~mask.unsqueeze(-1), 9.0), mask, content)


def assert_item(found: Features, row: int, expected: Features, expected_row: int) -> None:
    real = expected.mask[expected_row]
    length = int(real.sum())
    assert found.mask[row].sum() == length
    assert torch.equal(found.states[row, :length], expected.states[expected_row][real])
    assert torch.equal(found.content[row, :length], expected.content[expected_row][real])
    assert not found.states[row, length:].any()
    assert not found.content[row, length:].any()


PARTS = {"abc": features([3, 5, 1]), "def": features([2, 2, 4], seed=1)}


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> FeatureCache:
    """Two parts of three items of one to five tokens, written by another instance."""
    folder = tmp_path_factory.mktemp("cache")
    for keys, part in PARTS.items():
        FeatureCache(folder, "encoder").add(list(keys), part)
    return FeatureCache(folder, "encoder")


@given(keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=12))
def test_items_come_back_in_any_order_and_company_from_disk_and_from_memory(
    cache: FeatureCache, keys: list[str]
) -> None:
    found = cache.get(keys)
    assert found.states.dtype == torch.float32
    for row, key in enumerate(keys):
        part = next(each for each in PARTS if key in each)
        assert_item(found, row, PARTS[part], part.index(key))
    resident = ResidentFeatures(cache, ["f", "a", "c", "b", "a", "e", "d"], PROCESSOR)
    for ours, theirs in zip(resident.get(keys), found, strict=True):
        assert ours.dtype == theirs.dtype
        assert torch.equal(ours, theirs)


def test_what_a_cache_has_and_how_large_it_is(cache: FeatureCache, tmp_path: Path) -> None:
    assert ["a" in cache, "g" in cache] == [True, False]
    assert "a" not in FeatureCache(cache.folder.parent, "encoder with other weights")
    assert cache.get(["d"]).states.shape == (1, 2, 4)
    third = torch.full((1, 1, 2), 1 / 3)
    mask = torch.ones(1, 1, dtype=torch.bool)
    rounded = FeatureCache(tmp_path, "rounding")
    rounded.add(["a"], Features(third, mask, mask))
    assert torch.equal(rounded.get(["a"]).states, third.half().float())
    assert cache.size_bytes(["a", "b", "a"]) == (3 + 5) * 4 * 2
    with pytest.raises(KeyError):
        ResidentFeatures(cache, ["a", "b"], PROCESSOR).get(["c"])
    with pytest.raises(ShapeError):
        FeatureCache(tmp_path, "encoder").add(["a"], features([3, 5]))
    keys = {content_digest(*args) for args in ((b"x",), (b"y",), (b"x", "mirrored"))}
    assert len(keys) == 3
    assert content_digest(b"x") == content_digest(b"x", "")


@pytest.mark.parametrize("lost", ["json", "states", "content"])
def test_a_part_that_was_cut_off_is_computed_again(tmp_path: Path, lost: str) -> None:
    """The index of a part is written last: without it the rest does not count."""
    cache = FeatureCache(tmp_path, "encoder")
    cache.add(["a"], features([3]))
    cache.add(["b"], features([2], seed=1))
    index = next(path for path in cache.folder.glob("*.json") if '"a"' in path.read_text())
    index.unlink()
    if lost != "json":
        (cache.folder / f"{index.stem}.{lost}.npy").unlink()
    again = FeatureCache(tmp_path, "encoder")
    assert ["a" in again, "b" in again] == [False, True]
    again.add(["a"], features([3]))
    assert_item(again.get(["a"]), 0, features([3]), 0)


@pytest.mark.parametrize(("free_bytes", "fits"), [(543, False), (544, True)])
def test_a_card_holds_what_takes_a_quarter_of_its_free_memory(
    cache: FeatureCache, free_bytes: int, fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All items have 17 tokens of 4 numbers in half precision, 136 bytes."""
    copied: list[torch.device] = []

    def copy(_: FeatureCache, keys: list[str], device: torch.device) -> str:
        assert keys == KEYS
        copied.append(device)
        return "resident"

    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (free_bytes, 10**9))
    monkeypatch.setattr(feature_cache, "ResidentFeatures", copy)
    card = torch.device("cuda", 0)
    assert fastest_source(cache, KEYS, card) == ("resident" if fits else cache)
    assert copied == ([card] if fits else [])
    assert fastest_source(cache, KEYS, PROCESSOR) is cache
