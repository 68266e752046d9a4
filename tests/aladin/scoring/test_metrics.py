"""Retrieval metrics: hand-worked cases, ties, and a sort as the slow reference."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from aladin_network.scoring.metrics import (
    Ranks,
    folded_metrics,
    ranks_in_blocks,
    retrieval_metrics,
    retrieval_ranks,
    summarize,
)

# Three images with 2, 1 and 3 captions.
IMAGE_OF_TEXT = torch.tensor([0, 0, 1, 2, 2, 2])


def reference_ranks(scores: Tensor, image_of_text: Tensor) -> Ranks:
    """Rank by sorting, the right answers last among equals."""
    of_texts: list[int] = []
    of_images: list[int] = []
    n_images, n_texts = scores.shape
    for text in range(n_texts):
        own = int(image_of_text[text])
        order = sorted(range(n_images), key=lambda i: (-float(scores[i, text]), i == own))
        of_texts.append(order.index(own))
    for image in range(n_images):
        own_texts = [t for t in range(n_texts) if int(image_of_text[t]) == image]
        if own_texts:
            wrong = [t for t in range(n_texts) if t not in own_texts]
            best = max(float(scores[image, t]) for t in own_texts)
            of_images.append(sum(float(scores[image, t]) >= best for t in wrong))
    return Ranks(torch.tensor(of_texts), torch.tensor(of_images))


def test_worked_by_hand() -> None:
    scores = torch.tensor(
        [
            [0.9, 0.2, 0.5, 0.1, 0.6, 0.3],
            [0.8, 0.7, 0.4, 0.2, 0.7, 0.1],
            [0.1, 0.3, 0.6, 0.5, 0.2, 0.4],
        ]
    )
    ranks = retrieval_ranks(scores, IMAGE_OF_TEXT)
    assert ranks.text_to_image.tolist() == [0, 2, 2, 0, 2, 0]
    # Image 0: its caption 0 leads. Image 1: .4 is behind .8, .7 and .7. Image 2: .6 leads .5.
    assert ranks.image_to_text.tolist() == [0, 3, 1]
    metrics = summarize(ranks)
    assert metrics.text_to_image.r1 == pytest.approx(50)
    assert metrics.text_to_image[1:3] == (100, 100)
    assert metrics.text_to_image.median_rank == 2  # ranks 0 0 0 2 2 2: floor of 1, from 1
    assert metrics.text_to_image.mean_rank == pytest.approx(2)
    assert metrics.image_to_text.r1 == pytest.approx(100 / 3)
    assert metrics.image_to_text.mean_rank == pytest.approx(7 / 3)
    assert metrics.rsum == pytest.approx(50 + 100 + 100 + 100 / 3 + 100 + 100)


@pytest.mark.parametrize(
    ("levels", "images", "texts"),
    [(3, 8, 20), (1, 5, 5), (10**6, 8, 20), (3, 1, 5), (10**6, 600, 30)],  # 600: several blocks
)
def test_ranks_equal_a_sort_with_ties_against_us(levels: int, images: int, texts: int) -> None:
    """Captions of one photo do not outrank each other; some photos have none."""
    generator = torch.Generator().manual_seed(levels)
    scores = torch.randint(levels, (images, texts), generator=generator) / levels
    image_of_text = torch.randint(max(1, images - 1), (texts,), generator=generator)
    ranks = retrieval_ranks(scores, image_of_text)
    expected = reference_ranks(scores, image_of_text)
    assert torch.equal(ranks.text_to_image, expected.text_to_image)
    assert torch.equal(ranks.image_to_text, expected.image_to_text)


def test_scores_that_are_no_numbers_count_against_us() -> None:
    ranks = retrieval_ranks(torch.full((3, 6), float("nan")), IMAGE_OF_TEXT)
    assert ranks.text_to_image.tolist() == [2] * 6
    assert ranks.image_to_text.tolist() == [4, 5, 3]


def test_ranks_in_blocks_are_those_of_each_block_in_the_order_of_the_split() -> None:
    """Two blocks of two photos; the texts of both are mixed. Worked out by hand."""
    image_of_text = torch.tensor([2, 0, 3, 1])
    scores = torch.tensor(
        [
            [9.0, 0.5, 9.0, 0.6],  # photo 0: text 1 is its own, text 3 is of its block and ahead
            [9.0, 0.1, 9.0, 0.7],
            [0.3, 9.0, 0.2, 9.0],
            [0.4, 9.0, 0.9, 9.0],
        ]
    )
    found = ranks_in_blocks(
        lambda block: {
            "one": retrieval_ranks(scores[block.images, block.texts], block.image_of_text)
        },
        4,
        image_of_text,
        2,
    )["one"]
    assert found.text_to_image.tolist() == [1, 0, 0, 0]
    assert found.image_to_text.tolist() == [1, 0, 0, 0]
    whole = retrieval_ranks(scores, image_of_text)
    assert whole.text_to_image.tolist() != found.text_to_image.tolist()
    # R@1 of the blocks: 100 and 50 in one direction, 50 and 100 in the other.
    assert summarize(found).rsum == pytest.approx(75 + 75 + 4 * 100)
    assert folded_metrics(scores, image_of_text, folds=2).rsum == summarize(found).rsum


def test_a_block_without_a_text_has_no_share_in_the_mean() -> None:
    scores = torch.rand(6, 4, generator=torch.Generator().manual_seed(3))
    image_of_text = torch.tensor([0, 0, 1, 5])  # none of the images 2 to 4
    folded = folded_metrics(scores, image_of_text, folds=3)
    first = retrieval_metrics(scores[:2, :3], torch.tensor([0, 0, 1]))
    last = retrieval_metrics(scores[4:, 3:], torch.tensor([1]))
    assert folded.rsum == pytest.approx((first.rsum + last.rsum) / 2)


def test_ties_may_count_for_us() -> None:
    scores = torch.tensor([[0.5, 0.5], [0.5, 0.9]])
    image_of_text = torch.tensor([0, 1])
    against = retrieval_ranks(scores, image_of_text)
    in_favour = retrieval_ranks(scores, image_of_text, ties="for")
    assert against.text_to_image.tolist() == [1, 0]
    assert against.image_to_text.tolist() == [1, 0]
    assert in_favour.text_to_image.tolist() == [0, 0]
    assert in_favour.image_to_text.tolist() == [0, 0]
    assert retrieval_metrics(torch.ones(3, 3), torch.arange(3), ties="for").rsum == 600
    unknown = torch.full((2, 2), float("nan"))
    assert retrieval_ranks(unknown, image_of_text, ties="for").text_to_image.tolist() == [1, 1]
