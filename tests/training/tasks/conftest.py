"""A tiny network, batches for it, and the scores of its heads."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from aladin_network.model import AladinModel
from aladin_training.adapters.parts import reset_part
from aladin_training.batches.batch import Batch, OfflineBatch
from aladin_training.config.stage import StageConfig, TaskConfig
from aladin_training.losses.negatives import negative_mask

CAPTIONS = ["two dogs", "a red circle", "a man rides a motorcycle", "green grass"]
OTHERS = ["a dog", "blue paint", "a bus", "an empty road"]


def photos(count: int = 4, seed: int = 0) -> Tensor:
    return torch.randn(count, 3, 32, 32, generator=torch.Generator().manual_seed(seed))


def batch_for(model: AladinModel) -> Batch:
    """Four pairs with mined negatives; two are of one photo, the last pair's belong together."""
    preprocess = model.text.encoder.preprocess
    offline = OfflineBatch(
        images_bar=photos(seed=1),
        texts_bar=preprocess(OTHERS),
        images_tilde=photos(seed=2),
        texts_tilde=preprocess(OTHERS[::-1]),
        cross=torch.tensor([True, True, True, False]),
    )
    negatives = negative_mask(torch.tensor([0, 1, 1, 2]))
    return Batch(photos(), preprocess(CAPTIONS), negatives, offline)


def several_captions(model: AladinModel, captions: list[str] = CAPTIONS) -> Batch:
    ids = torch.arange(len(captions) // 2)
    texts = model.text.encoder.preprocess(captions)
    return Batch(photos(len(ids)), texts, negative_mask(ids, ids.repeat_interleave(2)))


def stage(tasks: dict[str, TaskConfig], **changes: object) -> StageConfig:
    return StageConfig(name="s", tasks=tasks, **changes)  # type: ignore[arg-type]


@torch.no_grad()
def scores_of(model: AladinModel, batch: Batch, score: str = "matching") -> Tensor:
    images, texts = model.encode_images(batch.images), model.encode_texts(batch.texts)
    return model.scores(score, images, texts)  # type: ignore[arg-type]


def another(model: AladinModel, seed: int) -> AladinModel:
    """The network with other heads and trunks."""
    other = copy.deepcopy(model)
    torch.manual_seed(seed)
    for part in ("image_trunk", "text_trunk", "alignment", "matching"):
        reset_part(other, part)
    return other


@pytest.fixture
def model(build_tiny: Callable[..., AladinModel]) -> AladinModel:
    return build_tiny()
