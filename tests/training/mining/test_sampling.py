"""Drawing from mined lists: the constraints at every draw, and the distribution."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import pytest
import torch

from aladin_network.errors import InputError
from aladin_training.batches.offline_negatives import (
    MinedFrom,
    OfflineNegatives,
    OfflineRows,
    sample_offline,
)

# Photo 0 has captions 0 and 1, photo 1 caption 2, photo 2 captions 3, 4 and 5, photo 3 caption 6.
CAPTIONS_OF_PHOTO = [[0, 1], [2], [3, 4, 5], [6]]
PHOTO_OF_CAPTION = [0, 0, 1, 2, 2, 2, 3]
PAIRS = [(photo, row) for row, photo in enumerate(PHOTO_OF_CAPTION)]


def negatives(texts: list[list[int]], images: list[list[int]]) -> OfflineNegatives:
    mined_from = MinedFrom(
        data="", model_id="", score="matching", num_texts=len(texts[0]), num_images=len(images[0])
    )
    return OfflineNegatives(
        torch.tensor(texts, dtype=torch.int32), torch.tensor(images, dtype=torch.int32), mined_from
    )


# All others, with room to spare in every list.
EVERYTHING = negatives(
    [
        ([row for row, own in enumerate(PHOTO_OF_CAPTION) if own != photo] + [-1] * 8)[:8]
        for photo in range(4)
    ],
    [([photo for photo in range(4) if photo != own] + [-1])[:4] for own in PHOTO_OF_CAPTION],
)


def sample(
    lists: OfflineNegatives,
    pairs: list[tuple[int, int]],
    generator: random.Random,
    *,
    coupled: bool = False,
) -> OfflineRows:
    return sample_offline(pairs, lists, CAPTIONS_OF_PHOTO, PHOTO_OF_CAPTION, generator, coupled)


def test_every_draw_keeps_the_rules() -> None:
    generator = random.Random(1)
    again = random.Random(1)
    for _ in range(200):
        rows = sample(EVERYTHING, PAIRS, generator)
        assert rows == sample(EVERYTHING, PAIRS, again)
        assert len(rows.cross) == len(PAIRS)
        for (photo, caption), *drawn in zip(PAIRS, *rows, strict=True):
            image_bar, text_bar, image_tilde, text_tilde, cross = drawn
            assert text_bar in EVERYTHING.texts[photo].tolist()
            assert image_bar in EVERYTHING.images[caption].tolist()
            assert min(text_bar, image_bar) >= 0
            assert image_tilde == PHOTO_OF_CAPTION[text_bar]
            assert text_tilde in CAPTIONS_OF_PHOTO[image_bar]
            assert cross
            assert image_tilde != image_bar


def test_draws_are_uniform_over_what_does_not_belong_together() -> None:
    generator = random.Random(2)
    count = 8000
    rows = sample(EVERYTHING, [(0, 0)] * count, generator)
    drawn = Counter(zip(rows.texts_bar, rows.images_bar, strict=True))
    allowed = [
        (text, photo)
        for text, photo in itertools.product([2, 3, 4, 5, 6], [1, 2, 3])
        if PHOTO_OF_CAPTION[text] != photo
    ]
    assert set(drawn) == set(allowed)
    # Binomial, 10 equal cells: five standard deviations are 134.
    assert all(abs(times - count / len(allowed)) < 134 for times in drawn.values())
    tilde = zip(rows.images_bar, rows.texts_tilde, strict=True)
    own = Counter(text for photo, text in tilde if photo == 2)
    assert set(own) == {3, 4, 5}
    assert all(abs(times - own.total() / 3) < 150 for times in own.values())


class Counting(random.Random):
    """Counts its draws."""

    draws = 0

    def randrange(self, *limits: int) -> int:  # type: ignore[override]
        self.draws += 1
        return super().randrange(*limits)


def test_lists_that_force_a_match_lose_only_the_cross_terms_after_twenty_draws() -> None:
    forced = negatives([[2], [0], [0], [0]], [[1], [1], [0], [0], [0], [0], [0]])
    rows = sample(forced, [(0, 0), (2, 3)], random.Random(3))
    assert rows == OfflineRows([1, 0], [2, 0], [1, 0], [2, rows.texts_tilde[1]], [False, False])
    generator = Counting(0)
    sample(forced, [(0, 0)], generator)
    assert generator.draws == 2 * 20


def test_coupled_draws_share_one_rank_and_keep_matching_pairs() -> None:
    # Two captions to a photo: captions of ranks 0 and 1 come with the photo of rank 0.
    lists = negatives(
        [[2, 3, 4, 5], [0, 1, 3, 6], [0, 2, 6, -1], [0, 0, 0, 0]],
        [[1, 2], [1, 2], [2, 0], [0, 1], [0, 1], [0, 1], [0, -1]],
    )
    generator = random.Random(5)
    rows = sample(lists, [(0, 0)] * 400, generator, coupled=True)
    drawn = Counter(zip(rows.texts_bar, rows.images_bar, strict=True))
    assert set(drawn) == {(2, 1), (3, 1), (4, 2), (5, 2)}
    assert all(60 < times < 140 for times in drawn.values())
    assert all(rows.cross)  # three of the four pairs match, and are kept as the official code does
    # Three captions or two photos: the rank stays inside both lists.
    short = sample(lists, [(2, 3)] * 200, generator, coupled=True)
    assert set(zip(short.texts_bar, short.images_bar, strict=True)) == {(0, 0), (2, 0), (6, 1)}
    shorter = sample(lists, [(3, 6)] * 200, generator, coupled=True)
    assert set(shorter.images_bar) == {0}


def test_coupled_draws_need_no_fewer_captions_than_photos() -> None:
    lists = negatives([[2], [0], [0], [0]], [[1, 2]] * 7)
    with pytest.raises(InputError, match="got 1 captions and 2 photos"):
        sample(lists, PAIRS, random.Random(0), coupled=True)
