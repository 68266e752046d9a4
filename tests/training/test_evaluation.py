"""Exhaustive evaluation of encodings, against the measures taken one by one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch.nn.functional import normalize

from aladin_network.checkpoint import load_checkpoint
from aladin_network.config import AttentionHeadConfig
from aladin_network.errors import InputError
from aladin_network.model import AladinModel
from aladin_network.photos.files import PhotoFile
from aladin_network.scoring.fusion import DirectionFusion, Fusion
from aladin_network.scoring.metrics import (
    mean_metrics,
    retrieval_metrics,
    retrieval_ranks,
    summarize,
)
from aladin_network.scoring.scores import EncodedBatch
from aladin_network.scoring.separation import cross_retrieval_ranks, mean_difference
from aladin_network.scoring.two_stages import two_stage_ranks
from aladin_training.data import Record
from aladin_training.evaluation import ExhaustiveEvaluation, evaluate_checkpoint, evaluate_encodings

FUSION = Fusion(
    text_to_image=DirectionFusion(weight=0.5, align_mean=2.0, align_std=0.5, match_std=0.3),
    image_to_text=DirectionFusion(weight=0.2, align_std=2.0, match_mean=0.5),
)
# Five images with 3, 1, 0, 2 and 4 texts.
IMAGE_OF_TEXT = torch.tensor([0, 0, 0, 1, 3, 3, 4, 4, 4, 4])


def random_encoding(items: int, tokens: int, seed: int) -> EncodedBatch:
    """Unit vectors, every item with at least one real token."""
    generator = torch.Generator().manual_seed(seed)
    mask = torch.rand(items, tokens, generator=generator) < 0.7
    mask[:, 0] = True
    return EncodedBatch(
        normalize(torch.randn(items, 16, generator=generator), dim=-1),
        normalize(torch.randn(items, tokens, 8, generator=generator), dim=-1),
        mask,
    )


IMAGES, TEXTS = random_encoding(5, 6, seed=1), random_encoding(10, 4, seed=2)


@pytest.fixture(scope="module")
def model(tiny_checkpoint: Path) -> AladinModel:
    return load_checkpoint(tiny_checkpoint).model


@pytest.fixture(scope="module")
def evaluation(model: AladinModel) -> ExhaustiveEvaluation:
    """Of the random encodings."""
    return evaluate_encodings(model, FUSION, IMAGES, TEXTS, IMAGE_OF_TEXT)


def test_scores_are_those_of_the_heads(evaluation: ExhaustiveEvaluation) -> None:
    assert list(evaluation.scores) == ["matching", "alignment"]
    cosines = IMAGES.embedding @ TEXTS.embedding.T
    torch.testing.assert_close(evaluation.matching_scores, cosines)
    for image in range(5):
        for text in range(10):
            cells = TEXTS.item_tokens(text) @ IMAGES.item_tokens(image).T  # (words, regions)
            expected = cells.amax(dim=1).sum()
            torch.testing.assert_close(evaluation.alignment_scores[image, text], expected)


def test_every_measure_of_every_score(evaluation: ExhaustiveEvaluation) -> None:
    match, align = evaluation.matching_scores, evaluation.alignment_scores
    assert list(evaluation.ranks) == ["matching", "alignment", "fused", "two_stage"]
    for name, scores in evaluation.scores.items():
        assert evaluation.metrics()[name] == retrieval_metrics(scores, IMAGE_OF_TEXT)
        assert evaluation.mean_difference[name] == mean_difference(scores, IMAGE_OF_TEXT)
        expected = cross_retrieval_ranks(scores, IMAGE_OF_TEXT)
        assert torch.equal(evaluation.cross_ranks[name], expected)
    by_text = FUSION.text_to_image.combine(align, match)
    by_image = FUSION.image_to_text.combine(align, match)
    fused = evaluation.ranks["fused"]
    assert torch.equal(fused.text_to_image, retrieval_ranks(by_text, IMAGE_OF_TEXT).text_to_image)
    assert torch.equal(fused.image_to_text, retrieval_ranks(by_image, IMAGE_OF_TEXT).image_to_text)
    # Fewer items than candidates: the second stage orders them all.
    assert evaluation.metrics()["two_stage"] == evaluation.metrics()["fused"]


def test_a_network_with_the_attention_head_is_measured_by_it_too(
    build_tiny: Callable[..., AladinModel],
) -> None:
    model = build_tiny(attention=AttentionHeadConfig())
    evaluation = evaluate_encodings(model, FUSION, IMAGES, TEXTS, IMAGE_OF_TEXT)
    assert list(evaluation.ranks) == ["matching", "alignment", "attention", "fused", "two_stage"]
    with torch.inference_mode():
        scores = model.scores("attention", IMAGES, TEXTS)
    assert torch.equal(evaluation.scores["attention"], scores)


def test_two_stages_see_a_hundred_candidates(model: AladinModel) -> None:
    images, texts = random_encoding(130, 5, seed=3), random_encoding(260, 5, seed=4)
    truth = torch.arange(260) // 2
    evaluation = evaluate_encodings(model, FUSION, images, texts, truth)
    expected = two_stage_ranks(
        evaluation.matching_scores, evaluation.alignment_scores, FUSION, truth, 100
    )
    assert evaluation.metrics()["two_stage"] == summarize(expected)
    assert evaluation.metrics()["two_stage"] != evaluation.metrics()["fused"]


def test_folds_are_evaluations_of_their_own(
    model: AladinModel, evaluation: ExhaustiveEvaluation
) -> None:
    blocks = [
        evaluate_encodings(
            model,
            FUSION,
            IMAGES.rows(torch.tensor(rows)),
            TEXTS.rows(torch.tensor(columns)),
            torch.tensor(image_of_text),
        ).metrics()
        for rows, columns, image_of_text in (
            ([0, 1], [0, 1, 2, 3], [0, 0, 0, 1]),
            ([2, 3], [4, 5], [1, 1]),
            ([4], [6, 7, 8, 9], [0, 0, 0, 0]),
        )
    ]
    folded = evaluation.folded_metrics(3)
    assert list(folded) == list(evaluation.ranks)
    for name, metrics in folded.items():
        assert metrics == mean_metrics([block[name] for block in blocks])
    assert evaluation.folded_metrics(1) == evaluation.metrics()


def test_photos_without_any_caption_cannot_be_evaluated(tiny_checkpoint: Path) -> None:
    records = [Record(id="a", photo=PhotoFile(Path("a.png")), uri="a.png", captions=())]
    with pytest.raises(InputError, match="nothing to evaluate: 1 photos without a caption"):
        evaluate_checkpoint(load_checkpoint(tiny_checkpoint), records)
