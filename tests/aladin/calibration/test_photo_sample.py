"""The photos of a calibration, sampled by hashes of their ids."""

from __future__ import annotations

from aladin_network.calibration.fitted_on import (
    DATA_SAMPLE_SIZE,
    SAMPLE_SIZE,
    DataSample,
    hash_photo,
    sample_photos,
)


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


def test_a_data_sample_knows_all_photos_up_to_its_limit() -> None:
    ids = [str(number) for number in range(5000)]
    sample = DataSample.of(ids)
    assert (sample.photos, len(sample.hashes)) == (5000, DATA_SAMPLE_SIZE)
    known = {hash_photo(each) for each in ids if hash_photo(each) <= sample.limit}
    assert known == set(sample.hashes)
    # A small data set is known completely, and so is every photo that it does not have.
    small = DataSample.of(["a", "b"])
    assert small.hashes == sorted([hash_photo("a"), hash_photo("b")])
    assert all(hash_photo(each) <= small.limit for each in ids)
