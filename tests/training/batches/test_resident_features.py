"""Features in a device's memory are those of the cache, in every order and company."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from aladin_network.encoders.base import Features
from aladin_training.batches import feature_cache
from aladin_training.batches.feature_cache import FeatureCache, ResidentFeatures, fastest_source

PROCESSOR = torch.device("cpu")
KEYS = list("abcdef")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> FeatureCache:
    """Two parts of items of one to five tokens, some of them no content."""
    cache = FeatureCache(tmp_path_factory.mktemp("cache"), "encoder")
    generator = torch.Generator().manual_seed(0)
    for keys, lengths in (("abc", [3, 5, 1]), ("def", [2, 2, 4])):
        mask = torch.arange(5) < torch.tensor(lengths).unsqueeze(1)
        states = torch.randn(3, 5, 4, generator=generator)
        content = mask & (torch.rand(3, 5, generator=generator) < 0.7)
        cache.add(list(keys), Features(states, mask, content))
    return cache


@given(keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=12))
def test_a_batch_is_that_of_the_cache(cache: FeatureCache, keys: list[str]) -> None:
    resident = ResidentFeatures(cache, ["f", "a", "c", "b", "a", "e", "d"], PROCESSOR)
    for found, expected in zip(resident.get(keys), cache.get(keys), strict=True):
        assert found.dtype == expected.dtype
        assert torch.equal(found, expected)


def test_an_item_that_was_not_copied_is_not_found(cache: FeatureCache) -> None:
    with pytest.raises(KeyError):
        ResidentFeatures(cache, ["a", "b"], PROCESSOR).get(["c"])


def test_size_counts_real_tokens_of_distinct_items(cache: FeatureCache) -> None:
    assert cache.size_bytes(["a", "b", "a"]) == (3 + 5) * 4 * 2


def test_the_processor_reads_files(cache: FeatureCache) -> None:
    assert fastest_source(cache, KEYS, PROCESSOR) is cache


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
