from pathlib import Path

import numpy as np
import pytest

from aladin_index.building.shards import (
    EMBEDDINGS,
    LENGTHS,
    ROWS,
    SIZES_PX,
    ShardFormat,
    place_shard,
    read_shard,
    shard_files,
    write_shard,
)
from aladin_index.encode.item_encoders import ItemEncoder, StreamedItems, item_encoder
from aladin_index.encode.read_ahead import StageSeconds, encoded_batches
from aladin_index.encode.source_items import ImageItem, SourceItem
from aladin_index.format.skipped import SkippedItem
from aladin_index.settings import EncodeSettings
from aladin_network.checkpoint import load_checkpoint
from aladin_network.errors import IndexWriteError
from aladin_network.inference import encode_photos
from aladin_network.photos.decoding import read_image
from aladin_network.types import NullProgress


def encoded(encoder: ItemEncoder, items: list[SourceItem], rows: range) -> list[StreamedItems]:
    """Items in batches of three."""
    batches = ([items[row] for row in rows[start : start + 3]] for start in range(0, len(rows), 3))
    return list(encoded_batches(encoder, batches, EncodeSettings(), StageSeconds(), NullProgress()))


def test_a_shard_holds_what_the_network_says_of_its_items(
    tmp_path: Path, tiny_checkpoint: Path, images: list[ImageItem]
) -> None:
    model = load_checkpoint(tiny_checkpoint).model
    items = [*images[:4], ImageItem(id="gone", path=tmp_path / "gone", uri="gone"), *images[4:8]]
    encoder, seconds = item_encoder("images", model, EncodeSettings()), StageSeconds()
    form = ShardFormat.of(model)
    folder = tmp_path / "shard"
    assert read_shard(folder, form) is None
    batches = encoded(encoder, list(items), range(2, 8))
    written = write_shard(folder, form, range(2, 8), batches, seconds)
    shard = read_shard(folder, form)
    assert shard == written
    rows = shard.array(ROWS).tolist()
    assert rows == [2, 3, 5, 6, 7]
    assert shard.skipped == [SkippedItem("gone", "No such file or directory")]
    photos = [read_image(items[row].path) for row in rows]
    assert list(map(tuple, shard.array(SIZES_PX).tolist())) == [photo.size for photo in photos]
    expected = encode_photos(model, photos)
    np.testing.assert_allclose(shard.array(EMBEDDINGS), expected.embedding, atol=1e-5)
    assert shard.array(LENGTHS).tolist() == [16] * 5
    assert shard.array("tokens.npy").dtype == np.float16
    tokens = form.codec.unpack(shard.tokens())
    np.testing.assert_allclose(tokens, np.concatenate(expected.tokens), atol=1e-3)
    assert set(seconds.seconds) == {"write"}


def test_a_shard_without_a_usable_item_says_so(tmp_path: Path, tiny_checkpoint: Path) -> None:
    items: list[SourceItem] = [ImageItem(id=name, path=tmp_path / name, uri=name) for name in "ab"]
    model = load_checkpoint(tiny_checkpoint).model
    encoder, form = item_encoder("images", model, EncodeSettings()), ShardFormat.of(model)
    batches = encoded(encoder, items, range(2))
    write_shard(tmp_path / "shard", form, range(2), batches, StageSeconds())
    shard = read_shard(tmp_path / "shard", form)
    assert shard is not None
    assert len(shard.array(ROWS)) == shard.tokens().count == 0
    assert [entry.id for entry in shard.skipped] == ["a", "b"]


def test_a_shard_that_could_not_be_finished_is_not_there(
    tmp_path: Path, tiny_checkpoint: Path, images: list[ImageItem]
) -> None:
    model = load_checkpoint(tiny_checkpoint).model
    encoder, form = item_encoder("images", model, EncodeSettings()), ShardFormat.of(model)
    batches = encoded(encoder, list(images), range(6))

    def broken() -> object:
        yield batches[0]
        raise IndexWriteError(tmp_path, "full")

    with pytest.raises(IndexWriteError):
        write_shard(
            tmp_path / "shard",
            form,
            range(6),
            broken(),  # type: ignore[arg-type]
            StageSeconds(),
        )
    assert list(tmp_path.iterdir()) == []


def test_a_shard_may_be_finished_elsewhere(
    tmp_path: Path, tiny_checkpoint: Path, images: list[ImageItem]
) -> None:
    model = load_checkpoint(tiny_checkpoint).model
    encoder, form = item_encoder("images", model, EncodeSettings()), ShardFormat.of(model)
    there, here = tmp_path / "there", tmp_path / "here"
    batches = encoded(encoder, list(images), range(4))
    write_shard(there, form, range(4), batches, StageSeconds())
    files = shard_files(there)
    assert list(files) == sorted(path.name for path in there.iterdir())
    for content in files.values():
        content.setflags(write=False)  # as what comes from another process
    place_shard(here, files)
    assert {path.name: path.read_bytes() for path in here.iterdir()} == {
        path.name: path.read_bytes() for path in there.iterdir()
    }
    shard = read_shard(here, form)
    assert shard is not None
    assert shard.array(ROWS).tolist() == [0, 1, 2, 3]
