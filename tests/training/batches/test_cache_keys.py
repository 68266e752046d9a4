"""What the key of a cache of features depends on: the encoder, and how it was computed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from aladin_network.config import (
    ImageEncoderConfig,
    ImagePreprocessing,
    TowerConfig,
    TrunkConfig,
)
from aladin_network.encoders.base import Features
from aladin_network.model import AladinModel
from aladin_network.photos.files import PhotoFile
from aladin_network.types import NullProgress
from aladin_training.batches.inputs import Caches, InputStore, image_digest
from aladin_training.batches.items import PhotoItems, usable_photos
from aladin_training.parallel.numerics import Precision

TEXTS = ["two dogs", "a man rides a motorcycle in the street"]
RESNET = {
    "model_type": "resnet",
    "embedding_size": 8,
    "hidden_sizes": [8, 16],
    "depths": [1, 1],
    "layer_type": "basic",
}


@pytest.fixture
def items(tmp_path: Path) -> PhotoItems:
    generator = np.random.default_rng(0)
    files: list[PhotoFile] = []
    for number in range(3):
        files.append(PhotoFile(tmp_path / f"{number}.png"))
        pixels = generator.integers(0, 256, (32, 32, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(files[-1].path)
    found, _ = usable_photos(files, [""], None, NullProgress())
    return found


@pytest.fixture
def frozen_model(build_tiny: Callable[..., AladinModel]) -> AladinModel:
    """A network whose image encoder can be divided between two layers."""
    config = build_tiny().config
    return build_tiny(
        image_encoder=dataclasses.replace(config.image_encoder, frozen=True, architecture=RESNET),
        image_tower=TowerConfig(trunk=TrunkConfig(width=16, layers=0), aggregate="mean"),
        text_encoder=dataclasses.replace(config.text_encoder, frozen=True),
    )


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
    items: PhotoItems,
    tmp_path: Path,
    frozen_model: AladinModel,
    precision: Precision,
    last_layers: int | None,
) -> None:

    def features(
        cache: str, precision: Precision, last_layers: int | None = None
    ) -> list[torch.Tensor]:
        root = tmp_path / cache
        store = InputStore(
            items, TEXTS, frozen_model, Caches(root, precision, last_layers), NullProgress()
        )
        found = store.inputs_of(frozen_model)
        both = found.photos.get([0, 1, 2], [0, 0, 0]), found.texts.get([0, 1])
        return [each.states for each in both if isinstance(each, Features)]

    alone = features("alone", "float32")
    others = features("shared", precision, last_layers)
    assert not all(map(torch.equal, alone, others))
    assert len(alone) == 2
    assert all(map(torch.equal, alone, features("shared", "float32")))
    assert all(map(torch.equal, others, features("shared", precision, last_layers)))


def test_auto_has_the_key_of_the_precision_that_it_stands_for(
    items: PhotoItems,
    tmp_path: Path,
    frozen_model: AladinModel,
    monkeypatch: pytest.MonkeyPatch,
) -> None:

    def folders(cache: str, precision: Precision) -> set[str]:
        root = tmp_path / cache
        InputStore(items, TEXTS, frozen_model, Caches(root, precision), NullProgress()).inputs_of(
            frozen_model
        )
        return {each.name for each in root.iterdir()}

    numerics = "aladin_training.parallel.numerics.has_fast_bfloat16"
    plain = folders("a", "float32")
    monkeypatch.setattr(numerics, lambda _: False)
    assert folders("b", "auto") == plain
    monkeypatch.setattr(numerics, lambda _: True)
    assert folders("c", "auto") == folders("d", "bfloat16")
    assert not folders("c", "auto") & plain
