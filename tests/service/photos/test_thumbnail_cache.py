"""A cache of photos that never outgrows its limit."""

from __future__ import annotations

from service.photos.photo_bytes import PhotoBytes
from service.photos.thumbnail_cache import ThumbnailCache


def photo(size: int) -> PhotoBytes:
    """So many bytes."""
    return PhotoBytes(b"." * size, "image/jpeg")


def test_what_was_not_asked_for_the_longest_gives_way() -> None:
    cache = ThumbnailCache(4000)
    for name in "abc":
        cache.put(name, photo(1000))
    assert cache.get("a") == photo(1000)
    cache.put("d", photo(1000))  # each takes a bit more than its bytes, so one has to go
    assert [name for name in "abcd" if cache.get(name) is not None] == ["a", "c", "d"]
    assert 3000 < cache.num_bytes <= 4000


def test_a_photo_larger_than_all_may_be_harms_no_other() -> None:
    cache = ThumbnailCache(4000)
    cache.put("a", photo(1000))
    cache.put("b", photo(5000))
    assert cache.get("b") is None
    assert cache.get("a") is not None


def test_the_same_photo_is_counted_once() -> None:
    cache = ThumbnailCache(4000)
    for _ in range(10):
        cache.put("a", photo(1000))
    once = cache.num_bytes
    cache.put("a", photo(500))
    assert cache.num_bytes == once - 500
    for number in range(100):
        cache.put(str(number), photo(number))
    assert cache.num_bytes <= 4000


def test_no_bytes_no_cache() -> None:
    cache = ThumbnailCache(0)
    cache.put("a", photo(0))
    assert cache.get("a") is None
