"""Which pairs may be negatives."""

from __future__ import annotations

import pytest
import torch

from aladin_network.errors import ShapeError
from aladin_training.losses.negatives import diagonal_pairs, negative_mask


def test_pairs_of_one_image_are_no_negatives() -> None:
    negatives = negative_mask(torch.tensor([7, 3, 7]))
    assert negatives.tolist() == [
        [False, True, False],
        [True, False, True],
        [False, True, False],
    ]


def test_unique_images_with_all_their_captions() -> None:
    negatives = negative_mask(torch.tensor([4, 9]), torch.tensor([4, 4, 9]))
    assert negatives.tolist() == [[False, False, True], [True, True, False]]


def test_distinct_ids_give_the_official_mask() -> None:
    assert torch.equal(negative_mask(torch.arange(5)), ~torch.eye(5, dtype=torch.bool))


def test_positives_of_a_square_matrix_are_its_diagonal() -> None:
    pairs = diagonal_pairs(torch.zeros(3, 3), torch.zeros(3, 3, dtype=torch.bool))
    assert pairs.tolist() == [[0, 0], [1, 1], [2, 2]]


def test_a_rectangular_matrix_has_no_diagonal_of_pairs() -> None:
    with pytest.raises(ShapeError, match=r"\(batch, batch\), got \(2, 3\)"):
        diagonal_pairs(torch.zeros(2, 3), torch.zeros(2, 3, dtype=torch.bool))


def test_a_mask_of_another_shape_is_refused() -> None:
    with pytest.raises(ShapeError, match=r"\(2, 2\), got \(2, 1\)"):
        diagonal_pairs(torch.zeros(2, 2), torch.zeros(2, 1, dtype=torch.bool))
