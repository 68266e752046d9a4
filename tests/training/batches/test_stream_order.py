"""The order of a stream: every photo once, another order in every epoch, bounded memory."""

from __future__ import annotations

import pytest

from aladin_training.streaming.streamed_batches import ShuffleBuffer, shard_order


def drawn(photos: int, batch_size: int, shuffle: int, epoch: int = 0, seed: str = "0") -> list[int]:
    lanes = ShuffleBuffer(photos, batch_size, shuffle, seed, epoch)
    return [photo for _ in range(photos // batch_size) for photo in lanes.draw()]


@pytest.mark.parametrize(("photos", "batch_size"), [(24, 4), (27, 4), (5, 5), (5, 4), (9, 1)])
@pytest.mark.parametrize("shuffle", [1, 4, 8, 13, 1000])
def test_every_photo_comes_once_but_for_the_rest(
    photos: int, batch_size: int, shuffle: int
) -> None:
    order = drawn(photos, batch_size, shuffle)
    assert len(order) == photos // batch_size * batch_size
    assert len(set(order)) == len(order)
    assert set(order) <= set(range(photos))


def test_a_small_buffer_shows_photos_about_as_they_are_read() -> None:
    lanes = ShuffleBuffer(20, 4, 1, "0", 0)
    for first in range(0, 20, 4):
        assert lanes.entered == min(20, first + 8)
        assert max(lanes.draw()) < lanes.entered or first + 8 >= 20
    assert ShuffleBuffer(20, 4, 8, "0", 0).draw() == ShuffleBuffer(20, 4, 1, "0", 0).draw()


def test_a_buffer_larger_than_the_epoch_draws_evenly_from_all_of_it() -> None:
    first = [drawn(12, 2, 100, epoch)[0] for epoch in range(600)]
    # Each of the twelve is first in 50 of 600 epochs, +- 7.
    assert all(22 < first.count(photo) < 78 for photo in range(12))


def test_any_two_photos_meet_in_some_batch() -> None:
    met = {
        (one, other)
        for epoch in range(200)
        for first, second in [iter(drawn(6, 2, 100, epoch)[:2])]
        for one, other in [(min(first, second), max(first, second))]
    }
    assert len(met) == 15


def test_no_more_photos_wait_than_the_buffer_holds() -> None:
    lanes = ShuffleBuffer(200, 4, 19, "0", 0)
    for number in range(50):
        assert lanes.entered == min(200, 16 + 4 * number)
        waiting = [photo for photo in range(200) if lanes.place_of(photo) is not None]
        assert len(waiting) == min(16, 200 - 4 * number)
        assert lanes.first_waiting == min(waiting)
        places = {photo: lanes.place_of(photo) for photo in waiting}
        batch = lanes.draw()
        assert [places[photo] for photo in batch] == [0, 1, 2, 3]
    assert lanes.first_waiting == lanes.entered == 200


def test_another_photo_is_left_out_of_an_unfilled_batch_in_each_epoch() -> None:
    left = {photo for epoch in range(100) for photo in set(range(9)) - set(drawn(9, 4, 100, epoch))}
    assert left == set(range(9))


def test_shards_come_in_another_order_in_every_epoch() -> None:
    orders = {tuple(shard_order(5, "0", epoch)) for epoch in range(20)}
    assert len(orders) > 10
    assert all(sorted(order) == [0, 1, 2, 3, 4] for order in orders)
    assert shard_order(5, "0", 3) == shard_order(5, "0", 3)
