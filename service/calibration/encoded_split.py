"""A split's photos and captions as the network sees them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from aladin.encoding import Encoding, concatenate
from aladin.errors import InputError
from aladin.images import read_image
from aladin.inference import encode_photos, encode_texts
from aladin.model import AladinModel
from aladin.progress import Progress
from training.data import Record

_PHOTOS_A_BATCH = 32
_TEXTS_A_BATCH = 64
T = TypeVar("T")


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


def encode_split(model: AladinModel, records: Sequence[Record], progress: Progress) -> EncodedSplit:
    """Encode a split.

    Args:
        model: the network.
        records: photos; those without a caption are left out.
        progress: told of photos, then of captions.

    Raises:
        InputError: no photo has a caption.
        ImageError: a photo cannot be decoded.
    """
    asking = [record for record in records if record.captions]
    if not asking:
        raise InputError(
            f"calibration: expected photos with captions, found {len(records)} without"
        )
    captions = [caption for record in asking for caption in record.captions]
    return EncodedSplit(
        records=asking,
        images=_encode(
            [record.photo for record in asking],
            _PHOTOS_A_BATCH,
            "photos",
            progress,
            lambda files: encode_photos(model, [read_image(file) for file in files]),
        ),
        texts=_encode(
            captions,
            _TEXTS_A_BATCH,
            "captions",
            progress,
            lambda batch: encode_texts(model, batch, truncate=True),
        ),
        photo_of_text=np.repeat(
            np.arange(len(asking)), [len(record.captions) for record in asking]
        ),
        caption_ids=[
            f"{record.id}#{number}" for record in asking for number in range(len(record.captions))
        ],
    )


def _encode(
    items: Sequence[T],
    batch_size: int,
    unit: str,
    progress: Progress,
    encode: Callable[[Sequence[T]], Encoding],
) -> Encoding:
    progress.start(len(items), unit)
    parts: list[Encoding] = []
    for start in range(0, len(items), batch_size):
        batch = items[start : start + batch_size]
        parts.append(encode(batch))
        progress.advance(len(batch))
    return concatenate(parts)
