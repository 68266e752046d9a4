"""A batch of four pairs, two of them of one photo."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from aladin_network.model import AladinModel
from aladin_training.batches.batch import Batch, OfflineBatch
from aladin_training.losses.negatives import negative_mask

CAPTIONS = ["two dogs", "a red circle", "a man rides a motorcycle", "green grass"]
OTHERS = ["a dog", "blue paint", "a bus", "an empty road"]


def _photos(seed: int) -> torch.Tensor:
    return torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(seed))


@pytest.fixture
def pairs_for() -> Callable[[AladinModel], Batch]:
    """Make four pairs with mined negatives; the last pair's belong together."""

    def build(model: AladinModel) -> Batch:
        preprocess = model.text.encoder.preprocess
        offline = OfflineBatch(
            images_bar=_photos(1),
            texts_bar=preprocess(OTHERS),
            images_tilde=_photos(2),
            texts_tilde=preprocess(OTHERS[::-1]),
            cross=torch.tensor([True, True, True, False]),
        )
        photos = torch.tensor([0, 1, 1, 2])
        return Batch(_photos(0), preprocess(CAPTIONS), negative_mask(photos), offline)

    return build
