"""Every kind of task on one batch: networks, losses and data for the tests of a training step."""

from __future__ import annotations

import copy
import functools
import random
from collections.abc import Mapping
from typing import NamedTuple

import torch

from aladin_network.config import (
    AlignmentHeadConfig,
    AttentionHeadConfig,
    ImageEncoderConfig,
    ImagePreprocessing,
    MatchingHeadConfig,
    ModelConfig,
    TextEncoderConfig,
    TowerConfig,
    TrunkConfig,
)
from aladin_network.encoders.base import TextBatch
from aladin_network.encoders.registry import text_encoder_class
from aladin_network.model import AladinModel
from aladin_training.batches.batch import Batch, OfflineBatch
from aladin_training.batches.dataset import WHOLE
from aladin_training.config.stage import (
    AnchorsConfig,
    OfflineNegativesConfig,
    StageConfig,
    TaskConfig,
)
from aladin_training.losses.negatives import negative_mask
from aladin_training.parallel.distributed import BatchShare
from aladin_training.tasks.frozen import MomentumAnchor
from aladin_training.tasks.joint import JointTask, OnlineBranches
from aladin_training.tasks.scores import Encode, FrozenNetwork

PHOTOS = 6
WORDS = ["red", "blue", "circle", "square", "dog", "street", "above", "left"]
LEARNABLE = {"temperature": 0.2, "learnable": True}


class Case(NamedTuple):
    """A stage and what its batch must have.

    Attributes:
        tasks: of the stage.
        captions_per_photo: of the batch.
        anchors: scenario of the boosting tasks.
        teacher: whether another network teaches.
    """

    tasks: Mapping[str, TaskConfig]
    captions_per_photo: int = 1
    anchors: AnchorsConfig | None = None
    teacher: bool = False


def _boosted(**anchors: object) -> Case:
    tasks = {
        "matching_boosting": TaskConfig(loss="boosting"),
        "matching_imitation": TaskConfig(loss="listnet"),
        "alignment": TaskConfig(loss="triplet"),
    }
    return Case(tasks, anchors=AnchorsConfig(**anchors))  # type: ignore[arg-type]


CASES: dict[str, Case] = {
    "matching": Case({"matching": TaskConfig(loss="infonce", options=LEARNABLE)}, 2),
    "alignment": Case({"alignment": TaskConfig(loss="triplet")}),
    "attention": Case({"attention": TaskConfig(loss="infonce", options=LEARNABLE)}),
    "gradient": Case({"matching": TaskConfig(loss="gradient")}),
    "distillation": Case(
        {"alignment": TaskConfig(loss="triplet"), "distillation": TaskConfig(loss="listnet")}
    ),
    "teacher": Case({"alignment_distillation": TaskConfig(loss="listnet")}, teacher=True),
    "intra-modal": Case(
        {
            "matching": TaskConfig(loss="triplet"),
            "intra_modal": TaskConfig(loss="intra_modal", options={"lower": 0.2, "upper": 0.6}),
        }
    ),
    "captions": Case({"captions": TaskConfig(loss="infonce")}, 2),
    "quintuplet": Case(
        {
            "alignment_quintuplet": TaskConfig(loss="offline_quintuplet"),
            "matching_quintuplet": TaskConfig(
                loss="offline_quintuplet", options={"form": "triplet"}
            ),
        }
    ),
    "offline anchors": _boosted(scenario="offline", stages=("earlier", "earlier")),
    "online anchors": _boosted(scenario="online", stages=("random",)),
    "momentum anchors": _boosted(scenario="momentum"),
}


def stage_of(case: Case) -> StageConfig:
    offline = any("quintuplet" in name for name in case.tasks)
    return StageConfig(
        name="stage",
        tasks=dict(case.tasks),
        anchors=case.anchors,
        teacher="earlier" if case.teacher else None,
        offline=OfflineNegativesConfig(stage="earlier") if offline else None,
        batch_size=PHOTOS,
    )


def task_of(case: Case, *, dropout: float = 0.0) -> JointTask | OnlineBranches:
    """Build the case's networks, the same at every call, in training mode."""
    stage, model = stage_of(case), network(0, dropout)
    teacher = _Teacher(network(1, dropout)) if case.teacher else None
    task = JointTask(model, stage, teacher)
    match case.anchors.scenario if case.anchors else None:
        case "offline":
            task.anchors = (FrozenNetwork(network(1, dropout)), FrozenNetwork(network(2, dropout)))
        case "momentum":
            task.momentum_anchors = (MomentumAnchor(network(1, dropout), 0.9),)
        case "online":
            both = OnlineBranches([JointTask(network(1, dropout), stage)], task)
            both.start_epoch(0)
            return both
        case None:
            pass
    task.start_epoch(0)
    return task


class _Teacher:
    """Teaches alignment scores."""

    def __init__(self, model: AladinModel) -> None:
        self._network = FrozenNetwork(model)

    def scores(self, batch: Batch, encode: Encode) -> torch.Tensor:
        with torch.no_grad():
            return self._network(batch, encode).of("alignment")


def network(seed: int, dropout: float) -> AladinModel:
    """Return a copy of a network of all heads with trained encoders."""
    return copy.deepcopy(_network(seed, dropout))


@functools.cache
def _network(seed: int, dropout: float) -> AladinModel:
    torch.manual_seed(seed)
    trunk = TrunkConfig(width=8, layers=1, heads=2, feedforward=8, dropout=dropout)
    config = ModelConfig(
        image_encoder=ImageEncoderConfig(
            architecture={
                "model_type": "vit",
                "hidden_size": 8,
                "num_hidden_layers": 1,
                "num_attention_heads": 2,
                "intermediate_size": 8,
                "image_size": 16,
                "patch_size": 8,
                "hidden_dropout_prob": dropout,
            },
            preprocessing=ImagePreprocessing(height_px=16, width_px=16),
        ),
        text_encoder=TextEncoderConfig(
            architecture={
                "model_type": "bert",
                "hidden_size": 8,
                "num_hidden_layers": 1,
                "num_attention_heads": 2,
                "intermediate_size": 8,
                "max_position_embeddings": 32,
                "hidden_dropout_prob": dropout,
                "attention_probs_dropout_prob": dropout,
            },
            max_tokens=16,
        ),
        image_tower=TowerConfig(trunk=trunk),
        text_tower=TowerConfig(trunk=trunk),
        alignment=AlignmentHeadConfig(dim=8),
        matching=MatchingHeadConfig(layers=1, heads=2, dropout=dropout),
        attention=AttentionHeadConfig(dim=8),
    )
    tokenizer = text_encoder_class(config).learn_tokenizer(WORDS, 60)
    return AladinModel.create(config, tokenizer)


def batch_of(case: Case, share: BatchShare = WHOLE) -> Batch:
    """Return a process's share of the case's batch; its texts are as long as its longest."""
    texts = PHOTOS * case.captions_per_photo
    own = share.photos(PHOTOS)
    of_photos = slice(own.start * case.captions_per_photo, own.stop * case.captions_per_photo)
    photos = torch.tensor([0, 1, 1, 2, 3, 4])  # one stands in the batch twice
    offline = None
    if any("quintuplet" in name for name in case.tasks):
        offline = OfflineBatch(
            images_bar=_photos(1)[own],
            texts_bar=_texts(PHOTOS, 1, own),
            images_tilde=_photos(2)[own],
            texts_tilde=_texts(PHOTOS, 2, own),
            cross=torch.tensor([True, True, False, True, True, True])[own],
        )
    return Batch(
        _photos(0)[own],
        _texts(texts, 0, of_photos),
        negative_mask(photos, photos.repeat_interleave(case.captions_per_photo)),
        offline,
    )


def gradients(task: JointTask | OnlineBranches) -> dict[str, torch.Tensor]:
    return {
        name: value.grad.clone()
        for name, value in task.named_parameters()
        if value.grad is not None
    }


def _photos(seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(PHOTOS, 3, 16, 16, generator=generator)


def _texts(count: int, seed: int, own: slice) -> TextBatch:
    """Make texts that grow: the later ones of a batch are longer than the first."""
    drawn = random.Random(seed)
    texts = [" ".join(drawn.choices(WORDS, k=1 + 5 * row // count)) for row in range(count)]
    return _network(0, 0.0).text.encoder.preprocess(texts[own], truncate=True)
