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
from aladin_network.config import ImageEncoderConfig, ImagePreprocessing, TowerConfig, TrunkConfig
from aladin_network.encoders.base import Features, LayerStates, TextBatch
from aladin_network.errors import DataError, ImageError
from aladin_network.model import AladinModel
from aladin_network.photos.decoding import read_image
from aladin_network.photos.files import PhotoFile
from aladin_network.types import NullProgress
from aladin_training.batches.dataset import PairDataset
from aladin_training.batches.feature_cache import FeatureCache
from aladin_training.batches.inputs import (
    CachedPhotos,
    Caches,
    InputStore,
    TokenisedTexts,
    image_digest,
)
from aladin_training.batches.items import PhotoItems, usable_photos
from aladin_training.data import Record
from aladin_training.data.records import strict_data
from aladin_training.evaluation import encode_captions
from aladin_training.parallel.numerics import Precision

VIEWS = ["", "mirrored"]
TEXTS = ["two dogs", "a man rides a motorcycle in the street", "two dogs"]
RESNET = {
    "model_type": "resnet",
    "embedding_size": 8,
    "hidden_sizes": [8, 16],
    "depths": [1, 1],
    "layer_type": "basic",
}
Build = Callable[..., AladinModel]


@pytest.fixture
def photos(tmp_path: Path) -> list[PhotoFile]:
    generator = np.random.default_rng(0)
    paths = [tmp_path / f"{number}.png" for number in range(3)]
    for path in paths:
        Image.fromarray(generator.integers(0, 256, (32, 32, 3), dtype=np.uint8)).save(path)
    return [PhotoFile(path) for path in paths]


@pytest.fixture
def frozen_model(build_tiny: Build) -> AladinModel:
    """A network whose encoders are frozen, and whose image encoder can be divided in two."""
    return convolutional(build_tiny, frozen=True)


def convolutional(build_tiny: Build, frozen: bool) -> AladinModel:
    config = build_tiny().config
    return build_tiny(
        image_encoder=dataclasses.replace(config.image_encoder, frozen=frozen, architecture=RESNET),
        image_tower=TowerConfig(trunk=TrunkConfig(width=16, layers=0), aggregate="mean"),
        text_encoder=dataclasses.replace(config.text_encoder, frozen=frozen),
    ).eval()


def store_of(
    photos: list[PhotoFile],
    model: AladinModel,
    cache: Path,
    precision: Precision = "float32",
    last_layers: int | None = None,
) -> InputStore:
    items, usable = usable_photos(photos, VIEWS, None, NullProgress())
    assert usable == list(range(len(photos)))
    return InputStore(items, TEXTS, model, Caches(cache, precision, last_layers), NullProgress())


def encoded(model: AladinModel, photos: list[PhotoFile]) -> Features:
    encoder = model.image.encoder
    both = ImageOps.mirror(read_image(photos[2])), read_image(photos[0])
    with torch.inference_mode():
        return encoder(encoder.collate([encoder.preprocess(photo) for photo in both]))


def assert_close(found: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(found, expected, atol=5e-3, rtol=1e-2)


def test_cached_photos_and_texts_equal_the_encoders(
    photos: list[PhotoFile], tmp_path: Path, frozen_model: AladinModel
) -> None:
    inputs = store_of(photos, frozen_model, tmp_path / "cache").inputs_of(frozen_model)
    found, expected = inputs.photos.get([2, 0], [1, 0]), encoded(frozen_model, photos)
    assert isinstance(found, Features)
    assert_close(found.states, expected.states)
    assert torch.equal(found.content, expected.content)
    encoder = frozen_model.text.encoder
    texts, batch = inputs.texts.get([1, 2]), encoder.preprocess([TEXTS[1], TEXTS[2]])
    with torch.inference_mode():
        expected = encoder(batch)
    assert isinstance(texts, Features)
    assert torch.equal(texts.mask, batch.mask)
    assert torch.equal(texts.content, batch.content)
    assert_close(texts.states[texts.mask], expected.states[batch.mask])


def test_cached_states_are_those_that_enter_the_trained_layers(
    photos: list[PhotoFile], tmp_path: Path, build_tiny: Build
) -> None:
    model = convolutional(build_tiny, frozen=False)
    model.image.encoder.divide(1)
    found = store_of(photos, model, tmp_path).inputs_of(model).photos.get([2, 0], [1, 0])
    assert isinstance(found, LayerStates)
    with torch.inference_mode():
        assert_close(model.image.encoder(found).states, encoded(model, photos).states)


def test_read_photos_are_mirrored_on_demand(
    photos: list[PhotoFile], tmp_path: Path, build_tiny: Build
) -> None:
    model = build_tiny()
    found = store_of(photos, model, tmp_path).inputs_of(model).photos.get([1, 1], [0, 1])
    assert isinstance(found, torch.Tensor)
    assert torch.equal(found[0].flip(-1), found[1])
    expected = model.image.encoder.preprocess(read_image(photos[1]))
    assert isinstance(expected, torch.Tensor)
    assert torch.equal(found[0], expected)


def test_decoded_photos_in_memory_are_bounded_whatever_the_batch(
    photos: list[PhotoFile], tmp_path: Path, build_tiny: Build, monkeypatch: pytest.MonkeyPatch
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


def test_features_of_frozen_encoders_are_computed_from_cached_states(
    photos: list[PhotoFile],
    tmp_path: Path,
    frozen_model: AladinModel,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def states(store: InputStore) -> torch.Tensor:
        found = store.inputs_of(frozen_model).photos.get([0, 1, 2], [0, 1, 0])
        assert isinstance(found, Features)
        return found.states

    store = store_of(photos, frozen_model, tmp_path / "cache", last_layers=1)
    before = states(store)
    assert_close(before, states(store_of(photos, frozen_model, tmp_path / "plain")))
    # Another network with the same first layers, as after a stage that tuned the last ones.
    with torch.no_grad():
        for name, value in frozen_model.image.encoder.named_parameters():
            if ".stages.1." in name:
                value.mul_(1.5)
    with monkeypatch.context() as patch:
        patch.setattr(PhotoItems, "load", lambda *_: pytest.fail("a photo was read again"))
        after = states(store)
    assert (after - before).abs().max() > 1e-3
    assert_close(after, states(store_of(photos, frozen_model, tmp_path / "other")))


def test_networks_share_features_only_if_their_encoders_weights_are_the_same(
    photos: list[PhotoFile], tmp_path: Path, frozen_model: AladinModel
) -> None:
    store = store_of(photos, frozen_model, tmp_path / "cache")
    before = store.inputs_of(frozen_model)
    assert store.inputs_of(frozen_model).photos is before.photos
    with torch.no_grad():
        for value in frozen_model.image.encoder.parameters():
            value += 0.1 * torch.randn(value.shape, generator=torch.Generator().manual_seed(0))
    after = store.inputs_of(frozen_model)
    assert after.texts is before.texts
    found, other = after.photos.get([0], [0]), before.photos.get([0], [0])
    assert isinstance(found, Features) and isinstance(other, Features)
    assert (found[0] - other[0]).abs().max() > 0.1
    # An encoder that is trained reads what any encoder would.
    frozen_model.text.encoder.frozen = False
    assert isinstance(store.inputs_of(frozen_model).texts, TokenisedTexts)
    assert store.inputs_of(frozen_model).texts is store.unencoded.texts


def test_photos_in_a_cache_are_neither_encoded_nor_decoded_again(
    photos: list[PhotoFile],
    tmp_path: Path,
    frozen_model: AladinModel,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    inputs = store_of(photos, frozen_model, tmp_path / "cache").inputs_of(frozen_model).photos
    assert isinstance(inputs, CachedPhotos) and isinstance(inputs.features, FeatureCache)
    files = {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("*.npy")}
    assert files
    monkeypatch.delattr(aladin_training.batches.items, "decode_image")
    items, usable = usable_photos(photos, VIEWS, inputs.features, NullProgress())
    assert (items, usable) == (inputs.items, [0, 1, 2])
    caches = Caches(tmp_path / "cache", "float32")
    again = InputStore(items, TEXTS, frozen_model, caches, NullProgress())
    found = again.inputs_of(frozen_model).photos.get([0], [0])
    assert isinstance(found, Features) and len(found.states) == 1
    assert files == {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("*.npy")}


def test_photos_that_cannot_be_decoded_or_read_are_skipped_unless_they_are_most(
    photos: list[PhotoFile], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "damaged.png").write_bytes(photos[1].path.read_bytes()[:60])
    bad = [PhotoFile(tmp_path / "damaged.png"), PhotoFile(tmp_path / "gone.png")]
    with caplog.at_level(logging.WARNING):
        items, usable = usable_photos([bad[0], *photos, bad[1]], VIEWS, None, NullProgress())
    assert (usable, len(items)) == ([1, 2, 3], 3)
    assert [message.split(": ")[0] for message in caplog.messages] == [
        "skipped damaged.png",
        "skipped gone.png",
    ]
    [second] = items.load(1, [0])
    assert isinstance(second, Image.Image)
    assert second.tobytes() == read_image(photos[1]).tobytes()
    assert len({items.key(row, view) for row in range(3) for view in range(2)}) == 6
    photos[0].path.write_bytes(b"gone")
    with pytest.raises(ImageError, match=r"0\.png"):
        items.load(0, [0])
    with pytest.raises(DataError, match="2 of 3 photos cannot be used, more than half; the first"):
        usable_photos([*bad, photos[1]], [""], None, NullProgress())
    with strict_data(True), pytest.raises(DataError, match=r"damaged\.png: damaged"):
        usable_photos([bad[0], *photos[1:]], [""], None, NullProgress())


def test_captions_that_are_too_long_are_cut_and_counted_in_training_and_evaluation(
    photos: list[PhotoFile], tmp_path: Path, build_tiny: Build, caplog: pytest.LogCaptureFixture
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
    embeddings = encode_captions(model, captions, NullProgress()).embedding
    assert caplog.messages[-1].startswith(said)
    torch.testing.assert_close(embeddings[0], embeddings[1])


def test_the_key_of_a_cache_is_of_what_shapes_an_output(frozen_model: AladinModel) -> None:
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Later(ImageEncoderConfig):
        """The configuration of a later version."""

        later: str = "as before"

    encoder = frozen_model.image.encoder
    config, key = encoder.config, image_digest(encoder)

    def key_of(config: ImageEncoderConfig) -> str:
        encoder.config = config
        return image_digest(encoder)

    assert key_of(dataclasses.replace(config, source="elsewhere", frozen=False)) == key
    assert key_of(Later(**vars(config))) == key
    darker = ImagePreprocessing(height_px=32, width_px=32, mean=(0.1, 0.1, 0.1))
    others = {
        key_of(Later(**vars(config), later="otherwise")),
        key_of(dataclasses.replace(config, pyramid=(1,))),
        key_of(dataclasses.replace(config, preprocessing=darker)),
    }
    encoder.config = config
    with torch.no_grad():
        next(encoder.parameters()).add_(1)
    assert len(others | {key, image_digest(encoder)}) == 5


@pytest.mark.parametrize(
    ("precision", "last_layers"), [("bfloat16", None), ("float16", None), ("float32", 1)]
)
def test_features_are_shared_only_if_they_are_computed_alike(
    photos: list[PhotoFile],
    tmp_path: Path,
    frozen_model: AladinModel,
    precision: Precision,
    last_layers: int | None,
) -> None:
    def features(
        cache: str, precision: Precision, last_layers: int | None = None
    ) -> list[torch.Tensor]:
        store = store_of(photos, frozen_model, tmp_path / cache, precision, last_layers)
        found = store.inputs_of(frozen_model)
        both = found.photos.get([0, 1, 2], [0, 0, 0]), found.texts.get([0, 1])
        return [each.states for each in both if isinstance(each, Features)]

    alone = features("alone", "float32")
    others = features("shared", precision, last_layers)
    assert not all(map(torch.equal, alone, others))
    assert len(alone) == 2
    assert all(map(torch.equal, alone, features("shared", "float32")))
    assert all(map(torch.equal, others, features("shared", precision, last_layers)))
