"""Batches of a stream: each photo once an epoch, the same from any batch on, for any share."""

from __future__ import annotations

import io
import json
import logging
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from PIL import Image

from aladin_network.errors import ConfigError, DataError, ImageError
from aladin_network.photos.decoding import ImageLimits
from aladin_network.photos.files import PhotoFile
from aladin_training.data.phrases import Wording, meanings_of
from aladin_training.data.records import strict_data
from aladin_training.parallel.distributed import BatchShare
from aladin_training.streaming import streamed_batches as batches_module
from aladin_training.streaming import tar_stream as samples_module
from aladin_training.streaming.draws import ShuffleBuffer
from aladin_training.streaming.streamed_batches import PhotoStream, StreamedBatches
from tests.training.short_stage import stage_of
from tests.training.streaming.conftest import seen

COUNTS = [5, 1, 7, 4, 6]  # 23 photos
Open = Callable[..., PhotoStream]
WriteTar = Callable[..., Path]
Picture = Callable[[int], bytes]
DAMAGED = b"no picture"


@pytest.fixture
def photos(numbered_tars: Callable[..., Path], open_photos: Open) -> PhotoStream:
    """23 photos in five tars."""
    return open_photos(numbered_tars(COUNTS))


@pytest.fixture
def half_red() -> bytes:
    """A picture whose left is red by 200 and whose right is not."""
    picture = Image.new("RGB", (8, 2))
    picture.paste((200, 0, 0), (0, 0, 4, 2))
    target = io.BytesIO()
    picture.save(target, "PNG")
    return target.getvalue()


def shown(batches: StreamedBatches, epoch: int) -> list[int]:
    return [photo for batch in batches.epoch(epoch) for photo in seen(batch).photos]


def test_every_photo_comes_once_with_captions_of_its_own(photos: PhotoStream) -> None:
    batches = photos.batches(stage_of(4), "0")
    assert batches.batches_per_epoch == 5
    orders: set[tuple[int, ...]] = set()
    captions: Counter[tuple[int, ...]] = Counter()
    for epoch in range(6):
        order: list[int] = []
        for batch in batches.epoch(epoch):
            each = seen(batch)
            order += each.photos
            captions.update(each.captions)
            assert [photo for photo, _ in each.captions] == each.photos
            assert each.negatives == [[row != column for column in range(4)] for row in range(4)]
        assert len(set(order)) == len(order) == 20
        orders.add(tuple(order))
    assert len(orders) == 6
    # 120 draws from 46 captions of photos that come equally often.
    assert len(captions) > 38


def test_several_captions_of_a_photo(photos: PhotoStream) -> None:
    for captions_per_photo in (2, 3):  # a photo has two
        batch = next(photos.batches(stage_of(3, captions_per_photo), "0").epoch(0))
        each = seen(batch)
        described = [photo for photo in each.photos for _ in range(captions_per_photo)]
        assert [photo for photo, _ in each.captions] == described
        assert captions_per_photo == 3 or len(set(each.captions)) == 6
        expected = [[photo != other for other in described] for photo in each.photos]
        assert each.negatives == expected


def test_a_batch_larger_than_the_stream_holds_all_of_it(photos: PhotoStream) -> None:
    batches = photos.batches(stage_of(100), "0")
    assert batches.batches_per_epoch == 1
    assert sorted(shown(batches, 0)) == list(range(23))


def test_the_same_seed_gives_the_same_epoch_wherever_the_tars_lie(
    photos: PhotoStream,
    numbered_tars: Callable[..., Path],
    open_photos: Open,
) -> None:
    moved = open_photos(numbered_tars(COUNTS, folder="moved"))
    assert moved.digest == photos.digest
    assert open_photos(numbered_tars([5, 1, 7, 4, 7], folder="more")).digest != photos.digest
    ours, theirs = (
        photos.batches(stage_of(4), "0"),
        moved.batches(stage_of(4), "0"),
    )
    assert shown(ours, 1) == shown(theirs, 1)
    assert shown(ours, 1) != shown(photos.batches(stage_of(4), "1"), 1)


@pytest.mark.parametrize("shuffle", [1, 8, 100])
def test_an_epoch_goes_on_from_any_batch(
    numbered_tars: Callable[..., Path],
    open_photos: Open,
    shuffle: int,
) -> None:
    photos = open_photos(numbered_tars(COUNTS), shuffle, views=("", "mirrored", "crop-1"))
    batches = photos.batches(stage_of(3, 2), "0")
    unbroken = [seen(batch) for batch in batches.epoch(4)]
    for start in range(len(unbroken) + 1):
        assert [seen(batch) for batch in batches.epoch(4, start)] == unbroken[start:]


def test_going_on_decodes_nothing_that_came_before_and_opens_no_tar_before(
    numbered_tars: Callable[..., Path],
    open_photos: Open,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("aladin_training.streaming.draws.LEAST_SPARES", 8)
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


@pytest.mark.parametrize("world", [2, 3])
def test_shares_put_together_are_the_whole_batch(photos: PhotoStream, world: int) -> None:
    batches = photos.batches(stage_of(5, 2), "0")
    whole = [seen(batch) for batch in batches.epoch(0, 1)]
    parts = [
        [seen(batch) for batch in batches.epoch(0, 1, BatchShare(rank, world))]
        for rank in range(world)
    ]
    for number, expected in enumerate(whole):
        own = [each[number] for each in parts]
        assert [photo for each in own for photo in each.photos] == expected.photos
        assert [caption for each in own for caption in each.captions] == expected.captions
        assert all(each.negatives == expected.negatives for each in own)


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

    monkeypatch.setattr("aladin_training.streaming.draws.read_samples", counting)
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
    for shard, keys in enumerate([("00", "01"), ("01", "02")]):
        members: list[tuple[str, bytes]] = []
        for key in keys:
            number = int(key)
            members += [
                (f"{key}.json", json.dumps({"key": key, "caption": f"photo {number} 0"}).encode()),
                (f"{key}.png", picture(number)),
            ]
        path = write_tar(f"tars/{shard}.tar", members)
    batches = open_photos(path.parent).batches(stage_of(4), "0")
    each = seen(next(batches.epoch(0)))
    assert sorted(each.photos) == [0, 1, 1, 2]
    expected = [[photo != other for other in each.photos] for photo in each.photos]
    assert each.negatives == expected
    diagonal = open_photos(path.parent).batches(stage_of(4, negatives="diagonal"), "0")
    assert sum(map(sum, seen(next(diagonal.epoch(0))).negatives)) == 12


class TextsThemselves:
    """A text encoder whose input are the texts."""

    def preprocess(self, texts: list[str], *, truncate: bool) -> list[str]:
        """Return the texts."""
        assert truncate
        return texts

    def count_too_long(self, texts: list[str]) -> int:  # noqa: ARG002
        """Return 0."""
        return 0


def test_short_texts_are_no_negatives_of_photos_whose_captions_say_them(
    write_tar: WriteTar, picture: Picture, open_photos: Open
) -> None:
    captions = ["a small red ball", "a red ball and a brown dog", "a black cat"]
    members: list[tuple[str, bytes]] = []
    for number, caption in enumerate(captions):
        members += [(f"{number}.png", picture(number)), (f"{number}.txt", caption.encode())]
    plain = open_photos(write_tar("short/0.tar", members).parent)
    encoder: Any = TextsThemselves()
    photos = replace(plain, text_encoder=encoder)
    texts_seen: list[str] = []
    for epoch in range(8):
        batches = photos.batches(stage_of(3, short_captions=1.0), "0")
        batch = next(batches.epoch(epoch))
        texts = cast(list[str], batch.texts)
        texts_seen += texts
        saying = [Wording([caption]) for caption in captions]
        for column, text in enumerate(texts):
            held = sum(each.holds(meanings_of(text)) for each in saying)
            assert batch.negatives[:, column].sum() == 3 - held, text
    assert set(texts_seen) & {"ball", "a ball", "red ball", "a red ball"}
    # Where by chance nothing was left out, the caption stays: with three in ten of several phrases,
    # half of these of both, and two adjectives that stay in .36 of the cases, one in twenty.
    assert texts_seen.count(captions[1]) <= 2


def damaged_tars(write_tar: WriteTar, picture: Picture, damaged: set[int]) -> Path:
    """Four tars of five photos, some damaged."""
    for shard in range(4):
        members: list[tuple[str, bytes]] = []
        for number in range(5 * shard, 5 * shard + 5):
            members.append((f"{number}.png", DAMAGED if number in damaged else picture(number)))
            members.append((f"{number}.txt", f"photo {number} 0".encode()))
        path = write_tar(f"damaged/{shard}.tar", members)
    return path.parent


def test_a_damaged_photo_ends_a_strict_job(
    write_tar: WriteTar, picture: Picture, open_photos: Open
) -> None:
    photos = open_photos(damaged_tars(write_tar, picture, {3}))
    with strict_data(True):
        batches = photos.batches(stage_of(5), "0")
    with pytest.raises(ImageError, match=r"0\.tar.*not an image"):
        list(batches.epoch(0))


def test_a_stream_of_which_more_than_half_is_damaged_ends_the_job(
    write_tar: WriteTar, picture: Picture, open_photos: Open
) -> None:
    half = open_photos(damaged_tars(write_tar, picture, set(range(0, 20, 2))))
    assert len(list(half.batches(stage_of(5), "0").epoch(0))) == 4
    more = open_photos(damaged_tars(write_tar, picture, {*range(0, 20, 2), 1, 3}))
    with pytest.raises(DataError, match="12 photos of an epoch are damaged, more than half"):
        list(more.batches(stage_of(5), "0").epoch(0))


def test_captions_that_are_too_long_are_counted_once_an_epoch(
    write_tar: WriteTar,
    picture: Picture,
    open_photos: Open,
    caplog: pytest.LogCaptureFixture,
) -> None:
    members: list[tuple[str, bytes]] = []
    for number in range(6):
        caption = f"{number} {number}{' long' if number < 2 else ''}"
        members += [(f"{number}.png", picture(number)), (f"{number}.txt", caption.encode())]
    path = write_tar("long/0.tar", members)
    list(open_photos(path.parent).batches(stage_of(2), "0").epoch(3))
    assert [each for each in caplog.messages if "captions" in each] == [
        "epoch 3: 2 captions are longer than the network reads, and cut (max_tokens of its text "
        "encoder)"
    ]


def test_damaged_photos_are_left_out_and_others_stand_in(
    write_tar: WriteTar,
    picture: Picture,
    open_photos: Open,
    caplog: pytest.LogCaptureFixture,
) -> None:
    damaged = {3, 11, 12}
    batches = StreamedBatches(
        open_photos(damaged_tars(write_tar, picture, damaged)), stage_of(5), "0"
    )
    with caplog.at_level(logging.WARNING):
        whole = [seen(batch) for batch in batches.epoch(0)]
    for each in whole:
        assert len(set(each.photos)) == 5
        assert [photo for photo, _ in each.captions] == each.photos
    order = [photo for each in whole for photo in each.photos]
    assert set(order) == set(range(20)) - damaged
    assert "skipped 3 damaged photos" in caplog.messages[-1]
    # Whoever goes on, or shows a part, comes to the same photos.
    for start in range(4):
        assert [seen(batch) for batch in batches.epoch(0, start)] == whole[start:]
    parts = [[seen(each) for each in batches.epoch(0, 0, BatchShare(n, 2))] for n in range(2)]
    for one, other, expected in zip(*parts, whole, strict=True):
        assert one.photos + other.photos == expected.photos
        assert one.negatives == other.negatives == expected.negatives


def test_a_stream_of_damaged_photos_alone_is_refused(
    write_tar: WriteTar, picture: Picture, open_photos: Open
) -> None:
    source = damaged_tars(write_tar, picture, set(range(20)))
    with pytest.raises(DataError, match="6 damaged photos, and no valid one"):
        next(open_photos(source).batches(stage_of(5), "0").epoch(0))


def test_photos_that_were_counted_and_are_not_there_are_stood_in_for(
    write_tar: WriteTar,
    picture: Picture,
    open_photos: Open,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """img2dataset counts photos whose caption was missing, and here says too little once."""
    for shard in range(4):
        members: list[tuple[str, bytes]] = []
        for number in range(5 * shard, 5 * shard + 5):
            status = "failed_to_download" if number == 7 else "success"
            caption = None if number == 13 else f"photo {number} 0"
            details = {"key": str(number), "status": status, "caption": caption}
            members.append((f"{number}.json", json.dumps(details).encode()))
            members.append((f"{number}.png", picture(number)))
        path = write_tar(f"tars/{shard:05d}.tar", members)
        stats = {"successes": 4 if shard == 3 else 5}
        path.with_name(f"{shard:05d}_stats.json").write_text(json.dumps(stats))
    photos = open_photos(path.parent)
    assert photos.stream.photos == 19
    batches = photos.batches(stage_of(4), "0")
    with caplog.at_level(logging.WARNING):
        whole = [seen(batch) for batch in batches.epoch(0)]
    assert {photo for each in whole for photo in each.photos} <= set(range(19)) - {7, 13}
    for each in whole:
        assert len(set(each.photos)) == 4
    messages = sorted(caplog.messages)
    assert "00001.tar: 1 of the 5 photos that were counted have no caption, or" in messages[0]
    assert "00002.tar: 1 of the 5 photos that were counted have no caption, or" in messages[1]
    assert "00003.tar: more than the 4 photos that were counted" in messages[2]
    for start in range(len(whole)):
        assert [seen(batch) for batch in batches.epoch(0, start)] == whole[start:]


def test_many_missing_photos_change_nothing_in_going_on(
    write_tar: WriteTar,
    picture: Picture,
    open_photos: Open,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two of five have no caption, and the fifth is not even there."""
    for shard in range(6):
        members: list[tuple[str, bytes]] = []
        for number in range(4 * shard, 4 * shard + 4):
            caption = f"photo {number} 0" if number % 2 else ""
            members.append((f"{number}.png", picture(number)))
            members.append((f"{number}.txt", caption.encode()))
        path = write_tar(f"tars/{shard:05d}.tar", members)
        path.with_name(f"{shard:05d}_stats.json").write_text(json.dumps({"successes": 5}))
    monkeypatch.setattr("aladin_training.streaming.draws.LEAST_SPARES", 10)
    batches = open_photos(path.parent).batches(stage_of(2), "0")
    for epoch in range(3):
        whole = [seen(batch) for batch in batches.epoch(epoch)]
        assert all(photo % 2 for each in whole for photo in each.photos)
        for start in range(1, len(whole), 3):
            assert [seen(batch) for batch in batches.epoch(epoch, start)] == whole[start:]


def test_tars_that_lack_most_of_what_was_counted_are_refused(
    numbered_tars: Callable[..., Path], open_photos: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aladin_training.streaming.draws.LEAST_SPARES", 10)
    folder = numbered_tars([5])
    (folder / "00000_stats.json").write_text(json.dumps({"successes": 50}))
    with pytest.raises(DataError, match=r"too many photos .* without \*_stats\.json"):
        list(open_photos(folder).batches(stage_of(5), "0").epoch(0))


def test_img2datasets_parquet_stands_in_for_captions(
    write_tar: WriteTar,
    write_parquet: Callable[..., Path],
    picture: Picture,
    open_photos: Open,
) -> None:
    write_tar("data/00000.tar", [(f"{n:09d}.png", picture(n)) for n in (0, 2, 3)])
    write_parquet(
        "data/00000.parquet",
        {
            "key": [f"{n:09d}" for n in range(4)],
            "status": ["success", "failed_to_download", "success", "success"],
            "caption": ["photo 0 0", "photo 1 0", "photo 2 0", "photo 3 0"],
        },
    )
    tar = write_tar("data/00001.tar", [])
    tar.with_name("00000_stats.json").write_text(json.dumps({"count": 4, "successes": 3}))
    batches = open_photos(tar.parent).batches(stage_of(3), "0")
    each = seen(next(batches.epoch(0)))
    assert sorted(each.captions) == [(0, 0), (2, 0), (3, 0)]


def test_views_are_drawn_at_random(write_tar: WriteTar, open_photos: Open, half_red: bytes) -> None:
    members: list[tuple[str, bytes]] = []
    for number in range(60):
        members += [(f"{number}.png", half_red), (f"{number}.txt", b"photo 0 0")]
    path = write_tar("a.tar", members)
    batches = open_photos(path, views=("", "mirrored")).batches(stage_of(60), "0")
    left = [shown(batches, epoch) for epoch in range(2)]
    assert left[0] != left[1]
    for each in left:
        assert set(each) == {0, 200}
        assert 15 < each.count(200) < 45


def test_a_share_of_the_photos_is_shown_in_new_crops(
    write_tar: WriteTar, open_photos: Open
) -> None:
    picture = Image.new("RGB", (100, 2))
    picture.putdata([(2 * column, 0, 0) for _ in range(2) for column in range(100)])
    target = io.BytesIO()
    picture.save(target, "PNG")
    members: list[tuple[str, bytes]] = []
    for number in range(60):
        members += [(f"{number}.png", target.getvalue()), (f"{number}.txt", b"photo 0 0")]
    photos = open_photos(write_tar("a.tar", members))
    left = shown(photos.batches(stage_of(60, new_crops=0.5), "0"), 0)
    assert 15 < left.count(0) < 45
    assert len(set(left)) > 15
    assert left == shown(photos.batches(stage_of(60, new_crops=0.5), "0"), 0)
    assert set(shown(photos.batches(stage_of(60), "0"), 0)) == {0}


def test_a_tar_that_broke_meanwhile_stops_the_epoch(photos: PhotoStream) -> None:
    tar = photos.stream.shards[2].path
    tar.write_bytes(tar.read_bytes()[:3000])
    with pytest.raises(DataError, match=r"00002\.tar: (cut short|damaged)"):
        list(photos.batches(stage_of(4), "0").epoch(0))


def test_stopping_early_leaves_no_thread_and_no_open_file(photos: PhotoStream) -> None:
    before = threading.active_count()
    batches = photos.batches(stage_of(4), "0").epoch(0)
    next(batches)
    assert threading.active_count() > before
    batches.close()
    assert threading.active_count() == before


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
