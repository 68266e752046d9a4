"""Score all photos against all captions block by block, and keep the hardest negatives."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from aladin_network.errors import InputError
from aladin_network.types import Progress
from aladin_training.batches.offline_negatives import NO_ROW

_ROW_BITS = 32
_LAST_ROW = 2**_ROW_BITS - 1
_NO_KEY = torch.iinfo(torch.int64).min

# Pairs are scored in tiles of a fixed shape for any memory budget: the last bit of a matrix
# product may depend on the shape, and with it the order of two nearly equal scores.
TILE_PHOTOS = 512
TILE_TEXTS = 1024

# A pair's score and mask (5 bytes), and for one direction at a time its key, intermediate values
# of the key, and the copy that is joined to the best so far.
_BYTES_A_PAIR = 48


class BestRows:
    """For each query the k rows with the highest scores so far; of equal scores, the lower row.

    A score and its row are packed into one integer with the same order. No two keys are equal, so
    the result depends neither on the order of the blocks nor on their shape.
    """

    def __init__(self, num_queries: int, k: int, device: torch.device | str = "cpu") -> None:
        self._keys = torch.full((num_queries, k), _NO_KEY, dtype=torch.int64, device=device)

    def add(
        self,
        queries: slice,
        first_row: int,
        scores: Float[Tensor, "queries rows"],
        excluded: Bool[Tensor, "queries rows"],
    ) -> None:
        """Process one block of the matrix; each of its cells must be passed once."""
        rows = torch.arange(first_row, first_row + scores.shape[1], device=scores.device)
        # In place: copying a large block costs more than the arithmetic on it.
        keys = _ordered(scores).mul_(2**_ROW_BITS).add_(_LAST_ROW - rows)  # (queries, rows)
        keys.masked_fill_(excluded, _NO_KEY)
        best = self._keys[queries]
        joined = torch.cat([best, keys], dim=1)
        self._keys[queries] = joined.topk(best.shape[1], dim=1).values

    def rows(self) -> Int[Tensor, "queries k"]:
        """Return the rows, best first, int32; `NO_ROW` at the end if there were fewer than k."""
        rows = _LAST_ROW - self._keys % 2**_ROW_BITS
        return rows.masked_fill(self._keys == _NO_KEY, NO_ROW).to(torch.int32)


def _ordered(scores: Float[Tensor, "queries rows"]) -> Int[Tensor, "queries rows"]:
    """Map float32 to integers in the same order, one to one except for the two zeros.

    The bits of a float are a sign and a magnitude: as integers, negative ones order backwards.
    """
    bits = (scores + 0.0).view(torch.int32)  # -0.0 + 0.0 is 0.0
    return torch.where(bits < 0, bits ^ torch.iinfo(torch.int32).max, bits).to(torch.int64)


ScoreTile = Callable[[slice, slice], Tensor]


def hardest_negatives(
    score_tile: ScoreTile,
    image_of_text: Int[Tensor, " texts"],
    num_photos: int,
    num_texts: int,
    num_images: int,
    memory_budget_bytes: int,
    progress: Progress,
) -> tuple[Int[Tensor, "photos num_texts"], Int[Tensor, "texts num_images"]]:
    """Find for each photo the best captions of others, and for each caption the best other photos.

    The whole matrix is never held: every block of it, of at least one tile, updates the lists of
    both directions. They are rows of captions and of photos, int32, hardest first, of equal scores
    the lower row first; -1 at the end if there are fewer.
    """
    device = image_of_text.device
    texts_of_photo = BestRows(num_photos, num_texts, device)
    photos_of_text = BestRows(len(image_of_text), num_images, device)
    tiles_a_block = max(1, memory_budget_bytes // (TILE_PHOTOS * TILE_TEXTS * _BYTES_A_PAIR))
    progress.start(num_photos, "photos compared")
    for photos in _spans(0, num_photos, TILE_PHOTOS):
        photo_rows = torch.arange(photos.start, photos.stop, device=device)
        for texts in _spans(0, len(image_of_text), tiles_a_block * TILE_TEXTS):
            tiles = [score_tile(photos, t) for t in _spans(texts.start, texts.stop, TILE_TEXTS)]
            scores = torch.cat(tiles, dim=1)  # (photos, texts)
            if bool(scores.isnan().any()):
                raise InputError("the network's scores are not numbers (NaN); its weights are bad")
            own = photo_rows[:, None] == image_of_text[texts]  # (photos, texts)
            texts_of_photo.add(photos, texts.start, scores, own)
            photos_of_text.add(texts, photos.start, scores.T.contiguous(), own.T)
        progress.advance(photos.stop - photos.start)
    return texts_of_photo.rows(), photos_of_text.rows()


def _spans(start: int, stop: int, size: int) -> list[slice]:
    return [slice(first, min(stop, first + size)) for first in range(start, stop, size)]
