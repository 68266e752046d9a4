"""Both lists from a matrix that is never whole, against the whole matrix."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from aladin_network.errors import InputError
from aladin_network.types import NullProgress
from aladin_training.mining import sweep
from aladin_training.mining.sweep import BestRows, hardest_negatives


def slow_lists(scores: Tensor, own: Tensor, count: int) -> list[list[int]]:
    """For each row of the whole matrix sort the columns; own pairs never come in."""
    lists: list[list[int]] = []
    for row, mine in zip(scores.tolist(), own.tolist(), strict=True):
        others = [column for column in range(len(row)) if not mine[column]]
        others.sort(key=lambda column, row=row: (-row[column], column))
        lists.append((others + [-1] * count)[:count])
    return lists


@pytest.fixture
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles of 4 x 8 pairs, so that few pairs make many blocks."""
    monkeypatch.setattr(sweep, "TILE_PHOTOS", 4)
    monkeypatch.setattr(sweep, "TILE_TEXTS", 8)


# 21 photos with one to five captions each, not in groups of equal size.
CAPTIONS = [1 + (7 * photo) % 5 for photo in range(21)]
IMAGE_OF_TEXT = torch.arange(21).repeat_interleave(torch.tensor(CAPTIONS))


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("budget", [1, 4000, 2**30])
@pytest.mark.parametrize(("num_texts", "num_images"), [(10, 4), (300, 60), (1, 1)])
def test_both_lists_equal_the_whole_matrix_sorted(
    budget: int, num_texts: int, num_images: int
) -> None:
    generator = torch.Generator().manual_seed(3)
    scores = torch.randint(-4, 5, (21, len(IMAGE_OF_TEXT)), generator=generator) / 8  # many ties
    scores[::2] = torch.where(scores[::2] == 0, -0.0, scores[::2])  # among them of both zeros
    largest = 0

    def tile(photos: slice, texts: slice) -> Tensor:
        nonlocal largest
        part = scores[photos, texts]
        largest = max(largest, part.numel())
        return part

    texts, images = hardest_negatives(
        tile, IMAGE_OF_TEXT, 21, num_texts, num_images, budget, NullProgress()
    )
    own = torch.arange(21).unsqueeze(1) == IMAGE_OF_TEXT
    assert texts.tolist() == slow_lists(scores, own, num_texts)
    assert images.tolist() == slow_lists(scores.T, own.T, num_images)
    assert largest <= 4 * 8


def test_real_tiles_give_the_same_whatever_the_memory() -> None:
    generator = torch.Generator().manual_seed(5)
    photos = torch.randn(sweep.TILE_PHOTOS + 30, 8, generator=generator)
    texts = torch.randn(2 * sweep.TILE_TEXTS + 10, 8, generator=generator)
    texts[100::300] = texts[100]  # captions that are written twice
    image_of_text = torch.arange(len(texts)) % len(photos)

    def mined(budget: int) -> tuple[Tensor, Tensor]:
        def tile(rows: slice, columns: slice) -> Tensor:
            return photos[rows] @ texts[columns].T

        return hardest_negatives(tile, image_of_text, len(photos), 20, 5, budget, NullProgress())

    for large, small in zip(mined(2**30), mined(1), strict=True):
        assert torch.equal(large, small)


def test_scores_that_are_no_numbers_are_refused() -> None:
    with pytest.raises(InputError, match="NaN"):
        hardest_negatives(
            lambda photos, texts: torch.full((photos.stop, texts.stop), float("nan")),
            torch.tensor([0, 1]),
            2,
            1,
            1,
            2**20,
            NullProgress(),
        )


def test_every_float_takes_its_place() -> None:
    tiny, huge = torch.finfo(torch.float32).tiny, torch.finfo(torch.float32).max
    values = [0.5, -huge, tiny, float("inf"), -0.5, 0.0, float("-inf"), -tiny, huge, 0.5000001]
    best = BestRows(1, len(values))
    best.add(slice(0, 1), 0, torch.tensor([values]), torch.zeros(1, len(values), dtype=torch.bool))
    assert best.rows().tolist() == [[3, 8, 9, 0, 2, 5, 7, 4, 1, 6]]


def test_rows_far_down_a_large_data_set_keep_their_number() -> None:
    best = BestRows(1, 3)
    free = torch.zeros(1, 2, dtype=torch.bool)
    best.add(slice(0, 1), 2**31 - 2, torch.tensor([[-0.25, -0.25]]), free)
    best.add(slice(0, 1), 0, torch.tensor([[-0.25, -0.5]]), free)
    assert best.rows().tolist() == [[0, 2**31 - 2, 2**31 - 1]]
