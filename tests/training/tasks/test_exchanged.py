"""The task of captions with one word exchanged, against pairs scored one by one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from aladin_network.model import AladinModel
from aladin_network.types import ScoreName
from aladin_training.batches.batch import Batch, ExchangedBatch
from aladin_training.config.stage import StageConfig, TaskConfig
from aladin_training.losses.negatives import negative_mask
from aladin_training.tasks.joint import JointTask

CAPTIONS = ["two dogs", "a man with two dogs", "a red circle", "a circle"]
EXCHANGED = ["a man with two cats", "a circle"]


@pytest.mark.parametrize("score", ["matching", "alignment"])
def test_loss_of_a_batch(score: ScoreName, build_tiny: Callable[..., AladinModel]) -> None:
    model = build_tiny().eval()
    preprocess = model.text.encoder.preprocess
    photos = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    both = torch.arange(2)
    exchanged = ExchangedBatch(
        preprocess(EXCHANGED), torch.tensor([1, 3]), torch.tensor([True, False])
    )
    batch = Batch(
        photos,
        preprocess(CAPTIONS),
        negative_mask(both, both.repeat_interleave(2)),
        exchanged=exchanged,
    )
    config = TaskConfig(loss="pair_margin", options={"margin": 2.0})
    stage = StageConfig(name="s", tasks={f"{score}_exchanged": config})
    report = JointTask(model, stage).eval()(batch)

    def alone(photo: int, text: str) -> float:
        with torch.no_grad():
            images = model.encode_images(photos[photo : photo + 1])
            return model.scores(score, images, model.encode_texts(preprocess([text]))).item()

    # The second photo has no exchanged caption.
    expected = 2 + alone(0, EXCHANGED[0]) - alone(0, CAPTIONS[1])
    assert report.total.item() == pytest.approx(expected, abs=1e-5)
    report.total.backward()
    assert any(value.grad is not None and value.grad.any() for value in model.parameters())
