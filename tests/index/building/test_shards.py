from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from aladin_index.building.shards import (
    EMBEDDINGS,
    LENGTHS,
    ROWS,
    ShardFormat,
    place_shard,
    read_shard,
    shard_files,
    write_shard,
)
from aladin_index.encode.item_encoders import StreamedItems, item_encoder
from aladin_index.encode.read_ahead import StageSeconds, encoded_batches
from aladin_index.encode.source_items import ImageItem, SourceItem
from aladin_index.format.skipped import SkippedItem
from aladin_index.settings import EncodeSettings
from aladin_network.checkpoint import load_checkpoint
from aladin_network.errors import IndexWriteError
from aladin_network.inference import encode_photos
from aladin_network.model import AladinModel
from aladin_network.photos.decoding import read_image
from aladin_network.types import NullProgress


@pytest.fixture(scope="module")
def model(tiny_checkpoint: Path) -> AladinModel:
    return load_checkpoint(tiny_checkpoint).model


def encoded(model: AladinModel, items: list[SourceItem], rows: range) -> Iterator[StreamedItems]:
    """Items in batches of three."""
    batches = ([items[row] for row in rows[start : start + 3]] for start in range(0, len(rows), 3))
    encoder = item_encoder("images", model, EncodeSettings())
    return encoded_batches(encoder, batches, EncodeSettings(), StageSeconds(), NullProgress())


def test_a_shard_holds_what_the_network_says_of_its_items(
    tmp_path: Path, model: AladinModel, images: list[ImageItem]
) -> None:
    items = [*images[:4], ImageItem(id="gone", path=tmp_path / "gone", uri="gone"), *images[4:8]]
    form, folder, seconds = ShardFormat.of(model), tmp_path / "shard", StageSeconds()
    assert read_shard(folder, form) is None
    batches = encoded(model, list(items), range(2, 8))
    written = write_shard(folder, form, range(2, 8), batches, seconds)
    shard = read_shard(folder, form)
    assert shard == written
    rows = shard.array(ROWS).tolist()
    assert rows == [2, 3, 5, 6, 7]
    assert shard.skipped == [SkippedItem("gone", "No such file or directory")]
    photos = [read_image(items[row].path) for row in rows]
    assert [each.size_px for each in shard.prepared()] == [photo.size for photo in photos]
    expected = encode_photos(model, photos)
    np.testing.assert_allclose(shard.array(EMBEDDINGS), expected.embedding, atol=1e-5)
    assert shard.array(LENGTHS).tolist() == [16] * 5
    assert shard.array("tokens.npy").dtype == np.float16
    tokens = form.codec.unpack(shard.tokens())
    np.testing.assert_allclose(tokens, np.concatenate(expected.tokens), atol=1e-3)
    assert set(seconds.seconds) == {"write"}
    # It may be finished elsewhere, whose files come from another process.
    files = shard_files(folder)
    assert list(files) == sorted(path.name for path in folder.iterdir())
    for content in files.values():
        content.setflags(write=False)
    place_shard(tmp_path / "here", files)
    assert {path.name: path.read_bytes() for path in (tmp_path / "here").iterdir()} == {
        path.name: path.read_bytes() for path in folder.iterdir()
    }


def test_a_shard_without_a_usable_item_says_so(tmp_path: Path, model: AladinModel) -> None:
    items: list[SourceItem] = [ImageItem(id=name, path=tmp_path / name, uri=name) for name in "ab"]
    form = ShardFormat.of(model)
    batches = encoded(model, items, range(2))
    write_shard(tmp_path / "shard", form, range(2), batches, StageSeconds())
    shard = read_shard(tmp_path / "shard", form)
    assert shard is not None
    assert len(shard.array(ROWS)) == shard.tokens().count == 0
    assert [entry.id for entry in shard.skipped] == ["a", "b"]


def test_a_shard_that_could_not_be_finished_is_not_there(
    tmp_path: Path, model: AladinModel, images: list[ImageItem]
) -> None:
    def broken() -> Iterator[StreamedItems]:
        yield next(encoded(model, list(images), range(6)))
        raise IndexWriteError(tmp_path, "full")

    form = ShardFormat.of(model)
    with pytest.raises(IndexWriteError):
        write_shard(tmp_path / "shard", form, range(6), broken(), StageSeconds())
    assert list(tmp_path.iterdir()) == []
