"""A split's photos and captions as the network sees them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from aladin.encoding import Encoding
from aladin.errors import InputError
from aladin.model import AladinModel
from aladin.progress import Progress
from training.data import Record
from training.data.regions import RegionStore
from training.evaluation import encode_records


@dataclass(frozen=True, kw_only=True)
class EncodedSplit:
    """The photos of a split that have a caption, and their captions, encoded as users' are.

    Attributes:
        records: the photos.
        images: their encodings, in the same order.
        texts: encodings of their captions, photo by photo.
        photo_of_text: (texts,) int64, the row of each caption's photo.
        caption_ids: of the captions in an index of the same data.
    """

    records: Sequence[Record]
    images: Encoding
    texts: Encoding
    photo_of_text: NDArray[np.int64]
    caption_ids: Sequence[str]

    @property
    def words(self) -> NDArray[np.int64]:
        """(texts,) int64, the number of words of each caption."""
        return self.texts.mask.sum(dim=1).numpy()


def encode_split(
    model: AladinModel,
    records: Sequence[Record],
    progress: Progress,
    regions: RegionStore | None = None,
) -> EncodedSplit:
    """Encode a split.

    Args:
        model: the network.
        records: photos; those without a caption are left out.
        progress: told of photos, then of captions.
        regions: of the photos, for a network that reads these.

    Raises:
        InputError: no photo has a caption; or see `encode_records`.
    """
    asking = [record for record in records if record.captions]
    if not asking:
        raise InputError(
            f"calibration: expected photos with captions, found {len(records)} without"
        )
    images, texts = encode_records(model, asking, progress, regions)
    return EncodedSplit(
        records=asking,
        images=images,
        texts=texts,
        photo_of_text=np.repeat(
            np.arange(len(asking)), [len(record.captions) for record in asking]
        ),
        caption_ids=[each for record in asking for each in record.caption_ids],
    )
