"""Inputs: the cache gives what the encoder gives; what is read is decoded when it is wanted."""

from __future__ import annotations

import dataclasses
import gc
import logging
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps

import aladin_training.batches.items
from aladin_network.config import TowerConfig, TrunkConfig
from aladin_network.encoders.base import Features, LayerStates, TextBatch
from aladin_network.errors import DataError, ImageError
from aladin_network.model import AladinModel
from aladin_network.photos.decoding import read_image
from aladin_network.photos.files import PhotoFile
from aladin_network.types import NullProgress
from aladin_training.batches.dataset import PairDataset
from aladin_training.batches.feature_cache import FeatureCache
from aladin_training.batches.inputs import Caches, InputStore
from aladin_training.batches.items import PhotoItems, usable_photos
from aladin_training.batches.network_inputs import (
    CachedPhotos,
    CachedStates,
    CachedTexts,
    ReadPhotos,
    TokenisedTexts,
)
from aladin_training.data import Record
from aladin_training.data.records import strict_data
from aladin_training.evaluation import encode_captions

VIEWS = ["", "mirrored"]
TEXTS = ["two dogs", "a man rides a motorcycle in the street", "two dogs"]


@pytest.fixture
def photos(tmp_path: Path) -> list[PhotoFile]:
    generator = np.random.default_rng(0)
    paths = [tmp_path / f"{number}.png" for number in range(3)]
    for path in paths:
        Image.fromarray(generator.integers(0, 256, (32, 32, 3), dtype=np.uint8)).save(path)
    return [PhotoFile(path) for path in paths]


@pytest.fixture
def frozen_model(build_tiny: Callable[..., AladinModel]) -> AladinModel:
    config = build_tiny().config
    return build_tiny(
        image_encoder=dataclasses.replace(config.image_encoder, frozen=True),
        text_encoder=dataclasses.replace(config.text_encoder, frozen=True),
    )


def store_of(photos: list[PhotoFile], model: AladinModel, cache: Path) -> InputStore:
    items, usable = usable_photos(photos, VIEWS, None, NullProgress())
    assert usable == list(range(len(photos)))
    return InputStore(items, TEXTS, model, Caches(cache, "float32"), NullProgress())


def test_cached_photos_equal_the_encoder_on_photo_and_mirror_image(
    photos: list[PhotoFile], tmp_path: Path, frozen_model: AladinModel
) -> None:
    encoder = frozen_model.image.encoder
    inputs = store_of(photos, frozen_model, tmp_path / "cache").inputs_of(frozen_model).photos
    assert isinstance(inputs, CachedPhotos)
    found = inputs.get([2, 0], [1, 0])
    upright, other = read_image(photos[0]), ImageOps.mirror(read_image(photos[2]))
    pixels = encoder.collate([encoder.preprocess(photo) for photo in (other, upright)])
    with torch.inference_mode():
        expected = encoder(pixels)
    torch.testing.assert_close(found.states, expected.states, atol=5e-3, rtol=1e-2)
    assert torch.equal(found.content, expected.content)


def test_read_photos_are_mirrored_on_demand(
    photos: list[PhotoFile], tmp_path: Path, build_tiny: Callable[..., AladinModel]
) -> None:
    model = build_tiny()
    inputs = store_of(photos, model, tmp_path).inputs_of(model).photos
    assert isinstance(inputs, ReadPhotos)
    found = inputs.get([1, 1], [0, 1])
    assert isinstance(found, torch.Tensor)
    upright, mirrored = found
    assert torch.equal(upright.flip(-1), mirrored)
    expected = model.image.encoder.preprocess(read_image(photos[1]))
    assert isinstance(expected, torch.Tensor)
    assert torch.equal(upright, expected)


def test_decoded_photos_in_memory_are_bounded_whatever_the_batch(
    photos: list[PhotoFile],
    tmp_path: Path,
    build_tiny: Callable[..., AladinModel],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, threads = build_tiny(), 2
    inputs = store_of(photos, model, tmp_path).inputs_of(model).photos
    decoded: list[weakref.ref[Image.Image]] = []
    most = 0

    def alive() -> int:
        return sum(photo() is not None for photo in decoded)

    def counted(*args: Any, **options: Any) -> Image.Image:
        nonlocal most
        photo = decode(*args, **options)
        decoded.append(weakref.ref(photo))
        most = max(most, alive())
        return photo

    decode = aladin_training.batches.items.decode_image
    monkeypatch.setattr(aladin_training.batches.items, "decode_image", counted)
    monkeypatch.setattr(aladin_training.batches.items, "THREADS", threads)
    gc.disable()  # reference counts alone have to let the photos go
    try:
        inputs.get([0, 1, 2] * 10, [0] * 30)
    finally:
        gc.enable()
    # A thread may hold its last photo while it decodes the next.
    assert 1 <= most <= 2 * threads
    assert (len(decoded), alive()) == (30, 0)


def test_cached_texts_equal_the_encoder(
    photos: list[PhotoFile], tmp_path: Path, frozen_model: AladinModel
) -> None:
    encoder = frozen_model.text.encoder
    inputs = store_of(photos, frozen_model, tmp_path).inputs_of(frozen_model).texts
    assert isinstance(inputs, CachedTexts)
    found = inputs.get([1, 2])
    batch = encoder.preprocess([TEXTS[1], TEXTS[2]])
    with torch.inference_mode():
        expected = encoder(batch)
    assert torch.equal(found.mask, batch.mask)
    assert torch.equal(found.content, batch.content)
    torch.testing.assert_close(
        found.states[found.mask], expected.states[batch.mask], atol=5e-3, rtol=1e-2
    )


RESNET = {
    "model_type": "resnet",
    "embedding_size": 8,
    "hidden_sizes": [8, 16],
    "depths": [1, 1],
    "layer_type": "basic",
}


def convolutional(build_tiny: Callable[..., AladinModel], frozen: bool) -> AladinModel:
    """A network whose image encoder can be divided between two layers."""
    config = build_tiny().config.image_encoder
    image = dataclasses.replace(config, frozen=frozen, architecture=RESNET)
    tower = TowerConfig(trunk=TrunkConfig(width=16, layers=0), aggregate="mean")
    return build_tiny(image_encoder=image, image_tower=tower)


def test_cached_states_are_those_that_enter_the_trained_layers(
    photos: list[PhotoFile], tmp_path: Path, build_tiny: Callable[..., AladinModel]
) -> None:
    model = convolutional(build_tiny, frozen=False).eval()
    encoder = model.image.encoder
    encoder.divide(1)
    inputs = store_of(photos, model, tmp_path / "cache").inputs_of(model).photos
    assert isinstance(inputs, CachedStates)
    found = inputs.get([2, 0], [1, 0])
    assert isinstance(found, LayerStates)
    upright, other = read_image(photos[0]), ImageOps.mirror(read_image(photos[2]))
    pixels = encoder.collate([encoder.preprocess(photo) for photo in (other, upright)])
    with torch.inference_mode():
        expected = encoder(pixels)
        torch.testing.assert_close(encoder(found).states, expected.states, atol=5e-3, rtol=1e-2)


def test_features_of_frozen_encoders_are_computed_from_cached_states(
    photos: list[PhotoFile],
    tmp_path: Path,
    build_tiny: Callable[..., AladinModel],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = convolutional(build_tiny, frozen=True)
    items, _ = usable_photos(photos, VIEWS, None, NullProgress())
    plain = InputStore(items, TEXTS, model, Caches(tmp_path / "plain", "float32"), NullProgress())
    expected = plain.inputs_of(model).photos.get([0, 1, 2], [0, 1, 0])
    store = InputStore(
        items, TEXTS, model, Caches(tmp_path / "cache", "float32", 1), NullProgress()
    )
    found = store.inputs_of(model).photos.get([0, 1, 2], [0, 1, 0])
    assert isinstance(found, Features)
    assert isinstance(expected, Features)
    torch.testing.assert_close(found.states, expected.states, atol=5e-3, rtol=1e-2)
    # Another network with the same first layers, as after a stage that tuned the last ones.
    with torch.no_grad():
        for name, value in model.image.encoder.named_parameters():
            if ".stages.1." in name:
                value.mul_(1.5)
    monkeypatch.setattr(PhotoItems, "load", lambda *_: pytest.fail("a photo was read again"))
    after = store.inputs_of(model).photos.get([0, 1, 2], [0, 1, 0])
    assert isinstance(after, Features)
    assert (after.states - found.states).abs().max() > 1e-3
    monkeypatch.undo()
    expected = (
        InputStore(items, TEXTS, model, Caches(tmp_path / "other", "float32"), NullProgress())
        .inputs_of(model)
        .photos.get([0, 1, 2], [0, 1, 0])
    )
    assert isinstance(expected, Features)
    torch.testing.assert_close(after.states, expected.states, atol=5e-3, rtol=1e-2)


def test_networks_share_features_only_if_their_encoders_weights_are_the_same(
    photos: list[PhotoFile], tmp_path: Path, frozen_model: AladinModel
) -> None:
    store = store_of(photos, frozen_model, tmp_path / "cache")
    before = store.inputs_of(frozen_model)
    assert store.inputs_of(frozen_model) is not before
    assert store.inputs_of(frozen_model).photos is before.photos
    with torch.no_grad():
        for value in frozen_model.image.encoder.parameters():
            value += 0.1 * torch.randn(value.shape, generator=torch.Generator().manual_seed(0))
    after = store.inputs_of(frozen_model)
    assert after.texts is before.texts
    assert after.photos is not before.photos
    found, other = after.photos.get([0], [0]), before.photos.get([0], [0])
    assert isinstance(found, Features)
    assert isinstance(other, Features)
    assert (found[0] - other[0]).abs().max() > 0.1
    # An encoder that is trained reads what any encoder would.
    frozen_model.text.encoder.frozen = False
    assert isinstance(store.inputs_of(frozen_model).texts, TokenisedTexts)
    assert store.inputs_of(frozen_model).texts is store.unencoded.texts


def test_features_are_computed_once(
    photos: list[PhotoFile], tmp_path: Path, frozen_model: AladinModel
) -> None:
    store_of(photos, frozen_model, tmp_path / "cache").inputs_of(frozen_model)
    files = {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("*.npy")}
    assert files
    found = store_of(photos, frozen_model, tmp_path / "cache").inputs_of(frozen_model)
    assert files == {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("*.npy")}
    states, _, _ = found.photos.get([0], [0])
    assert isinstance(states, torch.Tensor)
    assert len(states) == 1


def test_damaged_photos_are_left_out_before_training(
    photos: list[PhotoFile], caplog: pytest.LogCaptureFixture
) -> None:
    photos[1].path.write_bytes(photos[1].path.read_bytes()[:60])
    with caplog.at_level(logging.WARNING):
        items, usable = usable_photos(photos, VIEWS, None, NullProgress())
    assert usable == [0, 2]
    assert len(items) == 2
    assert "1.png" in caplog.text
    [second] = items.load(1, [0])
    assert isinstance(second, Image.Image)
    assert second.tobytes() == read_image(photos[2]).tobytes()
    assert items.key(1, 0) != items.key(1, 1)
    assert len({items.key(row, view) for row in range(2) for view in range(2)}) == 4


def test_photos_in_a_cache_are_not_decoded_again(
    photos: list[PhotoFile],
    tmp_path: Path,
    frozen_model: AladinModel,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    inputs = store_of(photos, frozen_model, tmp_path / "cache").inputs_of(frozen_model).photos
    assert isinstance(inputs, CachedPhotos)
    cache = inputs.features
    assert isinstance(cache, FeatureCache)
    monkeypatch.delattr(aladin_training.batches.items, "decode_image")
    items, usable = usable_photos(photos, VIEWS, cache, NullProgress())
    assert usable == [0, 1, 2]
    assert items == inputs.items


def test_a_photo_that_is_damaged_later_is_named(photos: list[PhotoFile]) -> None:
    items, _ = usable_photos(photos, VIEWS, None, NullProgress())
    assert isinstance(items, PhotoItems)
    photos[0].path.write_bytes(b"gone")
    with pytest.raises(ImageError, match=r"0\.png"):
        items.load(0, [0])


def test_captions_that_are_too_long_are_cut_and_counted_in_training_and_evaluation(
    photos: list[PhotoFile],
    tmp_path: Path,
    build_tiny: Callable[..., AladinModel],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Of 32 tokens two are special ones."""
    model = build_tiny().eval()
    captions = ("red " * 600, "red " * 30, "a red dog")
    record = Record(id="a", photo=photos[0], uri="a.png", captions=captions)
    said = "1 of 3 captions are longer than the network reads, and cut"
    found = PairDataset.prepare([record], model, Caches(tmp_path, "float32"), [""], NullProgress())
    assert caplog.messages[-1].startswith(said)
    batch = found.inputs.texts.get([0, 1])
    assert isinstance(batch, TextBatch)
    assert torch.equal(batch.ids[0], batch.ids[1])
    caplog.clear()
    encoded = encode_captions(model, captions, NullProgress())
    assert caplog.messages[-1].startswith(said)
    torch.testing.assert_close(encoded.embedding[0], encoded.embedding[1])


def test_photos_that_cannot_be_decoded_or_read_are_skipped_unless_they_are_most(
    photos: list[PhotoFile], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "damaged.png").write_bytes(b"words")
    bad = [PhotoFile(tmp_path / "damaged.png"), PhotoFile(tmp_path / "gone.png")]
    _, usable = usable_photos([bad[0], *photos, bad[1]], [""], None, NullProgress())
    assert usable == [1, 2, 3]
    assert [message.split(": ")[0] for message in caplog.messages] == [
        "skipped damaged.png",
        "skipped gone.png",
    ]
    with pytest.raises(DataError, match="2 of 3 photos cannot be used, more than half; the first"):
        usable_photos([*bad, photos[0]], [""], None, NullProgress())
    with strict_data(True), pytest.raises(DataError, match=r"damaged\.png: not an image"):
        usable_photos([bad[0], *photos], [""], None, NullProgress())
