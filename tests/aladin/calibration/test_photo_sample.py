"""The photos of a calibration, sampled by hashes of their ids."""

from __future__ import annotations

from aladin_network.calibration.fitted_on import SAMPLE_SIZE, hash_photo, sample_photos


def test_the_sample_is_of_the_ids_whatever_their_order() -> None:
    ids = [f"photos/{number}.jpg" for number in range(1000)]
    sample = sample_photos(ids)
    assert len(sample) == SAMPLE_SIZE
    assert sample == sample_photos(reversed(ids))
    assert set(sample) <= {hash_photo(photo_id) for photo_id in ids}
    assert not {hash_photo(f"other/{number}.jpg") for number in range(1000)} & set(sample)


def test_few_photos_are_all_in_it() -> None:
    assert sample_photos(["b", "a"]) == sorted([hash_photo("a"), hash_photo("b")])


def test_a_sample_tells_the_share_of_all() -> None:
    ids = [str(number) for number in range(10_000)]
    indexed = {hash_photo(photo_id) for photo_id in ids[:3000]}
    found = sum(each in indexed for each in sample_photos(ids))
    assert abs(found / SAMPLE_SIZE - 0.3) < 0.1
