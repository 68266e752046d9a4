"""Inputs: the cache gives what the encoder gives, and mirrors what should be mirrored."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps

from aladin.images import read_image
from aladin.model import AladinModel
from aladin.photo_file import PhotoFile
from aladin.progress import NullProgress
from training.inputs import CachedPhotos, CachedTexts, DecodedPhotos, prepare_photos, prepare_texts

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


def test_cached_photos_equal_the_encoder_on_photo_and_mirror_image(
    photos: list[PhotoFile], tmp_path: Path, frozen_model: AladinModel
) -> None:
    encoder = frozen_model.image.encoder
    inputs, usable = prepare_photos(
        photos, encoder, "digest", tmp_path / "cache", VIEWS, "float32", NullProgress()
    )
    assert isinstance(inputs, CachedPhotos)
    assert usable == [0, 1, 2]
    found = inputs.get([2, 0], [1, 0])
    upright, other = read_image(photos[0]), ImageOps.mirror(read_image(photos[2]))
    pixels = torch.stack([encoder.preprocess(photo) for photo in (other, upright)])
    with torch.inference_mode():
        expected = encoder(pixels)
    torch.testing.assert_close(found.states, expected.states, atol=5e-3, rtol=1e-2)
    assert torch.equal(found.content, expected.content)


def test_decoded_photos_are_mirrored_on_demand(
    photos: list[PhotoFile], tmp_path: Path, build_tiny: Callable[..., AladinModel]
) -> None:
    encoder = build_tiny().image.encoder
    inputs, _ = prepare_photos(photos, encoder, "", tmp_path, VIEWS, "float32", NullProgress())
    assert isinstance(inputs, DecodedPhotos)
    upright, mirrored = inputs.get([1, 1], [0, 1])
    assert torch.equal(upright.flip(-1), mirrored)
    assert torch.equal(upright, encoder.preprocess(read_image(photos[1])))


def test_cached_texts_equal_the_encoder(tmp_path: Path, frozen_model: AladinModel) -> None:
    encoder = frozen_model.text.encoder
    inputs = prepare_texts(TEXTS, encoder, "digest", tmp_path, "float32", NullProgress())
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


def test_another_encoder_does_not_find_these_features(
    photos: list[PhotoFile], tmp_path: Path, frozen_model: AladinModel
) -> None:
    encoder = frozen_model.image.encoder
    for digest in ("one", "two"):
        prepare_photos(photos, encoder, digest, tmp_path / "cache", [""], "float32", NullProgress())
    assert len(list((tmp_path / "cache").iterdir())) == 2
