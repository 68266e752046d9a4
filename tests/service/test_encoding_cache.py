"""Remembered encodings: what is the same query, what makes room, and how much is kept."""

from __future__ import annotations

import threading

import pytest
import torch

from aladin.encoding import Encoding
from service.encoding_cache import CachedEncoding, CacheKey, EncodingCache


def entry(tokens: int = 2, value: float = 1.0) -> CachedEncoding:
    encoding = Encoding(
        torch.full((1, 4), value), torch.ones(1, tokens, 3), torch.ones(1, tokens, dtype=torch.bool)
    )
    return CachedEncoding(encoding, None)


def of(text: str, model_id: str = "model") -> CacheKey:
    return CacheKey.of(model_id, text)


def one_entry_bytes() -> int:
    cache = EncodingCache(10**6)
    cache.put(of("a"), entry())
    return cache.size_bytes


def test_an_entry_is_found_under_its_own_model_and_content_only() -> None:
    cache = EncodingCache(10**6)
    kept = entry()
    cache.put(of("a dog"), kept)
    assert cache.get(of("a dog")) is kept
    assert cache.get(of("A dog")) is None
    assert cache.get(of("a dog ")) is None
    assert cache.get(of("a dog", "another")) is None
    assert cache.get(CacheKey.of("model", b"a dog")) is None
    cache.put(CacheKey.of("model", b"a photo"), kept)
    assert cache.get(CacheKey.of("model", b"a photo")) is kept


def test_what_was_not_used_for_longest_makes_room() -> None:
    cache = EncodingCache(3 * one_entry_bytes())
    for name in "abc":
        cache.put(of(name), entry())
    cache.get(of("a"))
    cache.put(of("d"), entry())
    assert [cache.get(of(name)) is not None for name in "abcd"] == [True, False, True, True]


def test_the_bytes_have_a_bound_and_are_those_of_the_entries() -> None:
    limit = 20 * one_entry_bytes()
    cache = EncodingCache(limit)
    for number in range(1000):
        cache.put(of(str(number % 300)), entry(tokens=1 + number % 40))
        assert cache.size_bytes <= limit
    assert cache.size_bytes > limit / 2
    lone = EncodingCache(limit)
    for tokens in (30, 2, 5):  # of one text, the last that was put stays
        lone.put(of("a"), entry(tokens))
    assert lone.size_bytes == one_entry_bytes() + 3 * (3 * 4 + 1)  # float32 and a bool a token


def test_what_is_larger_than_all_is_not_kept() -> None:
    cache = EncodingCache(one_entry_bytes())
    cache.put(of("a"), entry())
    cache.put(of("b"), entry(tokens=100))
    assert cache.get(of("a")) is not None
    assert cache.get(of("b")) is None


@pytest.mark.parametrize(("max_bytes", "is_on"), [(0, False), (1, True)])
def test_without_bytes_nothing_is_kept(max_bytes: int, is_on: bool) -> None:
    cache = EncodingCache(max_bytes)
    cache.put(of("a"), entry())
    assert cache.get(of("a")) is None
    assert cache.is_on is is_on
    assert cache.size_bytes == 0


def test_threads_may_use_it_at_the_same_time() -> None:
    limit = 10 * one_entry_bytes()
    cache = EncodingCache(limit)
    wrong: list[object] = []

    def use(seed: int) -> None:
        for number in range(1000):
            value = (number * seed) % 30
            cache.put(of(str(value)), entry(value=float(value)))
            found = cache.get(of(str((value + 1) % 30)))
            if found is not None and found.encoding.embedding[0, 0] != (value + 1) % 30:
                wrong.append(found)

    threads = [threading.Thread(target=use, args=(seed,)) for seed in (1, 7, 11, 13)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert 0 < cache.size_bytes <= limit
