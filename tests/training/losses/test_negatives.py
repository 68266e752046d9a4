"""Which pairs may be negatives."""

from __future__ import annotations

import pytest
import torch

from aladin_network.errors import ShapeError
from aladin_training.losses.negatives import by_pairs, check_pairs, negative_mask


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


def test_a_matrix_seen_from_its_diagonal_is_as_seen_from_the_pairs_of_the_diagonal() -> None:
    scores = torch.arange(9.0).view(3, 3)
    diagonal = torch.tensor([[0, 0], [1, 1], [2, 2]])
    for seen, listed in zip(by_pairs(scores, None), by_pairs(scores, diagonal), strict=True):
        assert torch.equal(seen, listed)


def test_pairs_see_their_image_s_row_and_their_text_s_column() -> None:
    scores = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    seen = by_pairs(scores, torch.tensor([[0, 1], [1, 2], [0, 0]]))
    assert seen.own.tolist() == [2, 6, 1]
    assert seen.of_image.tolist() == [[1, 2, 3], [4, 5, 6], [1, 2, 3]]
    assert seen.of_text.tolist() == [[2, 5], [3, 6], [1, 4]]


def test_a_rectangular_matrix_has_no_diagonal_of_pairs() -> None:
    with pytest.raises(ShapeError, match=r"\(batch, batch\), got \(2, 3\)"):
        check_pairs(torch.zeros(2, 3), torch.zeros(2, 3, dtype=torch.bool))


def test_a_mask_of_another_shape_is_refused() -> None:
    with pytest.raises(ShapeError, match=r"\(2, 2\), got \(2, 1\)"):
        check_pairs(torch.zeros(2, 2), torch.zeros(2, 1, dtype=torch.bool))
