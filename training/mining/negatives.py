"""Mined lists, and what they were mined from."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Int32
from torch import Tensor

from aladin.scoring import ScoreName
from training.defaults import NUM_IMAGES, NUM_TEXTS


@dataclass(frozen=True, kw_only=True)
class MinedFrom:
    """All that decides what is in the lists.

    Attributes:
        data: digest of the photos and captions and of their order, see `PairDataset.digest`.
        model_id: of the checkpoint that scored, see `aladin.checkpoint.Checkpoint`; None where
            lists are expected and any network may have mined them.
        score: of that network.
        num_texts: captions asked for, for each photo.
        num_images: photos asked for, for each caption.
    """

    data: str
    model_id: str | None
    score: ScoreName
    num_texts: int = NUM_TEXTS
    num_images: int = NUM_IMAGES


@dataclass(frozen=True)
class OfflineNegatives:
    """The hardest negatives of every training photo and caption (AOQ).

    Attributes:
        texts: for each photo the captions, not its own, that score highest, best first; rows of
            the data set's captions, -1 at the end where there are fewer.
        images: for each caption the photos, not its own, that score highest; rows of photos.
        mined_from: what the lists belong to.
    """

    texts: Int32[Tensor, "photos num_texts"]
    images: Int32[Tensor, "captions num_images"]
    mined_from: MinedFrom
