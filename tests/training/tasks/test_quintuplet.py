"""AOQ's task: six encoded batches, the scores of their pairs, dropped cross terms."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from aladin_network.model import AladinModel
from aladin_training.batches.batch import Batch
from aladin_training.config.stage import OfflineNegativesConfig, StageConfig, TaskConfig
from aladin_training.losses.offline_quintuplet import OfflineQuintupletLoss, OfflineScores
from aladin_training.tasks.joint import JointTask

Pairs = Callable[[AladinModel], Batch]


def stage(score: str, form: str) -> StageConfig:
    task = TaskConfig(loss="offline_quintuplet", options={"form": form})
    return StageConfig(
        name="s",
        tasks={f"{score}_quintuplet": task},  # type: ignore[dict-item]
        offline=OfflineNegativesConfig(stage="teacher"),
    )


@torch.no_grad()
def slow_loss(model: AladinModel, batch: Batch, score: str, form: str) -> torch.Tensor:
    """Score each pair on its own."""
    assert batch.offline is not None
    offline = batch.offline
    image = {
        "": model.encode_images(batch.images),
        "bar": model.encode_images(offline.images_bar),
        "tilde": model.encode_images(offline.images_tilde),
    }
    text = {
        "": model.encode_texts(batch.texts),
        "bar": model.encode_texts(offline.texts_bar),
        "tilde": model.encode_texts(offline.texts_tilde),
    }

    def pairs(of_images: str, of_texts: str) -> torch.Tensor:
        matrix = model.scores(score, image[of_images], text[of_texts])  # type: ignore[arg-type]
        return matrix.diagonal().clone()

    cross_text, cross_image = pairs("bar", "bar"), pairs("tilde", "tilde")
    cross_text[3] = cross_image[3] = float("-inf")
    scores = OfflineScores(pairs("", "bar"), pairs("bar", ""), cross_text, cross_image)
    matrix = model.scores(score, image[""], text[""])  # type: ignore[arg-type]
    return OfflineQuintupletLoss(form=form)(matrix, scores, batch.negatives)  # type: ignore[arg-type]


@pytest.mark.parametrize("score", ["matching", "alignment"])
@pytest.mark.parametrize("form", ["triplet", "quintuplet", "adaptive"])
def test_loss_of_a_batch(
    score: str, form: str, build_tiny: Callable[..., AladinModel], pairs_for: Pairs
) -> None:
    model = build_tiny().eval()
    batch = pairs_for(model)
    task = JointTask(model, stage(score, form)).eval()
    report = task(batch)
    torch.testing.assert_close(report.total.detach(), slow_loss(model, batch, score, form))
    report.total.backward()
    gradients = [value.grad for value in model.parameters() if value.grad is not None]
    assert gradients
    assert all(bool(gradient.isfinite().all()) for gradient in gradients)


def test_offline_triplets_encode_four_batches_only(
    build_tiny: Callable[..., AladinModel], pairs_for: Pairs, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = build_tiny()
    batch = pairs_for(model)
    encoded: list[str] = []
    encode = AladinModel.encode_images

    def count(self: AladinModel, images: torch.Tensor) -> object:
        encoded.append("images")
        return encode(self, images)

    monkeypatch.setattr(AladinModel, "encode_images", count)
    for form, expected in (("triplet", 2), ("adaptive", 3)):
        encoded.clear()
        JointTask(model, stage("matching", form))(batch)
        assert len(encoded) == expected
