"""Photos that are kept: what they are counted as."""

from __future__ import annotations

from aladin_service.photos.photo_bytes import PhotoBytes, ThumbnailCache


def test_a_photo_takes_a_bit_more_than_its_bytes() -> None:
    cache = ThumbnailCache(4000)
    for name in "abcd":
        cache.put(name, PhotoBytes(b"." * 1000, "image/jpeg"))
    assert [name for name in "abcd" if cache.get(name) is not None] == ["b", "c", "d"]
    assert 3000 < cache.size_bytes <= 4000
