from pathlib import Path

import numpy as np
import pytest

from aladin.checkpoint import load_checkpoint
from aladin.images import DEFAULT_LIMITS, read_image
from aladin.inference import encode_photos
from aladin.progress import NullProgress
from index.item_encoders import LeftOut, PhotoEncoder
from index.settings import BuildSettings
from index.shards import read_shard, write_shard
from index.source_items import ImageItem
from index.stage_seconds import StageSeconds


@pytest.mark.parametrize(("dtype", "error"), [("float16", 1e-3), ("int8", 1e-2)])
def test_a_shard_holds_what_the_network_says_of_its_items(
    tmp_path: Path, tiny_checkpoint: Path, images: list[ImageItem], dtype: str, error: float
) -> None:
    model = load_checkpoint(tiny_checkpoint).model
    items = [*images[:4], ImageItem(id="gone", path=tmp_path / "gone", uri="gone"), *images[4:8]]
    settings = BuildSettings(batch_size=3, token_dtype=dtype)  # type: ignore[arg-type]
    encoder, seconds = PhotoEncoder(model, DEFAULT_LIMITS), StageSeconds()
    assert read_shard(tmp_path / "shard") is None
    write_shard(tmp_path / "shard", encoder, items, range(2, 8), settings, NullProgress(), seconds)
    shard = read_shard(tmp_path / "shard")
    assert shard is not None
    assert shard.rows == [2, 3, 5, 6, 7]
    assert shard.left_out == [LeftOut("gone", f"{tmp_path / 'gone'}: No such file or directory")]
    photos = [read_image(items[row].path) for row in shard.rows]
    assert shard.sizes_px == [photo.size for photo in photos]
    expected = encode_photos(model, photos)
    np.testing.assert_allclose(shard.array("embeddings.npy"), expected.embedding, atol=1e-5)
    assert shard.array("lengths.npy").tolist() == [16] * 5
    tokens = shard.array("tokens.npy").astype(np.float32)
    assert shard.array("tokens.npy").dtype == dtype
    if dtype == "int8":
        tokens *= shard.array("scales.npy")[:, None]
    np.testing.assert_allclose(tokens, expected.tokens.flatten(0, 1), atol=error)
    assert set(seconds.seconds) == {"read", "encode", "write"}


def test_a_shard_without_a_usable_item_says_so(tmp_path: Path, tiny_checkpoint: Path) -> None:
    items = [ImageItem(id=name, path=tmp_path / name, uri=name) for name in "ab"]
    encoder = PhotoEncoder(load_checkpoint(tiny_checkpoint).model, DEFAULT_LIMITS)
    write_shard(
        tmp_path / "shard",
        encoder,
        items,
        range(2),
        BuildSettings(),
        NullProgress(),
        StageSeconds(),
    )
    shard = read_shard(tmp_path / "shard")
    assert shard is not None
    assert shard.rows == []
    assert [entry.id for entry in shard.left_out] == ["a", "b"]
