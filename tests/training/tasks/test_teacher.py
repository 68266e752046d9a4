"""A frozen teacher: its scores are its network's, and nothing of it is trained."""

from __future__ import annotations

import dataclasses
import unittest.mock
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from aladin_network.checkpoint import load_checkpoint
from aladin_network.checkpoint_files import Checkpoint
from aladin_network.model import AladinModel
from aladin_network.scoring.fusion import DirectionFusion, Fusion
from aladin_network.scoring.scores import matching_scores
from aladin_training.batches.batch import Batch
from aladin_training.config.stage import StageConfig, TaskConfig
from aladin_training.losses.listnet import ListNetLoss
from aladin_training.losses.negatives import negative_mask
from aladin_training.tasks.frozen import Teacher
from aladin_training.tasks.joint import JointTask

CAPTIONS = ["two dogs", "a red circle", "green grass"]
FUSION = Fusion(text_to_image=DirectionFusion(weight=0.25, align_std=2.0, match_mean=0.5))


@pytest.fixture
def checkpoint(tiny_checkpoint: Path) -> Checkpoint:
    return with_fusion(load_checkpoint(tiny_checkpoint), FUSION)


def with_fusion(checkpoint: Checkpoint, fusion: Fusion) -> Checkpoint:
    config = dataclasses.replace(checkpoint.config, fusion=fusion)
    return dataclasses.replace(checkpoint, config=config)


@pytest.fixture
def batch(checkpoint: Checkpoint) -> Batch:
    images = torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    texts = checkpoint.model.text.encoder.preprocess(CAPTIONS)
    return Batch(images, texts, negative_mask(torch.arange(3)))


def test_each_score_is_the_network_s(checkpoint: Checkpoint, batch: Batch) -> None:
    model = checkpoint.model
    with torch.no_grad():
        images, texts = model.encode_images(batch.images), model.encode_texts(batch.texts)
        align, match = model.scores("alignment", images, texts), matching_scores(images, texts)
    expected = {
        "alignment": align,
        "matching": match,
        "fused": 0.25 * align / 2.0 + 0.75 * (match - 0.5),
    }
    for score, value in expected.items():
        found = Teacher(checkpoint, score).scores(batch)  # type: ignore[arg-type]
        assert not found.requires_grad
        torch.testing.assert_close(found, value)


def test_the_fused_score_keeps_its_scale_at_a_weight_of_1(
    checkpoint: Checkpoint, batch: Batch
) -> None:
    def fused(weight: float) -> torch.Tensor:
        fusion = dataclasses.replace(FUSION.text_to_image, weight=weight)
        both = Fusion(text_to_image=fusion, image_to_text=fusion)
        return Teacher(with_fusion(checkpoint, both), "fused").scores(batch)

    torch.testing.assert_close(fused(1.0), fused(1 - 1e-6), rtol=1e-4, atol=1e-4)


def test_both_heads_learn_from_the_teacher_and_the_teacher_from_nobody(
    checkpoint: Checkpoint, batch: Batch, build_tiny: Callable[..., AladinModel]
) -> None:
    options = {"temperature": 3.0, "teacher_scale": 2.0}
    tasks = {
        name: TaskConfig(loss="listnet", options=options)
        for name in ("distillation", "alignment_distillation")
    }
    teacher = Teacher(checkpoint, "alignment")
    asked = unittest.mock.Mock(wraps=teacher)
    stage = StageConfig(name="s", teacher="t", tasks=tasks)  # type: ignore[arg-type]
    student = build_tiny()
    task = JointTask(student, stage, asked).eval()
    report = task(batch)
    assert asked.scores.call_count == 1  # both tasks learn from the same scores
    images, texts = student.encode_images(batch.images), student.encode_texts(batch.texts)
    loss = ListNetLoss(**options)
    expected = {
        "distillation": loss(matching_scores(images, texts), teacher.scores(batch)),
        "alignment_distillation": loss(
            student.scores("alignment", images, texts), teacher.scores(batch)
        ),
    }
    for name, value in expected.items():
        torch.testing.assert_close(report.terms[name], value.detach())
    report.total.backward()
    assert all(value.grad is None for value in checkpoint.model.parameters())
    assert task.stage.trained_scores == {"matching", "alignment"}
    assert not any("checkpoint" in name or "teacher" in name for name in task.state_dict())
    for part in (student.matching, student.alignment):
        assert any(value.grad is not None for value in part.parameters())
