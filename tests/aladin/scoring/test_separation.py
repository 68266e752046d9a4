"""MD and the cross-retrieval rank, against loops over the pairs."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from aladin_network.scoring.separation import (
    cross_retrieval_ranks,
    mean_difference,
    separation_of_queries,
    summarize_cross_ranks,
)


def random_case(seed: int, levels: int) -> tuple[Tensor, Tensor]:
    """Eight images, the last without a text, and 150 texts."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randint(levels, (8, 150), generator=generator) / levels
    return scores, torch.randint(7, (150,), generator=generator)


def slow_cross_rank(scores: Tensor, image_of_text: Tensor, text: int) -> int:
    """Count the wrong images and texts that are at least as good as the pair."""
    n_images, n_texts = scores.shape
    image = int(image_of_text[text])
    right = float(scores[image, text])
    among_images = 1 + sum(
        float(scores[other, text]) >= right for other in range(n_images) if other != image
    )
    among_texts = 1 + sum(
        float(scores[image, other]) >= right
        for other in range(n_texts)
        if int(image_of_text[other]) != image
    )
    return max(math.ceil((among_images - 1) * n_texts / n_images) + 1, among_texts)


@pytest.mark.parametrize("levels", [3, 10**6])
def test_cross_ranks_equal_a_loop_over_the_pairs(levels: int) -> None:
    scores, image_of_text = random_case(levels, levels)
    expected = [slow_cross_rank(scores, image_of_text, text) for text in range(150)]
    assert cross_retrieval_ranks(scores, image_of_text).tolist() == expected


def test_cross_ranks_worked_by_hand_where_the_ratio_is_a_fraction() -> None:
    # Four images and three texts, so a step among the images is 3/4 of one among the texts.
    scores = torch.tensor([[0.5, 0.1, 0.1], [0.9, 0.8, 0.2], [0.9, 0.3, 0.3], [0.1, 0.1, 0.3]])
    # Text 0 of image 0: two images lead it (1.5, rounded up to 2, makes rank 3), no text does.
    # Text 1 of image 1: no image leads, text 0 does. Text 2 of image 2: image 3 ties, texts 0
    # and 1 are at least as good.
    ranks = cross_retrieval_ranks(scores, torch.tensor([0, 1, 2]))
    assert ranks.tolist() == [3, 2, 3]
    assert summarize_cross_ranks(ranks) == (3.0, pytest.approx(8 / 3))
    assert summarize_cross_ranks(torch.tensor([1, 2])) == (1.0, 1.5)


def test_scores_that_are_no_numbers_count_against_us() -> None:
    scores = torch.full((3, 4), float("nan"))
    assert cross_retrieval_ranks(scores, torch.tensor([0, 0, 1, 2])).tolist() == [4] * 4


def test_the_mean_difference_of_extremes() -> None:
    image_of_text = torch.tensor([0, 0, 1, 2])
    right = (torch.arange(3).unsqueeze(1) == image_of_text).float()
    assert mean_difference(2 * right - 1, image_of_text) == pytest.approx(2)
    assert mean_difference(torch.ones(1, 2), torch.tensor([0, 0])) == 0  # no other pair


@pytest.mark.parametrize("images", [8, 600])
def test_scores_of_each_query_s_matches_and_others_equal_loops(images: int) -> None:
    """The last image has no text; 600 images are several blocks."""
    generator = torch.Generator().manual_seed(images)
    scores = torch.rand(images, 30, generator=generator)
    image_of_text = torch.randint(7, (30,), generator=generator)
    owners = image_of_text.tolist()
    found = separation_of_queries(scores, image_of_text)
    expected: list[tuple[float, float, float]] = []
    for image in sorted(set(owners)):
        own = [float(scores[image, text]) for text in range(30) if owners[text] == image]
        others = [float(scores[image, text]) for text in range(30) if owners[text] != image]
        expected.append((sum(own) / len(own), sum(others) / len(others), max(others)))
    torch.testing.assert_close(
        torch.stack(found.image_to_text, dim=1), torch.tensor(expected, dtype=torch.float64)
    )
    expected = []
    for text, owner in enumerate(owners):
        others = [float(scores[image, text]) for image in range(images) if image != owner]
        expected.append((float(scores[owner, text]), sum(others) / len(others), max(others)))
    torch.testing.assert_close(
        torch.stack(found.text_to_image, dim=1), torch.tensor(expected, dtype=torch.float64)
    )
    of_texts = found.text_to_image
    assert float((of_texts.positive - of_texts.negative).mean()) == pytest.approx(
        mean_difference(scores, image_of_text), abs=1e-6
    )


def test_queries_of_a_single_image_have_no_others() -> None:
    found = separation_of_queries(torch.tensor([[0.5, 0.25]]), torch.tensor([0, 0]))
    assert found.image_to_text.positive.tolist() == [0.375]
    for direction in found:
        assert set(direction.negative.tolist()) == set(direction.hardest.tolist()) == {-math.inf}
