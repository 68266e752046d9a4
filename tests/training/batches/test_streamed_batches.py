"""What only streamed batches have: bounded reading and memory, and photos that are missing."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aladin_network.errors import ConfigError, DataError, ImageError
from aladin_network.photos.decoding import ImageLimits
from aladin_network.photos.files import PhotoFile
from aladin_training.data.records import strict_data
from aladin_training.parallel.distributed import BatchShare
from aladin_training.streaming import streamed_batches as batches_module
from aladin_training.streaming import tar_stream as samples_module
from aladin_training.streaming.streamed_batches import PhotoStream, ShuffleBuffer, StreamedBatches
from tests.training.batches.conftest import Seen, seen
from tests.training.runs import stage_of

COUNTS = [5, 1, 7, 4, 6]  # 23 photos
Open = Callable[..., PhotoStream]
WriteTar = Callable[..., Path]
Picture = Callable[[int], bytes]


@pytest.fixture
def photos(numbered_tars: Callable[..., Path], open_photos: Open) -> PhotoStream:
    """23 photos in five tars."""
    return open_photos(numbered_tars(COUNTS))


def test_going_on_decodes_nothing_that_came_before_and_opens_no_tar_before(
    numbered_tars: Callable[..., Path],
    open_photos: Open,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("aladin_training.streaming.streamed_batches.LEAST_SPARES", 8)
    photos = open_photos(numbered_tars([8] * 6), shuffle=4)
    batches = photos.batches(stage_of(4), "0")
    decoded, opened = 0, set[str]()
    decode, read_shard = batches_module.decode_image, samples_module._read_shard

    def counting(*arguments: Any) -> Any:
        nonlocal decoded
        decoded += 1
        return decode(*arguments)

    def noting(shard: Any, *arguments: Any) -> Any:
        opened.add(shard.name)
        return read_shard(shard, *arguments)

    monkeypatch.setattr(batches_module, "decode_image", counting)
    monkeypatch.setattr(samples_module, "_read_shard", noting)
    assert len(list(batches.epoch(0, start=9))) == 3
    assert decoded == 12
    lanes = ShuffleBuffer(48, 4, 4, "0", 0)
    for _ in range(9):
        lanes.draw()
    first = min(lanes.first_waiting, lanes.entered - 8)  # the latter may stand in
    assert first >= 8
    assert len(opened) == 6 - first // 8


def test_each_process_reads_the_bytes_of_its_own_photos_alone(
    photos: PhotoStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = 0
    read_samples = samples_module.read_samples

    def counting(stream: Any, first: int, wants: Callable[[int], bool]) -> Any:
        nonlocal wanted
        for read in read_samples(stream, first, wants):
            wanted += read.content is not None
            yield read

    monkeypatch.setattr("aladin_training.streaming.streamed_batches.read_samples", counting)
    batches = photos.batches(stage_of(4), "0")
    for rank in range(2):
        wanted = 0
        list(batches.epoch(0, share=BatchShare(rank, 2)))
        assert 10 <= wanted <= 12  # half of 20 shown, and of the rest what shares a lane
    with pytest.raises(ConfigError, match="a batch of 4 photos is too small for 5"):
        list(batches.epoch(0, share=BatchShare(0, 5)))


def test_memory_holds_no_more_than_the_buffer_and_what_is_being_decoded(
    numbered_tars: Callable[..., Path], open_photos: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Count the encoded photos that are alive: each is one object that knows when it goes."""
    alive, most = 0, 0
    lock = threading.Lock()

    class Content(bytes):
        def __init__(self, *_: object) -> None:
            nonlocal alive, most
            with lock:
                alive += 1
                most = max(most, alive)

        def __del__(self) -> None:
            nonlocal alive
            with lock:
                alive -= 1

    read = samples_module.ReadSample
    monkeypatch.setattr(
        samples_module,
        "ReadSample",
        lambda sample, content: read(sample, None if content is None else Content(content)),
    )
    photos = open_photos(numbered_tars([20] * 5), shuffle=16)
    for _ in photos.batches(stage_of(4), "0").epoch(0):
        pass
    assert alive == 0
    # The buffer, and two batches that are being decoded.
    assert 16 <= most <= 16 + 3 * 4


def test_the_same_photo_twice_in_a_batch_is_no_negative_of_itself(
    write_tar: WriteTar, picture: Picture, open_photos: Open
) -> None:
    for shard, keys in enumerate([(0, 1), (1, 2)]):
        members: list[tuple[str, bytes]] = []
        for key in keys:
            details = json.dumps({"key": str(key), "caption": f"photo {key} 0"})
            members += [(f"{key}.json", details.encode()), (f"{key}.png", picture(key))]
        path = write_tar(f"tars/{shard}.tar", members)
    each = seen(next(open_photos(path.parent).batches(stage_of(4), "0").epoch(0)))
    assert sorted(each.photos) == [0, 1, 1, 2]
    assert each.negatives == [[photo != other for other in each.photos] for photo in each.photos]
    diagonal = open_photos(path.parent).batches(stage_of(4, negatives="diagonal"), "0")
    assert sum(map(sum, seen(next(diagonal.epoch(0))).negatives)) == 12


def numbered(first: int, last: int) -> dict[int, str]:
    return {number: f"photo {number} 0" for number in range(first, last)}


FIVES = [numbered(first, first + 5) for first in range(0, 20, 5)]


def assert_goes_on(batches: StreamedBatches, epoch: int, whole: list[Seen]) -> None:
    for start in range(len(whole)):
        assert [seen(batch) for batch in batches.epoch(epoch, start)] == whole[start:]


def test_damaged_photos_are_left_out_and_others_stand_in_the_same_for_everybody(
    open_shards: Open, caplog: pytest.LogCaptureFixture
) -> None:
    """Those of one batch each have another stand-in."""
    first = seen(next(open_shards(FIVES).batches(stage_of(5), "0").epoch(0)))
    damaged = first.photos[1:4]
    batches = open_shards(FIVES, damaged=damaged).batches(stage_of(5), "0")
    with caplog.at_level(logging.WARNING):
        whole = [seen(batch) for batch in batches.epoch(0)]
    for each in whole:
        assert len(set(each.photos)) == 5
        assert [photo for photo, _ in each.captions] == each.photos
    assert {photo for each in whole for photo in each.photos} == set(range(20)) - {*damaged}
    assert "skipped 3 damaged photos" in caplog.messages[-1]
    assert_goes_on(batches, 0, whole)
    parts = [[seen(each) for each in batches.epoch(0, 0, BatchShare(n, 2))] for n in range(2)]
    for one, other, expected in zip(*parts, whole, strict=True):
        assert one.photos + other.photos == expected.photos
        assert one.negatives == other.negatives == expected.negatives


def test_too_many_damaged_photos_end_the_job_and_one_a_strict_one(open_shards: Open) -> None:
    half = range(0, 20, 2)
    stream = open_shards(FIVES, damaged=half)
    assert len(list(stream.batches(stage_of(5), "0").epoch(0))) == 4
    for damaged, reason in (
        ([*half, 1, 3], "12 photos of an epoch are damaged, more than half"),
        (range(20), "6 damaged photos, and no valid one"),
    ):
        with pytest.raises(DataError, match=reason):
            list(open_shards(FIVES, damaged=damaged).batches(stage_of(5), "0").epoch(0))
    with strict_data(True):
        strict = open_shards(FIVES, damaged=[3]).batches(stage_of(5), "0")
    with pytest.raises(ImageError, match=r"0\.tar.*not an image"):
        list(strict.epoch(0))


def test_captions_that_are_too_long_are_counted_once_an_epoch(
    open_shards: Open, caplog: pytest.LogCaptureFixture
) -> None:
    photos = open_shards([{n: f"{n} {n}{' long' if n < 2 else ''}" for n in range(6)}])
    list(photos.batches(stage_of(2), "0").epoch(3))
    (message,) = [each for each in caplog.messages if "captions" in each]
    assert message.startswith("epoch 3: 2 captions are longer than the network reads, and cut")


def test_photos_that_were_counted_and_are_not_there_are_stood_in_for(
    open_shards: Open, caplog: pytest.LogCaptureFixture
) -> None:
    """img2dataset counts photos whose caption was missing, and here says too little once."""
    shards = [{n: each[n] if n != 13 else "" for n in each if n != 7} for each in FIVES]
    photos = open_shards(shards, successes=[5, 5, 5, 4])
    assert photos.stream.photos == 19
    batches = photos.batches(stage_of(4), "0")
    with caplog.at_level(logging.WARNING):
        whole = [seen(batch) for batch in batches.epoch(0)]
    assert {photo for each in whole for photo in each.photos} <= set(range(19)) - {7, 13}
    assert all(len(set(each.photos)) == 4 for each in whole)
    messages = sorted(caplog.messages)
    for shard in (1, 2):
        said = f"0000{shard}.tar: 1 of the 5 photos that were counted have no caption, or"
        assert said in messages[shard - 1]
    assert "00003.tar: more than the 4 photos that were counted" in messages[2]
    assert_goes_on(batches, 0, whole)


def test_many_missing_photos_change_nothing_in_going_on(
    open_shards: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of five have no caption, and the fifth is not even there."""
    monkeypatch.setattr("aladin_training.streaming.streamed_batches.LEAST_SPARES", 10)
    shards = [
        {n: f"photo {n} 0" if n % 2 else "" for n in range(first, first + 4)}
        for first in range(0, 24, 4)
    ]
    batches = open_shards(shards, successes=[5] * 6).batches(stage_of(2), "0")
    for epoch in range(2):
        whole = [seen(batch) for batch in batches.epoch(epoch)]
        assert all(photo % 2 for each in whole for photo in each.photos)
        assert_goes_on(batches, epoch, whole)


def test_tars_that_lack_most_of_what_was_counted_are_refused(
    numbered_tars: Callable[..., Path], open_photos: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aladin_training.streaming.streamed_batches.LEAST_SPARES", 10)
    folder = numbered_tars([5])
    (folder / "00000_stats.json").write_text(json.dumps({"successes": 50}))
    with pytest.raises(DataError, match=r"too many photos .* without \*_stats\.json"):
        list(open_photos(folder).batches(stage_of(5), "0").epoch(0))


def test_a_tar_that_broke_meanwhile_stops_the_epoch(photos: PhotoStream) -> None:
    tar = photos.stream.shards[2].path
    tar.write_bytes(tar.read_bytes()[:3000])
    with pytest.raises(DataError, match=r"00002\.tar: (cut short|damaged)"):
        list(photos.batches(stage_of(4), "0").epoch(0))


def test_photos_too_large_to_decode_are_not_even_read(
    photos: PhotoStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = ImageLimits(max_bytes=1)
    monkeypatch.setattr(samples_module, "DEFAULT_LIMITS", limits)
    monkeypatch.setattr(batches_module, "DEFAULT_LIMITS", limits)
    limits_of: list[int] = []
    read = PhotoFile.read
    monkeypatch.setattr(
        PhotoFile,
        "read",
        lambda self, limit=None: (limits_of.append(limit), read(self, limit))[1],
    )
    with pytest.raises(DataError, match="damaged photos, and no valid one"):
        next(photos.batches(stage_of(4), "0").epoch(0))
    assert set(limits_of) == {1}
